"""Entry points of the processes, and what they need: configuration, credentials, logs, metrics.

The code here builds and starts. What a process does lives in the packages it starts: `front`, `control`, `store`,
`drivers`.

node/     the agent
metrics/  what /metrics shows
access/   certificates and credentials of `serve`
cluster/  what a Kubernetes cluster needs for Netloom
"""
