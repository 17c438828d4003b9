"""Stores of objects: one interface (`base.py`), four implementations, one test suite.

sqlite/  one file, with its log and the reserve for a full disk
etcd/    etcd, by its gRPC API
kube/    a Kubernetes API server, or another Netloom server
http/    the protocols: HTTP/1.1 and HTTP/2, a client of REST, gRPC

`memory.py` is the fourth. All but `kube/` share `semantics.py`, which decides writes, `engine.py`, which applies them,
`hub.py`, which feeds watchers, and `damage.py`. `opening.py` opens the store that `--store` names.
"""
