"""A Kubernetes cluster in a lab: its real programs, one kubelet and one containerd on each host.

`places` has the addresses and files; `binaries` finds the programs, `programs` says how each is started; `pki`,
`settings`, `network`, `naming` and `images` write what they read; `objects` are the ones that a new cluster gets;
`ending` removes what pods leave behind; `observing` asks for the state of the nodes.
"""
