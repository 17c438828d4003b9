"""What other programs read of a sandbox: the front end's topology, an Ansible inventory, an SSH config.

Without the links of a sandbox that runs, they describe it before it runs: MAC addresses are not known then. Keys and
the address of the management node outside are left out.
"""

from collections.abc import Mapping

from netloom.errors import BadRequest
from netloom.model.document import Document
from netloom.model.kinds.sandbox import BaseBox, Topology, TopologyHost, TopologyRouter
from netloom.model.topology.checks import MAN, MANAGEMENT
from netloom.model.topology.containers import Containers
from netloom.model.topology.instance import Instance, Known, instance, is_windows
from netloom.model.values import addresses

SYSLOG_PORT = 515
"""Where the management node receives logs."""
_WINRM = {
    "ansible_connection": "psrp",
    "ansible_psrp_auth": "certificate",
    "ansible_psrp_cert_validation": "ignore",
}


def front_end(topology: Topology) -> Document:
    """Return the topology as the front end shows it: routers, their networks, and the hosts; nothing hidden."""
    made = instance(topology)
    hosts: dict[str, list[TopologyHost]] = {}
    by_name = {host.name: host for host in topology.hosts if not host.hidden}
    for one in topology.net_mappings:
        if one.host in by_name:
            hosts.setdefault(one.network, []).append(by_name[one.host])
    subnets: dict[str, list[Document]] = {}
    for network in topology.networks:
        router = made.gateways.get(network.name)
        if network.hidden or router is None:
            continue
        shown = [_shown(made, host, network.name) for host in hosts.get(network.name, ())]
        subnets.setdefault(router, []).append({"name": network.name, "cidr": network.cidr, "hosts": shown})
    return {
        "routers": [
            _shown(made, router, made.first[router.name].network if router.name in made.first else "")
            | {"subnets": subnets.get(router.name, [])}
            for router in topology.routers
            if not router.hidden
        ]
    }


def _shown(made: Instance, node: TopologyHost | TopologyRouter, network: str) -> Document:
    return {
        "name": node.name,
        "os_type": "windows" if is_windows(node.base_box) else "linux",
        "gui_access": False,
        "is_accessible": node.name in made.accessible,
        "ip": made.addresses.get((node.name, network), ""),
    }


def links(topology: Topology, known: Mapping[str, Known] | None = None) -> Document:
    """Return all links by the platform's numbers, and known ones that are the platform's own, as of DHCP servers."""
    found = {link.name: Known(link.ip, link.mac) for link in instance(topology, known).links}
    blocks = [addresses.block(network.cidr) for network in topology.networks]
    for name, link in (known or {}).items():
        if name in found:
            continue
        if not any(addresses.address(link.ip) in block for block in blocks):
            raise BadRequest(f"{name}: no network has {link.ip}: the links are of another topology")
        found[name] = link
    return {name: {"ip": link.ip} | ({"mac": link.mac} if link.mac else {}) for name, link in found.items()}


def inventory(
    topology: Topology, containers: Containers | None = None, known: Mapping[str, Known] | None = None
) -> Document:
    """Return the Ansible inventory."""
    made = instance(topology, known)
    hosts: Document = {}
    for node in made.nodes():
        hosts[node.name] = {"ansible_host": made.management_ip(node.name), "ansible_user": user(node.base_box)}
        if node.name in made.first:
            hosts[node.name]["user_network_ip"] = made.first[node.name].ip
    for router in topology.routers:
        hosts[router.name] |= {"interfaces": [_interface(made, router.name, made.wan_ip(MAN), [])], "ip_forward": True}
    hosts[MAN] = {
        "ansible_host": made.management_ip(MAN),
        "ansible_user": user(None),
        "interfaces": [_interface(made, MAN, "", _routes(made))],
        "ip_forward": True,
    }
    variables = {
        "global_sandbox_man_cidr": MANAGEMENT,
        "global_sandbox_name": topology.name,
        "global_syslog_destination_port": SYSLOG_PORT,
    }
    return {"all": {"hosts": dict(sorted(hosts.items())), "children": _groups(made, containers), "vars": variables}}


def _interface(made: Instance, node: str, gateway: str, routes: list[Document]) -> Document:
    mac = made.wan_mac(node)
    return {"def_gw_ip": gateway, **({"mac": mac} if mac else {}), "routes": routes}


def user(box: BaseBox | None) -> str:
    """Return the management user of a machine."""
    return box.mgmt_user if box is not None and box.mgmt_user else "debian"


def _routes(made: Instance) -> list[Document]:
    """Return the routes of the management node: each network is behind its router."""
    found = []
    for network in made.topology.networks:
        if network.name in made.gateways:
            block = addresses.block(network.cidr)
            gateway = made.wan_ip(made.gateways[network.name])
            found.append({"gw": gateway, "mask": str(block.netmask), "net": str(block.network_address)})
    return found


def _groups(made: Instance, containers: Containers | None) -> Document:
    topology = made.topology
    winrm = [node.name for node in made.nodes() if node.base_box and node.base_box.mgmt_protocol.upper() == "WINRM"]
    monitoring, vpn = topology.monitoring_targets, topology.vpn
    groups: dict[str, list[str]] = {
        **{group.name: list(group.nodes) for group in topology.groups},
        "docker_hosts": [one.host for one in containers.container_mappings] if containers else [],
        "hidden_hosts": [host.name for host in topology.hosts if host.hidden],
        "hosts": [host.name for host in topology.hosts],
        "management": [MAN],
        "monitored_hosts_icmp": [one.node for one in monitoring.icmp] if monitoring else [],
        "monitored_hosts_tcp": [one.node for one in monitoring.tcp] if monitoring else [],
        "routers": [router.name for router in topology.routers],
        "ssh_nodes": list({node.name for node in made.nodes()} - set(winrm)),
        "user_accessible_nodes": list(made.accessible),
        "vpn_entrypoints": [one.name for one in vpn.entrypoints] if vpn else [],
        "windows_hosts": [host.name for host in topology.hosts if is_windows(host.base_box)],
        "winrm_nodes": winrm,
    }
    found: Document = {name: {"hosts": dict.fromkeys(sorted(nodes))} for name, nodes in sorted(groups.items()) if nodes}
    if "windows_hosts" in found:
        found["windows_hosts"]["vars"] = {"ansible_shell_type": "powershell"}
    if "winrm_nodes" in found:
        found["winrm_nodes"]["vars"] = _WINRM
    return found


def ssh_config(topology: Topology, known: Mapping[str, Known] | None = None) -> str:
    """Return an SSH config that reaches all machines through the management node."""
    made = instance(topology, known)
    machines = [
        _block(node.name, made.management_ip(node.name), user(node.base_box), jump=MAN) for node in made.nodes()
    ]
    return "\n".join([_block(MAN, made.management_ip(MAN), user(None)), *machines])


def _block(name: str, address: str, login: str, *, jump: str = "") -> str:
    # A user is any text of the file: it must not end its line, nor its quotes.
    login = "".join(character for character in login if character.isprintable() and character not in '"\\')
    login = f'"{login}"' if " " in login else login
    lines = [f"Host {name}", f"    HostName {address}", f"    User {login}"]
    return "\n".join([*lines, *([f"    ProxyJump {jump}"] if jump else []), ""])
