"""The CNI plugin: how a container runtime asks for the interfaces of pods.

    kubelet ─► containerd, CRI-O ─► shim.py ─► cni.sock ─► server.py ─► verbs.py ─► control/node/local_ports/pods.py
               (a process for each call)      (in the agent: bounded)

    request   LENGTH "\\n" {"CNI_NAME=VALUE" NUL}… NUL STDIN        LENGTH: the bytes after this line, in decimal
    answer    "0\\n" RESULT, or "1\\n" ERROR; then the agent closes

The client keeps its side open until it has the answer: if it goes away, the agent knows that the runtime has given up.
`request.py` reads requests and `results.py` forms answers, both without IO. `install.py` puts the plugin on a node.
"""
