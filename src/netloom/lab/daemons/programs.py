"""The processes of a lab: for each its command, its place, its dependencies, and its readiness.

Pure: from a layout to a list. The supervisor starts them in the order of their dependencies and runs `after` whenever
one was started: a userspace switch removes its devices when it dies, so its address must be set again.
"""

import sys
from ipaddress import IPv4Address

import msgspec

from netloom.lab.daemons.program import Program
from netloom.lab.kube import network
from netloom.lab.kube import programs as kube
from netloom.lab.kube.places import Places
from netloom.lab.layout import (
    NORTHBOUND_PORT,
    OUTSIDE_ADDRESSES,
    PHYSICAL_NETWORK,
    SOUTHBOUND_PORT,
    UNDERLAY_BITS,
    UNDERLAY_NET,
    Layout,
    router_ip,
    suffix,
)
from netloom.lab.pki import Files

NETLOOM = (sys.executable, "-m", "netloom.cli.main")
_CAPABILITIES = "--bounding-set=-all,+net_admin,+sys_admin,+net_bind_service,+net_raw"
AGENTS_PRIVILEGES = ("setpriv", _CAPABILITIES, "--no-new-privs", "--")
"""A lab's agents run with the capabilities in deploy/, so that labs show whether these are enough; and with NET_RAW, so
that they impair links in userspace."""
BGPD = "/usr/lib/frr/bgpd"
QUIET = ("-vconsole:info", "-vsyslog:off", "-vfile:off")
RAFT_PORTS = {"nb": 6643, "sb": 6644}
SECONDS_TO_CONFIGURE = "--timeout=30"
BFD = {"bfd-min-rx": 300, "bfd-min-tx": 300, "bfd-mult": 4}
"""How nodes monitor each other over the tunnels: milliseconds, and the detection multiplier."""


GRANTS = (
    *("--netns-folders", "*=/run/netns"),
    *("--internal-routes", "*=0.0.0.0/0,*=::/0"),
    *("--internal-names", "*=*"),
    *("--existing-devices", "*=*:used"),
    *("--speaker-namespaces", "*"),
)
"""The grants of a lab's nodes: everything to every namespace. They belong to the lab only."""


def programs(layout: Layout) -> list[Program]:
    """Return all processes of the lab except the supervisor, which starts them."""
    if layout.state.sites:
        reflector = _reflector(layout)
        return [*reflector, *(_keeper(layout) if reflector else [])]
    nodes = [program for node in layout.nodes for program in _node(layout, node)]
    numbers = range(1, layout.state.ovn + 1)
    servers = [_database(layout, database, number) for database in ("nb", "sb") for number in numbers]
    northds = [_northd(layout, number) for number in numbers]
    return [_control_plane(layout), *kube.programs(layout), *servers, *northds, *nodes, *_keeper(layout)]


def environment(layout: Layout, place: str) -> dict[str, str]:
    """Return the environment in which the tools of OVS and OVN find the daemons of a place."""
    own = layout.node(place) if place in layout.nodes else layout.ovn
    found = {"OVS_RUNDIR": str(own), "OVN_RUNDIR": str(own), "KUBECONFIG": str(layout.kubeconfig)}
    if layout.state.kube:
        found |= kube.environment(layout, place)
    if layout.state.ovn:
        found |= {"OVN_NB_DB": layout.remotes("nb"), "OVN_SB_DB": layout.remotes("sb")}
    return found


def _control_plane(layout: Layout) -> Program:
    name = "controller" if layout.on_cluster else "serve"
    listen = "" if layout.on_cluster else f"127.0.0.1:{layout.state.port}"
    if layout.on_cluster:
        argv = [*NETLOOM, name, "--kubeconfig", str(layout.controller_kubeconfig)]
    else:
        argv = [*NETLOOM, name, "--data", str(layout.folder), "--listen", listen]
    if layout.state.ovn:
        argv += ["--ovn-nb", layout.controller_remotes("nb"), "--ovn-sb", layout.controller_remotes("sb")]
    if layout.secure:
        own = Files.of_central(layout, "netloom")
        argv += ["--ovn-key", str(own.key), "--ovn-cert", str(own.certificate), "--ovn-ca", str(own.ca)]
    argv += ["--provider-grants", "*=*"]
    if layout.state.kube:
        argv += network.controller_flags(Places(layout))
    return Program(name=name, argv=tuple(argv), needs=_api(layout), socket=listen, ours=True)


def _api(layout: Layout) -> tuple[str, ...]:
    """Return the process that must be ready before a client of the API is started: it serves Netloom's kinds then."""
    return (kube.API,) if layout.state.kube else ()


def _reflector(layout: Layout) -> list[Program]:
    """Return the processes of the route reflector between sites."""
    place = layout.gateway
    match layout.state.reflector:
        case "netloom":
            argv = [*NETLOOM, "speaker", "--kubeconfig", str(layout.agent_kubeconfig(place)), "--node", place]
            argv += ["--speaker-socket", str(layout.short / "nodes" / place / "speaker.sock")]
            serve = _control_plane(layout)
            return [serve, Program(name="speaker", argv=tuple(argv), place=place, needs=(serve.name,), ours=True)]
        case "frr":
            # Through the short path: bgpd cannot make a socket with a long one.
            own = layout.short / "frr"
            files = ("-f", f"{own}/bgpd.conf", "-i", f"{own}/bgpd.pid", "--vty_socket", str(own), "--log", "stdout")
            bgpd = (BGPD, "-S", "-Z", "-n", "-P", "0", *files)
            return [Program(name="bgpd", argv=bgpd, place=place, socket=f"{own}/bgpd.vty")]
        case "none":
            return []


def _keeper(layout: Layout) -> list[Program]:
    if not layout.state.restart:
        return []
    argv = (sys.executable, "-m", "netloom.lab.daemons.keeper", str(layout.folder))
    return [Program(name="keeper", argv=argv, ours=True)]


def _database(layout: Layout, database: str, number: int) -> Program:
    name = f"{database}{suffix(number)}"
    files = layout.ovn
    return Program(
        name=f"ovn-{name}",
        place=layout.central(number),
        root=layout.root("central"),
        argv=(
            "ovsdb-server",
            *QUIET,
            f"--remote=punix:{files / f'{name}.sock'}",
            *_listening(layout, database, number),
            f"--unixctl={files / f'{name}.ctl'}",
            f"--pidfile={files / f'{name}.pid'}",
            str(files / f"{name}.db"),
        ),
        environment=environment(layout, "central"),
        socket=layout.database_socket(database, number),
    )


def _listening(layout: Layout, database: str, number: int) -> list[str]:
    """Return the options that make a server listen for TLS.

    An ovsdb-server has one CA for all clients. So a node's certificate is valid for the southbound's server on every
    address, and the only address that nodes can reach is the one with their role.
    """
    if not layout.secure:
        return []
    address = layout.central_ip(layout.central(number))
    options = Files.of_server(layout, database, number).options()
    if database == "nb":
        return [*options, f"--remote=pssl:{NORTHBOUND_PORT}:{address}"]
    options.append("--remote=db:OVN_Southbound,SB_Global,connections")
    return options if layout.state.ovn == 1 else [*options, f"--remote=pssl:{SOUTHBOUND_PORT}:{address}"]


def _northd(layout: Layout, number: int) -> Program:
    name = f"ovn-northd{suffix(number)}"
    return Program(
        name=name,
        place=layout.central(number),
        root=layout.root("central"),
        argv=(
            "ovn-northd",
            *QUIET,
            *(Files.of_central(layout, "northd").options() if layout.secure else ()),
            f"--ovnnb-db={layout.central_remotes('nb')}",
            f"--ovnsb-db={layout.central_remotes('sb')}",
            f"--unixctl={layout.ovn / f'{name}.ctl'}",
            f"--pidfile={layout.ovn / f'{name}.pid'}",
        ),
        environment=environment(layout, "central"),
        needs=("ovn-nb", "ovn-sb"),
        after=(_bfd_options(layout),),
    )


def _bfd_options(layout: Layout) -> tuple[str, ...]:
    """Return the command that makes gateway nodes detect a dead one after about a second instead of five."""
    argv = ["ovn-nbctl", f"--db={layout.remotes('nb')}", SECONDS_TO_CONFIGURE, "init", "--", "set", "NB_Global", "."]
    return (*argv, *(f"options:{key}={value}" for key, value in BFD.items()))


def _node(layout: Layout, node: str) -> list[Program]:
    own = layout.node(node)
    database = Program(
        name=f"ovsdb-server-{node}",
        argv=("ovsdb-server", *QUIET, f"--remote=punix:{own / 'db.sock'}", "--pidfile", str(own / "conf.db")),
        socket=layout.switch_socket(node),
        after=(_configure(layout, node),),
    )
    switch = Program(
        name=f"ovs-vswitchd-{node}",
        argv=("ovs-vswitchd", *QUIET, "--pidfile", f"unix:{own / 'db.sock'}"),
        needs=(database.name,),
        after=_addresses(layout, node),
    )
    found = [database, switch]
    if layout.state.ovn:
        tls = Files.of_node(layout, node).options() if layout.secure else ()
        argv = ("ovn-controller", *QUIET, *tls, "--pidfile", f"unix:{own / 'db.sock'}")
        needs = (switch.name, "ovn-sb")
        found.append(Program(name=f"ovn-controller-{node}", argv=argv, needs=needs))
    daemons = [
        msgspec.structs.replace(one, place=node, root=layout.root(node), environment=environment(layout, node))
        for one in found
    ]
    return [*daemons, _agent(layout, node, needs=(switch.name,))]


def _agent(layout: Layout, node: str, *, needs: tuple[str, ...]) -> Program:
    argv = [*AGENTS_PRIVILEGES, *NETLOOM, "agent", "--kubeconfig", str(layout.agent_kubeconfig(node)), "--node", node]
    argv += ["--ovs", f"unix:{layout.switch_socket(node)}", "--underlay-ip", layout.underlay_ip(node)]
    argv += ["--datapath", "netdev", "--prepare"]
    if layout.state.ovn:
        argv += ["--ovn-remote", layout.node_remotes()]
    if layout.state.outside:
        argv += ["--bridge-mappings", f"{PHYSICAL_NETWORK}:br-ex"]
    argv += [*GRANTS, "--sandbox-state", str(layout.sandbox_state(node))]
    after: tuple[tuple[str, ...], ...] = ()
    argv += network.agent_flags(Places(layout), node)
    if layout.state.kube:
        after = network.install_commands(Places(layout), node, NETLOOM)
    return Program(
        name=f"agent-{node}", argv=tuple(argv), place=node, needs=(*needs, *_api(layout)), after=after, ours=True
    )


def _configure(layout: Layout, node: str) -> tuple[str, ...]:
    """Return the one transaction that sets up a bare switch; running it again changes nothing.

    The agent writes OVN's settings: preparing a bare node is its task.
    """
    # Two cores may run many switches: one thread of each type is enough for every one of them.
    settings = {"n-handler-threads": "1", "n-revalidator-threads": "1"}
    argv = ["ovs-vsctl", f"--db=unix:{layout.switch_socket(node)}", "--retry", SECONDS_TO_CONFIGURE, "--no-wait"]
    argv += ["init", "--", "set", "Open_vSwitch", "."]
    argv += [f"other_config:{key}={value}" for key, value in settings.items()]
    for bridge, port in bridges(layout).items():
        argv += ["--", "--may-exist", "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev"]
        argv += ["--", "--may-exist", "add-port", bridge, port]
    return tuple(argv)


def bridges(layout: Layout) -> dict[str, str]:
    """Return a node's own bridges and the device of each that connects it to the lab."""
    return {"br-phys": "uplink", **({"br-ex": "ex0"} if layout.state.outside else {})}


def _addresses(layout: Layout, node: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that give a started switch its underlay address, and make it start forwarding."""
    database = ("ovs-vsctl", f"--db=unix:{layout.switch_socket(node)}", "--retry", SECONDS_TO_CONFIGURE)
    ip = ("ip", "-n", layout.netns(node))
    inside = ("nsenter", f"--net=/run/netns/{layout.netns(node)}", "--")
    commands: list[tuple[str, ...]] = [
        # Without --no-wait it returns when the switch has applied its database: its devices exist.
        (*database, "init"),
        (*ip, "address", "replace", f"{layout.underlay_ip(node)}/{layout.underlay_bits}", "dev", "br-phys"),
    ]
    for bridge in bridges(layout):
        commands += [(*inside, "ethtool", "-K", bridge, "tx", "off"), (*ip, "link", "set", bridge, "up")]
    for address in layout.outside_ips(node):
        commands.append((*ip, "address", "replace", address, "dev", "br-ex", *(("nodad",) if ":" in address else ())))
    for router in OUTSIDE_ADDRESSES if layout.outside_ips(node) else ():
        commands.append((*ip, "route", "replace", "default", "via", router.partition("/")[0], "dev", "br-ex"))
    if layout.state.site:
        every = f"{IPv4Address(UNDERLAY_NET)}/{UNDERLAY_BITS}"
        commands.append((*ip, "route", "replace", every, "via", router_ip(layout.state.site), "dev", "br-phys"))
    # A newer OVN makes a restarted gateway switch wait for an ovn-controller that starts too, as after a reboot. If
    # only the switch died, nothing else would make it continue.
    commands.append((*database, "--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=false"))
    return tuple(commands)
