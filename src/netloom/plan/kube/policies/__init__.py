"""The SecurityProfiles of a cluster: `network_policies`, `cluster_policies`, and those that pods name.  Pure.

`matching` and `selecting` have what both kinds of policies share: peers, ports, and selectors over labels.
"""
