"""What must exist for a Kubernetes cluster: objects of Netloom, made from pods, nodes, Services and policies.  Pure.

`names` has the names and labels of these objects. See docs/design/0027-kubernetes.md.
"""
