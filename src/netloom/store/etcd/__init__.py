"""etcd as a store: `store` is the store, `feed` its watch, `api` the calls, `wire` their messages."""
