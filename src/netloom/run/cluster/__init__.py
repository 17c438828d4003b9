"""Netloom as part of a Kubernetes cluster: the objects that the cluster needs, and the calls that delegate to it."""
