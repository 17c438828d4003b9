"""Stores of resources: one interface (`base.py`), four implementations, one test suite.

`memory.py`, `sqlite.py` (with `log.py` and `reserve.py`), `etcd.py` (with `etcdapi.py`, `etcdwire.py`, `etcdfeed.py`)
and `kube.py` (with `batching.py`, `streams.py`, `kubeconfig.py`, `execplugin.py`) implement the interface. The first
three share `semantics.py`, which decides writes, `hub.py`, which feeds watchers, and `damage.py`. `opening.py` opens
the store that `--store` names. The protocols are in `http.py` and `http1.py`, and in `grpc.py`, `http2.py`, `hpack.py`.
"""
