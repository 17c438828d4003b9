"""Names in OVN and on the nodes.  Pure, and defined here only: agents and controllers must agree.

Names are readable, because people see them in ovn-nbctl: an attachment's port is `NAMESPACE/NAME`. A colon, which no
resource's name can contain, marks the ports that Netloom creates for itself. Names in match expressions cannot contain
a slash, so port groups and address sets have a digest as name.
"""

import re
from hashlib import blake2s

BRIDGE = "br-nl"
LONGEST_VNI = 8
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


def remote_vtep(address: str, vni: int) -> str:
    """Return the name of a remote VTEP's logical port, and of the VXLAN port on the gateway's switch."""
    return f"vxlan_{address}_{vni}"


def bridge(vni: int) -> str:
    """Return the name of the bridge of a linux Network, on each node that has a port of it: at most 13 characters."""
    return f"{BRIDGE}{vni}"


def vni_of_bridge(name: str) -> int | None:
    """Return the VNI of the linux Network that a bridge has its name from; None: it has another name."""
    number = name.removeprefix(BRIDGE)
    return int(number) if name != number and number.isdecimal() and len(number) <= LONGEST_VNI else None


def bridge_tunnel(vni: int, address: str) -> str:
    """Return the name of the VXLAN port of a linux Network to another node."""
    return f"nlx_{vni}_{address}"


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


def mirror_key(namespace: str, mirror: str, node: str) -> int:
    """Return the GRE key of a Mirror's copies from a node."""
    return int.from_bytes(blake2s(f"{namespace}/{mirror}/{node}".encode(), digest_size=4).digest(), "big")


def mirror_tunnel(key: int) -> str:
    """Return the name of the GRE port with this key, on both nodes."""
    return f"mirror_{key:08x}"


def interface(mac: str) -> str:
    """Return the name of an attachment's device on its node: 14 characters of the 15 the kernel allows."""
    return "nl" + mac.replace(":", "")


def inner(mac: str) -> str:
    """Return the generated name of the inner end of an attachment's pair, which may be beside the outer one."""
    return "ni" + mac.replace(":", "")


def relay(mac: str) -> tuple[str, str]:
    """Return the names of the pair behind a relay on an attachment's device: its end on the switch, and the relay's."""
    return "nr" + mac.replace(":", ""), "np" + mac.replace(":", "")


def relayed(device: str) -> str:
    """Return the attachment's device behind the switch's end of a relay; "" if `device` is none."""
    return "nl" + device[2:] if _RELAY.fullmatch(device) else ""


_RELAY = re.compile("nr[0-9a-f]{12}")
