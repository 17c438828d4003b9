"""What must exist for a Kubernetes cluster: objects of Netloom, made from pods, nodes, Services and policies.  Pure.

`cluster` and `pods` have what connects nodes and pods, `services` LoadBalancers, `policies` SecurityProfiles, and
`node` the nftables table of a node. `names` has the names and labels of all these objects, `indexes` says which
policies a change concerns. See docs/design/0027-kubernetes.md.
"""
