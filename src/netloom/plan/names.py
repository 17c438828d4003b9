"""Names in OVN and on the nodes.  Pure, and defined here only: agents and controllers must agree.

Names are readable, because people see them in ovn-nbctl: an attachment's port is `NAMESPACE/NAME`. A colon, which no
resource's name can contain, marks the ports that Netloom creates for itself. Names in match expressions cannot contain
a slash, so port groups and address sets have a digest as name.
"""

from hashlib import blake2s

OWNER = "netloom"
"""The owner of our rows in OVN, unless configured otherwise."""


def switch(namespace: str, network: str) -> str:
    """Return the name of a Network's logical switch."""
    return f"{namespace}/{network}"


def port(namespace: str, attachment: str) -> str:
    """Return the name of an attachment's logical port, which is also its interface's `iface-id`."""
    return f"{namespace}/{attachment}"


def localnet(namespace: str, network: str) -> str:
    """Return the name of the port that joins a Network to a physical network."""
    return f"{namespace}/{network}:localnet"


def router(namespace: str, name: str) -> str:
    """Return the name of a Router's logical router."""
    return f"{namespace}/{name}"


def router_port(namespace: str, name: str, network: str) -> str:
    """Return the name of a Router's port in a Network, on the router."""
    return f"{namespace}/{name}:{network}"


def peer_port(namespace: str, name: str, network: str) -> str:
    """Return the name of a Router's port in a Network, on the switch: the peer port."""
    return f"{namespace}/{name}:{network}:plug"


def symbol(kind: str, *parts: str) -> str:
    """Return a name that match expressions can use as `$NAME` and `@NAME`: the kind and a digest of the parts."""
    digest = blake2s("\0".join(parts).encode(), digest_size=8).hexdigest()
    return f"nl_{kind}_{digest}"


def interface(mac: str) -> str:
    """Return the name of an attachment's device on its node: 14 characters of the 15 the kernel allows."""
    return "nl" + mac.replace(":", "")
