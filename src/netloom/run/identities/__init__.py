"""Certificates for OVN in a Kubernetes cluster: `authority` signs them, `node` asks for that of a node."""
