"""Kubernetes' own end-to-end tests of the network, on a lab's cluster: `make test-conformance`."""
