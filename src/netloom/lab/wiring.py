"""Namespaces and the cables between them.

No device is ever made in the machine's own namespace: both ends of a cable are created where they belong. A namespace's
devices are removed with it, so removing the namespaces removes everything made here.
"""

import subprocess
from collections.abc import Iterable, Sequence

from netloom.errors import Internal
from netloom.lab.daemons.entering import NETNS
from netloom.lab.kube.places import PLACE as KUBE
from netloom.lab.kube.places import pod_cidrs
from netloom.lab.layout import (
    CENTRAL_BITS,
    MANAGEMENT_BITS,
    OUTSIDE_ADDRESSES,
    PHYSICAL_NETWORK,
    ROUTER,
    SITE_BITS,
    WORLD_ADDRESSES,
    Layout,
    prefix,
    router_ip,
)
from netloom.lab.state import identity


def build(layout: Layout) -> None:
    """Make all namespaces and cables of a lab."""
    for place in layout.places:
        run(["ip", "netns", "add", layout.netns(place)])
    if "underlay" in layout.places:
        _batch(layout.netns("underlay"), _underlay(layout))
    for place in layout.places:
        _batch(layout.netns(place), _inside(layout, place))
        _no_offload(layout.netns(place), _devices(layout, place))
    for place in ("outside", ROUTER, *(layout.nodes if layout.state.kube else ())):
        if place in layout.places:
            _forward(layout.netns(place))
    if layout.state.site:
        _join(layout, layout.state.site)


def _join(layout: Layout, number: int) -> None:
    """Connect a site's underlay to the router between the sites."""
    router, underlay, device = (
        prefix(identity(layout.folder.parent)) + ROUTER,
        layout.netns("underlay"),
        f"site{number}",
    )
    # The kernel removes the cable of an earlier time some moments after the namespace at its other end: maybe just now.
    if _has(router, device):
        try:
            _batch(router, [f"link delete dev {device}"])
        except Internal:
            if _has(router, device):
                raise
    _batch(
        router,
        (
            f"link add name {device} type veth peer name {ROUTER} netns {underlay}",
            f"address add {router_ip(number)}/{SITE_BITS} dev {device}",
            f"link set dev {device} addrgenmode none up",
        ),
    )
    _batch(underlay, [f"link set dev {ROUTER} master underlay addrgenmode none up"])
    _no_offload(router, [device])
    _no_offload(underlay, [ROUTER])


def _has(netns: str, device: str) -> bool:
    links = run(["ip", "-n", netns, "-oneline", "link", "show"]).splitlines()
    return device in (line.split(":")[1].strip().partition("@")[0] for line in links)


def bare(netns: str) -> None:
    """Make a namespace with only a loopback."""
    run(["ip", "netns", "add", netns])
    run(["ip", "-n", netns, "link", "set", "dev", "lo", "up"])


def set_cables(layout: Layout, node: str, *, connected: bool) -> None:
    """Set a host's cables up or down, at their far ends."""
    word = "up" if connected else "down"
    far = [node, *([f"{node}-ex"] if layout.state.outside else []), *([f"{node}-mg"] if layout.secure else [])]
    _batch(layout.netns("underlay"), (f"link set dev {device} {word}" for device in far))


def remove_namespaces(lab_id: str) -> None:
    """Remove all namespaces of a lab."""
    for name in namespaces(lab_id):
        try:
            run(["ip", "netns", "delete", name])
        except Internal:
            # Another process may have removed the same leftovers meanwhile.
            if (NETNS / name).exists():
                raise


def namespaces(lab_id: str) -> list[str]:
    """Return the existing namespaces of a lab."""
    if not NETNS.is_dir():
        return []
    return sorted(path.name for path in NETNS.iterdir() if path.name.startswith(prefix(lab_id)))


def run(argv: Sequence[str], *, stdin: str = "") -> str:
    """Run a command and return its output; raise its error output if it fails."""
    try:
        ended = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        raise Internal(f"timed out: {' '.join(argv)}") from None
    if ended.returncode:
        said = ended.stderr.strip() or ended.stdout.strip() or f"exit status {ended.returncode}"
        raise Internal(f"{' '.join(argv)}: {said}")
    return ended.stdout


def _underlay(layout: Layout) -> Iterable[str]:
    """Yield the commands, in the underlay's namespace, that make the bridges and the cables to all other places."""
    cables = [("underlay", node, "uplink", node) for node in layout.nodes]
    if layout.state.kube:
        cables.append(("underlay", KUBE, "eth0", KUBE))
    if layout.state.outside:
        cables += [(PHYSICAL_NETWORK, f"{node}-ex", "ex0", node) for node in layout.nodes]
        cables += [(PHYSICAL_NETWORK, "outside", "eth0", "outside")]
    if layout.secure:
        cables += [("management", f"{place}-mg", "mgmt0", place) for place in (*layout.nodes, *layout.centrals)]
    if layout.secure and layout.state.ovn > 1:
        cables += [("central", f"{place}-in", "central0", place) for place in layout.centrals]
    for bridge in dict.fromkeys(bridge for bridge, *_ in cables):
        # The underlay has no address and sends nothing of its own, not even IPv6 router solicitations.
        yield f"link add name {bridge} type bridge forward_delay 0 mcast_snooping 0"
        yield f"link set dev {bridge} addrgenmode none up"
    for bridge, near, far, place in cables:
        yield f"link add name {near} type veth peer name {far} netns {layout.netns(place)}"
        yield f"link set dev {near} master {bridge} addrgenmode none up"
        if bridge == "management" and place in layout.nodes:
            yield f"link set dev {near} type bridge_slave isolated on"  # Nodes reach only the central here.


def _inside(layout: Layout, place: str) -> Iterable[str]:
    yield "link set dev lo up"
    if place in layout.nodes:
        for device in _cables(layout, place):
            # The switch answers ARP for the node's addresses, which are on its bridges; the kernel must not answer here
            # too.
            yield f"link set dev {device} addrgenmode none arp off up"
    if layout.secure and place in (*layout.nodes, *layout.centrals):
        yield "link set dev mgmt0 addrgenmode none up"
        yield f"address add {layout.management_ip(place)}/{MANAGEMENT_BITS} dev mgmt0"
    if layout.secure and layout.state.ovn > 1 and place in layout.centrals:
        yield from _central_network(layout, place)
    if place == KUBE:
        yield "link set dev eth0 addrgenmode none up"
        yield f"address add {layout.kube_ip}/{layout.underlay_bits} dev eth0"
        for node in layout.nodes:
            yield f"route add {pod_cidrs(node)[0]} via {layout.underlay_ip(node)}"
    if place == "outside":
        yield "link set dev eth0 up"
        for address in OUTSIDE_ADDRESSES:
            yield f"address add {address} dev eth0 {'nodad' if ':' in address else ''}"
        for address in WORLD_ADDRESSES:
            yield f"address add {address} dev lo"


def _central_network(layout: Layout, place: str) -> Iterable[str]:
    """Yield the commands that connect the servers of a cluster by their own network.

    Linux accepts a packet for any of its addresses on any device. To keep nodes from reaching these addresses through
    the management network, packets from there are dropped before the table of local addresses is consulted.
    """
    address = layout.central_ip(place)
    yield "link set dev central0 addrgenmode none up"
    yield f"address add {address}/{CENTRAL_BITS} dev central0"
    yield "rule add pref 10 table local"
    yield "rule delete pref 0 table local"
    yield f"rule add pref 5 iif mgmt0 to {address} blackhole"


def _cables(layout: Layout, place: str) -> list[str]:
    if place in layout.nodes:
        return ["uplink", *(["ex0"] if layout.state.outside else [])]
    return ["eth0"] if place in ("outside", KUBE) else []


def _devices(layout: Layout, place: str) -> list[str]:
    """Return the devices of a place that carry packets of a userspace switch."""
    if place != "underlay":
        return _cables(layout, place)
    outside = [*(f"{node}-ex" for node in layout.nodes), "outside", PHYSICAL_NETWORK] if layout.state.outside else []
    kube = [KUBE] if layout.state.kube else []
    return [*layout.nodes, "underlay", *kube, *outside]


def _no_offload(netns: str, devices: Iterable[str]) -> None:
    """Disable checksum offload: a userspace switch forwards packets as they are.

    With offload, ping works and TCP stalls.
    """
    for device in devices:
        run(["nsenter", f"--net={NETNS / netns}", "--", "ethtool", "-K", device, "tx", "off"])


def _forward(netns: str) -> None:
    """Enable routing."""
    for name in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
        run(["nsenter", f"--net={NETNS / netns}", "--", "sysctl", "-q", "-w", f"{name}=1"])


def _batch(netns: str, commands: Iterable[str]) -> None:
    run(["ip", "-n", netns, "-batch", "-"], stdin="".join(f"{command}\n" for command in commands))
