"""The protocols of the stores: `client` on `http1` or `http2` for REST, `grpc` on `http2` for etcd.

`connect` opens connections for both, with TLS.
"""
