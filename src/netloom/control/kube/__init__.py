"""The network of a Kubernetes cluster: pods, nodes, Services and policies become objects of Netloom."""
