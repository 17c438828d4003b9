"""All checks that need a whole topology, as one function of a `Topology`: `check`.

The texts are those of the CyberRangeCZ platform where it has the check. A check ignores what the schema refuses (a
malformed address, an empty name): that is reported already. Warnings are about what the platform accepts and what is
probably a mistake. All of it takes linear time, but for the sorting of the networks.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from netloom.model.kinds.sandbox import BaseBox, SandboxLink, Topology, Wan
from netloom.model.values import addresses

NAME = r"^[a-z]([a-z0-9A-Z-])*$"
"""The pattern of names, as the platform writes it."""
MAN = "man"
"""The management node of every sandbox."""
MANAGEMENT = "192.168.128.0/17"
"""The management network of every sandbox."""
RESERVED_GROUPS = frozenset(
    (
        "all",
        "docker_hosts",
        "hidden_hosts",
        "hosts",
        "management",
        "monitored_hosts_icmp",
        "monitored_hosts_tcp",
        "routers",
        "ssh_nodes",
        "ungrouped",
        "user_accessible_nodes",
        "vpn_entrypoints",
        "windows_hosts",
        "winrm_nodes",
    )
)
"""The groups that the inventory of a sandbox has anyway, and those of Ansible itself."""
_NAME = re.compile(NAME[1:-1])
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*")


class Problem(Struct, frozen=True):
    """One thing that is wrong with one field."""

    path: str
    """The field below the topology: `net_mappings[2].ip`."""
    message: str
    is_warning: bool = False


class _Facts(Struct, frozen=True):
    """What several checks need to know."""

    topology: Topology
    hosts: set[str]
    routers: set[str]
    nodes: set[str]
    """Hosts and routers."""
    networks: dict[str, str]
    """The address block of each network."""
    links: dict[str, list[str]]
    """The networks of each host and router, in order."""
    mapped: set[tuple[str, str]]
    """Every host and router with each of its networks."""


def check(topology: Topology) -> list[Problem]:
    """Return every problem of a topology."""
    links: defaultdict[str, list[str]] = defaultdict(list)
    for one in topology.net_mappings:
        links[one.host].append(one.network)
    for other in topology.router_mappings:
        links[other.router].append(other.network)
    hosts, routers = {host.name for host in topology.hosts}, {router.name for router in topology.routers}
    networks = {network.name: network.cidr for network in topology.networks}
    facts = _Facts(topology, hosts, routers, hosts | routers, networks, links, _mapped(topology))
    return [problem for one in _CHECKS for problem in one(facts)]


def check_links(topology: Topology, links: Sequence[SandboxLink]) -> list[Problem]:
    """Return the problems of links whose quality a Sandbox sets; the paths are `links[2].host`."""
    wan = (topology.wan or Wan()).name
    mapped = _mapped(topology) | {(router.name, wan) for router in topology.routers}
    return [
        Problem(f"links[{i}]", f'"{link.host}" has no link to network "{link.network}": add a mapping, or remove it.')
        for i, link in enumerate(links)
        if (link.host, link.network) not in mapped
    ]


def _mapped(topology: Topology) -> set[tuple[str, str]]:
    routers = {(one.router, one.network) for one in topology.router_mappings}
    return routers | {(one.host, one.network) for one in topology.net_mappings}


def repeated(paths: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield path and value of each value that an earlier path has as well; empty values are ignored."""
    seen: set[str] = set()
    for path, value in paths:
        if value in seen:
            yield path, value
        elif value:
            seen.add(value)


def _names(facts: _Facts) -> Iterator[Problem]:
    topology = facts.topology
    paths = [("name", topology.name)]
    for kind in ("hosts", "routers", "networks"):
        paths += [(f"{kind}[{i}].name", one.name) for i, one in enumerate(getattr(topology, kind))]
    # The name of an absent wan is no fault of the wan.
    wan = [("wan.name", topology.wan.name)] if topology.wan is not None else []
    if topology.wan is None:
        paths.insert(1, ("", Wan().name))
    for path, name in repeated([*paths, *wan]):
        yield Problem(path, not_unique("name, hosts, routers, networks, wan", name))
    for path, name in paths[1:]:
        if name == MAN:
            yield Problem(path, f'The name "{MAN}" is that of the management node: choose another one.')


def not_unique(where: str, name: str) -> str:
    """Return the platform's text for a name that is not unique."""
    return (
        f"Uniqueness violation. The following name identifiers are not unique within the [{where}] definition: "
        f"['{name}']."
    )


def _base_boxes(facts: _Facts) -> Iterator[Problem]:
    for kind in ("hosts", "routers"):
        for i, one in enumerate(getattr(facts.topology, kind)):
            if one.base_box is not None:
                yield from _base_box(f"{kind}[{i}].base_box", one.base_box)


def _base_box(path: str, box: BaseBox) -> Iterator[Problem]:
    for old, new in (("man_user", "mgmt_user"), ("mng_protocol", "mgmt_protocol")):
        if not getattr(box, old):
            continue
        if getattr(box, new):
            yield Problem(f"{path}.{old}", f'Both "{new}" and "{old}", its deprecated name, are set: remove "{old}".')
        else:
            yield Problem(f"{path}.{old}", f'"{old}" is deprecated: use "{new}".', is_warning=True)
    # The user is a variable of the Ansible inventory, which is a template, and a word in the SSH config.
    for key in ("mgmt_user", "man_user"):
        name = getattr(box, key)
        if name and not _USER.fullmatch(name):
            message = f'"{name:.100}" is not a user name: use letters, digits, ".", "_", "-" and "@".'
            yield Problem(f"{path}.{key}", message)


def _mappings(facts: _Facts) -> Iterator[Problem]:
    topology = facts.topology
    hosts = [(one.host, one.network, one.ip) for one in topology.net_mappings]
    routers = [(one.router, one.network, one.ip) for one in topology.router_mappings]
    yield from _mappings_of("net_mappings", "network", "host", facts.hosts, hosts, facts.networks)
    yield from _mappings_of("router_mappings", "router", "router", facts.routers, routers, facts.networks)
    ips = [(f"net_mappings[{i}].ip", _canonical(ip)) for i, (_, _, ip) in enumerate(hosts)]
    ips += [(f"router_mappings[{i}].ip", _canonical(ip)) for i, (_, _, ip) in enumerate(routers)]
    for path, ip in repeated(ips):
        yield Problem(
            path,
            "Uniqueness violation. The IP address of either of mappings must be unique. "
            f"Incorrect IP addresses: ['{ip}'].",
        )


def _mappings_of(
    field: str,
    word: str,
    owner: str,
    owners: set[str],
    mappings: Sequence[tuple[str, str, str]],
    networks: dict[str, str],
) -> Iterator[Problem]:
    seen = set()
    for i, (name, network, ip) in enumerate(mappings):
        unknown = f'Invalid {word} mapping with ip "{ip}". Cannot find'
        if _is_missing(name, owners):
            yield Problem(f"{field}[{i}].{owner}", f'{unknown} {owner} with name "{name}".')
        if _is_missing(network, networks):
            yield Problem(f"{field}[{i}].network", f'{unknown} network with name "{network}".')
        cidr = networks.get(network, "")
        if cidr and addresses.is_ip(ip) and addresses.is_block(cidr) and not is_host(ip, cidr):
            message = f'IP address "{ip}" is not valid host address of "{cidr}" defined in network "{network}".'
            yield Problem(f"{field}[{i}].ip", message)
        if name and network and (name, network) in seen:
            message = f'The {owner} "{name}" is mapped to network "{network}" twice: remove one of the mappings.'
            yield Problem(f"{field}[{i}]", message)
        seen.add((name, network))


def _is_missing(name: str, known: Collection[str]) -> bool:
    """Whether nothing has this name; not if something has lost its name, which may have been this one."""
    return bool(name) and name not in known and "" not in known


def is_host(ip: str, cidr: str) -> bool:
    """Whether an address is inside a block, and neither its network address nor its broadcast address."""
    if not addresses.within(ip, cidr):
        return False
    block, address = addresses.block(cidr), addresses.address(ip)
    if block.max_prefixlen - block.prefixlen < 2:
        return True
    return address != block.network_address and (block.version == 6 or address != block.broadcast_address)


def _canonical(ip: str) -> str:
    return str(addresses.address(ip)) if addresses.is_ip(ip) else ""


def _overlaps(facts: _Facts) -> Iterator[Problem]:
    wan = facts.topology.wan or Wan()
    named = [(-1, wan.name, wan.cidr)]
    named += [(i, network.name, network.cidr) for i, network in enumerate(facts.topology.networks)]
    blocks = [(addresses.block(cidr), i, name) for i, name, cidr in named if addresses.is_block(cidr)]
    blocks.sort(key=lambda found: (found[0].version, int(found[0].network_address), found[0].prefixlen))
    # Two blocks overlap only if one contains the other, so it is enough to compare with the last one that contains.
    outer = None
    for block, i, name in blocks:
        if outer is not None and outer[0].version == block.version and block.network_address in outer[0]:
            (_, first_name), (last, last_name) = sorted([(outer[1], outer[2]), (i, name)])
            message = f'Network "{last_name}" overlaps with network "{first_name}".'
            yield Problem(f"networks[{last}].cidr", message)
        else:
            outer = (block, i, name)
    management = addresses.block(MANAGEMENT)
    for block, i, name in blocks:
        if block.version == 4 and block.overlaps(management):
            path = f"networks[{i}].cidr" if i >= 0 else "wan.cidr"
            message = f'Network "{name}" overlaps with the management network {MANAGEMENT}: choose another cidr.'
            yield Problem(path, message, is_warning=True)


def _wan(facts: _Facts) -> Iterator[Problem]:
    wan = facts.topology.wan
    if wan is None or not addresses.is_block(wan.cidr):
        return
    block, needed = addresses.block(wan.cidr), len(facts.topology.routers) + 1
    room = block.num_addresses - 2
    if room < needed:
        message = (
            f'The wan "{wan.cidr}" has {max(room, 0)} host addresses; the routers and the management node need '
            f"{needed}: choose a larger block."
        )
        yield Problem("wan.cidr", message)


def _reachable(facts: _Facts) -> Iterator[Problem]:
    """Yield warnings for machines without networks, and networks without machines or router, or with several."""
    topology = facts.topology
    for kind, word in (("hosts", "host"), ("routers", "router")):
        mappings = "net_mappings" if kind == "hosts" else "router_mappings"
        for i, one in enumerate(getattr(topology, kind)):
            if one.name and not facts.links.get(one.name):
                message = f'The {word} "{one.name}" is in no network: add it to {mappings}.'
                yield Problem(f"{kind}[{i}].name", message, is_warning=True)
    used = {one.network for one in topology.net_mappings}
    routers = Counter(one.network for one in topology.router_mappings)
    for i, network in enumerate(topology.networks):
        number = routers[network.name]
        if network.name not in used and not number:
            message = f'The network "{network.name}" has no mappings: add some, or remove it.'
        elif not number:
            message = f'The network "{network.name}" cannot be reached from any router: add it to router_mappings.'
        elif number > 1 and network.name in used:
            message = (
                f'The network "{network.name}" has {number} routers: the first one by name is the gateway of its hosts.'
            )
        else:
            continue
        if network.name:
            yield Problem(f"networks[{i}].name", message, is_warning=True)


def _groups(facts: _Facts) -> Iterator[Problem]:
    groups = facts.topology.groups
    for path, name in repeated((f"groups[{i}].name", group.name) for i, group in enumerate(groups)):
        yield Problem(path, not_unique("groups", name))
    for i, group in enumerate(groups):
        if group.name in RESERVED_GROUPS:
            message = f'Invalid group with name "{group.name}". The name is reserved: choose another one.'
            yield Problem(f"groups[{i}].name", message)
        elif group.name and not _NAME.fullmatch(group.name):
            yield Problem(f"groups[{i}].name", bad_name("Group", group.name))
        for j, node in enumerate(group.nodes):
            if _is_missing(node, facts.nodes):
                message = (
                    f'Invalid group with name "{group.name}". Cannot find a node (host or router) with name "{node}".'
                )
                yield Problem(f"groups[{i}].nodes[{j}]", message)
        for path, node in repeated((f"groups[{i}].nodes[{j}]", node) for j, node in enumerate(group.nodes)):
            yield Problem(path, not_unique("Group.nodes", node))


def bad_name(kind: str, name: str) -> str:
    """Return the platform's text for a name that it does not accept."""
    return f'Cannot set {kind}.name to "{name:.100}". It does not match regex "{NAME}".'


def _monitoring(facts: _Facts) -> Iterator[Problem]:
    monitoring = facts.topology.monitoring_targets
    if monitoring is None:
        return
    for kind, label, article in (("tcp", "TCP", "A"), ("icmp", "ICMP", "An")):
        path, machines = f"monitoring_targets.{kind}", getattr(monitoring, kind)
        for i, one in enumerate(machines):
            if _is_missing(one.node, facts.nodes):
                message = f'Invalid node name in {label} MonitoringTarget.node. No node with name "{one.node}" found.'
                yield Problem(f"{path}[{i}].node", message)
            for j, target in enumerate(one.targets):
                yield from _target(f"{path}[{i}].targets[{j}]", f"{article} {label} target", target)
        for where, node in repeated((f"{path}[{i}].node", one.node) for i, one in enumerate(machines)):
            message = f'Duplicate node name "{node}" in MonitoringTarget.node. Only define each target once.'
            yield Problem(where, message)
    for i, page in enumerate(monitoring.http.targets if monitoring.http else ()):
        if not _is_url(page.url):
            message = f'HTTP target url "{page.url:.100}" is not a valid http/https URL.'
            yield Problem(f"monitoring_targets.http.targets[{i}].url", message)


def _target(path: str, what: str, target: object) -> Iterator[Problem]:
    interface, address = getattr(target, "interface", ""), getattr(target, "address", "")
    only = f'{what} must specify exactly one of "interface" or "address"'
    if interface and address:
        yield Problem(path, f"{only}, not both.")
    elif not interface and not address:
        yield Problem(path, f"{only}.")
    if address and not addresses.is_ip(address) and not addresses.is_block(address):
        message = f'"{address:.100}" is not an address or an address block, such as 10.0.0.1 or 10.0.0.0/24.'
        yield Problem(f"{path}.address", message)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _vpn(facts: _Facts) -> Iterator[Problem]:
    vpn = facts.topology.vpn
    if vpn is None:
        return
    for i, one in enumerate(vpn.entrypoints):
        if _is_missing(one.name, facts.nodes):
            message = f'Invalid VPN entrypoint. Cannot find a node (host or router) with name "{one.name}".'
            yield Problem(f"vpn.entrypoints[{i}].name", message)
        for j, route in enumerate(one.routes):
            if not addresses.is_block(route):
                message = f'"{route:.100}" is not an address block with no host bits set, such as 10.0.0.0/24.'
                yield Problem(f"vpn.entrypoints[{i}].routes[{j}]", message)
    for path, name in repeated((f"vpn.entrypoints[{i}].name", one.name) for i, one in enumerate(vpn.entrypoints)):
        yield Problem(path, not_unique("vpn.entrypoints", name))
    if vpn.dns is not None and not vpn.dns.servers:
        yield Problem("vpn.dns", "The VPN's DNS has no servers: add one, or remove dns.")
    for i, server in enumerate(vpn.dns.servers if vpn.dns else ()):
        if not addresses.is_ip(server):
            yield Problem(f"vpn.dns.servers[{i}]", f'"{server:.100}" is not an address, such as 10.0.0.1.')


def _forwarding(facts: _Facts) -> Iterator[Problem]:
    forwarding = facts.topology.network_forwarding
    if forwarding is None:
        return
    prefix, destination = "network_forwarding", forwarding.destination
    if not forwarding.sources:
        yield Problem(prefix, "Network forwarding has no sources: add one, or remove network_forwarding.")
    seen = set()
    for i, source in enumerate(forwarding.sources):
        path, link = f"{prefix}.sources[{i}]", (source.host, source.network)
        if _is_missing(source.host, facts.nodes):
            yield Problem(f"{path}.host", f'Cannot find a node (host or router) with name "{source.host}".')
        elif source.host and source.network and link not in facts.mapped:
            yield Problem(f"{path}.network", f'"{source.host}" has no link to network "{source.network}".')
        if source == destination and source.host:
            yield Problem(path, "A source of network forwarding must not be its destination.")
        if link in seen:
            yield Problem(path, f'"{source.host}" in network "{source.network}" is a source twice: remove one.')
        seen.add(link)
    if not destination.host or not destination.network:
        return
    links, path = facts.links.get(destination.host, []), f"{prefix}.destination"
    if _is_missing(destination.host, facts.hosts):
        yield Problem(f"{path}.host", f'Cannot find host with name "{destination.host}".')
    elif len(links) < 2:
        message = f'The destination "{destination.host}" must have at least two interfaces: add one to net_mappings.'
        yield Problem(f"{path}.host", message)
    elif destination.network not in links:
        yield Problem(f"{path}.network", f'"{destination.host}" has no link to network "{destination.network}".')
    elif destination.network == links[0]:
        message = f'The destination must not be the first interface of "{destination.host}": choose another network.'
        yield Problem(f"{path}.network", message)


def _roles(facts: _Facts) -> Iterator[Problem]:
    topology = facts.topology
    known = set(topology.roles)
    for path, role in repeated((f"roles[{i}]", role) for i, role in enumerate(topology.roles)):
        yield Problem(path, not_unique("roles", role))
    if not known:
        return
    for kind, field in (("hosts", "visible_by_roles"), ("networks", "accessible_by_roles")):
        for i, one in enumerate(getattr(topology, kind)):
            for j, role in enumerate(getattr(one, field)):
                if role not in known:
                    yield Problem(
                        f"{kind}[{i}].{field}[{j}]", f'Cannot find role with name "{role:.100}": add it to roles.'
                    )


_CHECKS: tuple[Callable[[_Facts], Iterator[Problem]], ...] = (
    _names,
    _base_boxes,
    _wan,
    _overlaps,
    _mappings,
    _groups,
    _monitoring,
    _vpn,
    _forwarding,
    _roles,
    _reachable,
)
