"""Real programs for the tests: etcd, kube-apiserver and kubectl, started on loopback and always stopped.

Every helper is a context manager. What it starts dies with the test process, however that ends (see `process`), and
uses a temporary folder named `netloom-…`. The fixtures over these helpers are in tests/conftest.py.
"""
