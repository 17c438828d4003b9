"""The names and labels of the objects that are made for a Kubernetes cluster."""

import hashlib

NAMESPACE = "netloom-pods"
"""The default namespace of these objects."""
PREFIX = "kube.netloom.dev/"
"""Labels and annotations under this prefix are ours; they are not taken over from pods."""
MANAGED = PREFIX + "managed"
"""The label of every object that is made for the cluster; its value is "true"."""
OF_NAMESPACE = PREFIX + "namespace"
"""The label with the namespace of the pod, Service or policy."""
POD_UID = PREFIX + "pod-uid"
"""The label with the uid of the pod."""
PORT = PREFIX + "port-"
"""The beginning of the labels with the numbers of a pod's named ports: `kube.netloom.dev/port-tcp-http: "8080"`."""
POD_NAME = PREFIX + "pod"
"""The annotation with the name of the pod."""
HOST_PORTS = PREFIX + "host-ports"
"""The annotation with the ports of the node that lead to the pod, for the agent (plan/kube/node/host_ports.py)."""
SOURCE = PREFIX + "source"
"""The annotation of every object that is made for the cluster: for what, as `Pod/NAMESPACE/NAME` or `Cluster/`."""
PROFILES = "netloom.dev/security-profiles"
"""The annotation of a pod with the SecurityProfiles that it names: `web,db`."""
GRANTED_TO = PREFIX + "granted-to"
"""The annotation of a SecurityProfile with the namespaces whose pods may name it: `shop,bank`, or `*` for all."""
NOT_GRANTED = "not-granted"
"""The SecurityProfile, which must not exist, of pods that name one they may not: their ports are closed."""
HOST = PREFIX + "host"
"""The label of the attachments of nodes; its value is "true"."""
LOAD_BALANCER_IPS = "netloom.dev/load-balancer-ips"
"""The annotation of a Service with the addresses that it wants, one of each family: `192.0.2.10,2001:db8::10`."""
LOAD_BALANCER_CLASS = "netloom.dev/pool"
"""The class of Services of type LoadBalancer that get addresses of our pools, besides those without a class."""
NETWORK = "pods"
"""The Network of all pods."""
ROUTER = "pods"
"""The Router of all pods."""
HOSTS = "hosts"
"""The SecurityProfile that covers the attachments of nodes."""
HOST_DEVICE = "nl-host"
"""The device of a node in the Network of pods."""
LONGEST = 253
_DIGEST = 16


def joined(*parts: str) -> str:
    """Return a name made of parts; one that is too long ends with a digest of itself."""
    text = ".".join(parts)
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    return text[: LONGEST - _DIGEST - 1].rstrip("-.") + "-" + digest


def pod(namespace: str, name: str) -> str:
    """Return the name of the attachment of a pod."""
    return joined("pod", namespace, name)


def node(name: str) -> str:
    """Return the name of the attachment of a node."""
    return joined("node", name)


def pool(node_name: str) -> str:
    """Return the name of the PortPool of a node."""
    return joined("pool", node_name)


def slice_subnet(node_name: str, family: int) -> str:
    """Return the name of the Subnet of a node's pods; `family` is 4 or 6."""
    return joined(f"slice-v{family}", node_name)


def service(namespace: str, name: str, family: int, port: str = "") -> str:
    """Return the name of a LoadBalancer of a Service; with `port` that of ports with endpoints of their own."""
    return joined(f"service-v{family}", namespace, name, *((port,) if port else ()))


def policy(namespace: str, name: str, *, part: int = 1, port: str = "") -> str:
    """Return the name of a SecurityProfile of a NetworkPolicy.

    `part` counts those that one policy needs; `port` is the named port that this one is for, as `tcp-http-8080`.
    """
    return joined("-".join(filter(None, ("policy", str(part) if part > 1 else "", port))), namespace, name)


def cluster_policy(name: str, *, part: int = 1, alternative: int = 1) -> str:
    """Return the name of a SecurityProfile of a ClusterNetworkPolicy.

    `part` counts those that its rules need, `alternative` those that its subject needs.
    """
    numbers = f"-{part}-{alternative}" if alternative > 1 else f"-{part}" if part > 1 else ""
    return joined(f"cluster-policy{numbers}", name)


def port_name(protocol: str, name: str) -> str:
    """Return a named port as a part of names."""
    return f"{protocol.lower()}-{name}"


def port_label(protocol: str, name: str) -> str:
    """Return the key of the label with the number of a pod's named port."""
    return PORT + port_name(protocol, name)
