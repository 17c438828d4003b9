"""A Kubernetes API server as a store: `store` is the store, `kubeconfig` and `execplugin` the credentials.

`batching` and `streams` send several calls, and several watches, over one request to a Netloom server.
"""
