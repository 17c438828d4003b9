"""The protocols of the stores: `client` on `http1` for REST, `grpc` on `http2` and `hpack` for etcd."""
