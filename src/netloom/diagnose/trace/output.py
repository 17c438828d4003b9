"""The path of a packet, from the output of ovn-trace and ofproto/trace.  Pure.

    text ──► flows that matched, with their actions ──► hops, and the outcome

Of the many flows that a packet matches, few matter: those that allow or drop it, route it, change it or output it. They
are recognized by their stage. The caller looks up the resource that a flow comes from (`Origin`) in the databases: the
stage does not name an ACL, but the flow's uuid leads to it.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from netloom.plan.problem import Unit

_PIPELINE = re.compile(r'\s*(ingress|egress)\(dp="([^"]*)"(?:, inport="([^"]*)")?(?:, outport="([^"]*)")?\)')
_FLOW = re.compile(r"\s*\d+\. ([\w-]+)(?: \([^)]*\))?: (.*), priority (\d+), uuid ([0-9a-f]{8})")
_NO_MATCH = re.compile(r"\s*\d+\. ([\w-]+)(?: \([^)]*\))?: no match")
_OUTPUT = re.compile(r'/\* output to "([^"]*)", type "([^"]*)" \*/')
_NAT = re.compile(r"ct_(dnat|snat)(?:_in_czone)?\(([^)=]*)\)")
_BACKENDS = re.compile(r"ct_lb(?:_mark)?\(backends=([^);]*)")
_ECHO_REPLY = ("icmp4.type = 0;", "icmp6.type = 129;")
_OUTPORT = re.compile(r'outport = "([^"]*)"')
_NEXT_HOP = re.compile(r"(?:xx)?reg0 = ([0-9a-f.:]+);")
_POLICY = "Logical_Router_Policy"

GATEWAY = "goes through the gateway node"


class Origin(Struct, frozen=True):
    """The northbound row that a flow comes from, and its resource."""

    unit: Unit
    table: str
    key: str


class Flow(Struct, frozen=True):
    """One logical flow that matched."""

    datapath: str
    inport: str
    stage: str
    match: str = ""
    uuid: str = ""
    """The first eight digits; "" if no flow matched."""
    actions: tuple[str, ...] = ()

    @property
    def drops(self) -> bool:
        """Whether it drops the packet."""
        return not self.uuid or any(one == "drop;" or "ct_mark.blocked = 1" in one for one in self.actions)

    @property
    def filters(self) -> bool:
        """Whether it may come from an ACL."""
        return "_acl" in self.stage and not any(word in self.stage for word in ("hint", "pre_acl"))

    @property
    def steers(self) -> bool:
        """Whether it may come from a router policy, and is not one of those that every packet matches."""
        is_default = self.match in ("1", "reg8[0..15] == 0")
        return self.stage in ("lr_in_policy", "lr_in_policy_ecmp") and not is_default


class Hop(Struct, frozen=True):
    """One event on the path of a packet."""

    place: str
    what: str


class Path(Struct, frozen=True):
    """The path of a packet in the logical network."""

    hops: tuple[Hop, ...]
    outputs: tuple[tuple[str, str], ...] = ()
    """The ports it is output to, with their types."""
    stopped: str = ""
    """What drops or rejects it, and why; "" if nothing does."""
    answered: str = ""
    """The router that replies to it instead of forwarding it."""


def parse(text: str) -> Iterator[Flow]:
    """Yield the flows in the detailed output of ovn-trace, each with its actions."""
    within: list[tuple[int, str, str]] = []
    """The open pipelines, with their indentation: a nested one ends where the text is indented less."""
    flow: Flow | None = None
    actions: list[str] = []

    def place(line: str) -> tuple[str, str]:
        while len(within) > 1 and within[-1][0] > _indent(line):
            within.pop()
        return within[-1][1:] if within else ("", "")

    def ended() -> Iterator[Flow]:
        if flow is not None:
            yield Flow(flow.datapath, flow.inport, flow.stage, flow.match, flow.uuid, tuple(actions))

    for line in text.splitlines():
        if pipeline := _PIPELINE.match(line):
            yield from ended()
            flow, actions = None, []
            place(line)
            within.append((_indent(line), pipeline[2], pipeline[3] or ""))
        elif found := _FLOW.match(line):
            yield from ended()
            flow, actions = Flow(*place(line), found[1], found[2], found[4]), []
        elif missed := _NO_MATCH.match(line):
            yield from ended()
            flow, actions = Flow(*place(line), missed[1]), []
        elif line.strip() and not line.startswith("#") and not set(line.strip()) <= {"-"}:
            actions.append(line.strip())
    yield from ended()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def deciding(flows: list[Flow]) -> set[str]:
    """Return the uuids of the flows whose origin matters."""
    return {one.uuid for one in flows if one.uuid and (one.filters or one.steers or _ends(one) or _changes(one))}


def _ends(flow: Flow) -> bool:
    return flow.drops or _rejects(flow)


def _changes(flow: Flow) -> bool:
    return any(_NAT.search(action) or _BACKENDS.search(action) for action in flow.actions)


def _rejects(flow: Flow) -> bool:
    return any(action.startswith("reject") for action in flow.actions)


def path(flows: list[Flow], origins: Mapping[str, Origin], name: Callable[[str], str]) -> Path:
    """Return the path of a packet; `name` returns the name to show for a port, switch or router."""
    return _PathBuilder(origins, name).build(flows)


class _PathBuilder:
    """Collects the hops of a packet, flow by flow."""

    def __init__(self, origins: Mapping[str, Origin], name: Callable[[str], str]) -> None:
        self._origins = origins
        self._name = name
        self._hops: list[Hop] = []
        self._outputs: list[tuple[str, str]] = []
        self._stopped = self._answered = ""
        self._last_acl: Origin | None = None
        """The last ACL that matched on the current datapath."""
        self._entered: tuple[str, str] | None = None

    def build(self, flows: list[Flow]) -> Path:
        for flow in flows:
            self._add(flow)
        if flows and not (self._outputs or self._stopped or self._answered):
            self._stop(flows[-1])  # Some versions of ovn-trace just end at the flow that drops.
        return Path(tuple(dict.fromkeys(self._hops)), tuple(self._outputs), self._stopped, self._answered)

    def _add(self, flow: Flow) -> None:
        here = _here(flow, self._name)
        if (flow.datapath, flow.inport) != self._entered:
            self._entered, self._last_acl = (flow.datapath, flow.inport), None
            if flow.stage.startswith("ls_"):
                self._hop(here, f"from {self._name(flow.inport)}" if flow.inport else "back to the sender")
        origin = self._origins.get(flow.uuid)
        if flow.filters and origin is not None and origin.table == "ACL":
            self._last_acl = origin
            self._hop(here, f"{_rule_of(origin)}: allowed")
        for words in _changed(flow, origin, self._name):
            self._hop(here, words)
        if flow.stage.startswith("lr_in_ip_input") and any(one in flow.actions for one in _ECHO_REPLY):
            self._hop(here, "replies to the ping itself")
            self._answered = here
        if not self._stopped and _ends(flow):
            self._stop(flow)
        for action in flow.actions:
            if (out := _OUTPUT.search(action)) and out[2] != "patch":
                self._outputs.append((out[1], out[2]))

    def _hop(self, here: str, what: str) -> None:
        self._hops.append(Hop(here, what))

    def _stop(self, flow: Flow) -> None:
        here = _here(flow, self._name)
        origin = self._origins.get(flow.uuid) or self._last_acl
        self._stopped = _why(flow, origin, here)
        if "_acl" in flow.stage and origin is not None and origin.table == "ACL":
            passed = Hop(here, f"{_rule_of(origin)}: allowed")
            self._hops = [one for one in self._hops if one != passed]
            self._hop(here, f"{_rule_of(origin)}: {'rejected' if _rejects(flow) else 'dropped'}")


def _here(flow: Flow, name: Callable[[str], str]) -> str:
    return f"{'router' if flow.stage.startswith('lr_') else 'network'} {name(flow.datapath)}"


def _rule_of(origin: Origin) -> str:
    return f"{origin.unit.kind} {origin.unit.name}, {rule(origin)}"


def rule(origin: Origin) -> str:
    """Return the rule of a SecurityProfile that an ACL comes from."""
    where = origin.key.partition(":")[2]
    side, _, rest = where.partition(":")
    if rest == "default":
        return f"no {side} rule allows it"
    if rest == "open":
        return f"{side} is open"
    if rest == "always":
        return f"always allowed in {side}"
    return side or origin.key


def _changed(flow: Flow, origin: Origin | None, name: Callable[[str], str]) -> Iterator[str]:
    """Yield the relevant changes that a flow makes to a packet."""
    by = f"{origin.unit.kind} {origin.unit.name}: " if origin is not None and origin.table == "Load_Balancer" else ""
    for action in flow.actions:
        if found := _BACKENDS.search(action):
            yield f"{by or 'load balancer: '}sends it to one of {found[1].replace(',', ', ')}"
        elif found := _NAT.search(action):
            yield f"{'destination' if found[1] == 'dnat' else 'source'} becomes {found[2]}"
        elif action.startswith(("arp {", "nd_ns {")):
            yield "resolves the MAC of the next hop first"
        elif action.startswith("/* Replacing type"):
            yield GATEWAY
    out = next((name(found[1]) for action in flow.actions if (found := _OUTPORT.match(action))), "")
    if flow.stage == "lr_in_ip_routing" and not flow.drops and out:
        block = re.search(r"ip[46]\.dst == (\S+)", flow.match)
        yield f"route {block[1] if block else 'found'} to {out}"
    if flow.steers and origin is not None and origin.table == _POLICY:
        yield from (f"{_policy_of(origin)}: {words}" for words in _steered(flow, out))


def _policy_of(origin: Origin) -> str:
    return f"policy with priority {origin.key.split(':')[-2]}"


def _steered(flow: Flow, out: str) -> Iterator[str]:
    """Yield what a policy does to a packet; nothing if a later flow chooses among its next hops."""
    hop = next((found[1] for action in flow.actions if (found := _NEXT_HOP.match(action))), "")
    if flow.drops:
        yield "dropped"
    elif out:
        yield f"rerouted to {hop} on {out}"
    elif not any("select(" in action for action in flow.actions):
        yield "allowed"


def _why(flow: Flow, origin: Origin | None, here: str) -> str:
    """Return what stops a packet, and why."""
    how = "rejected" if _rejects(flow) else "dropped"
    if "port_sec" in flow.stage:
        return f"{how} by the port security of {here}: the sender may use only its own MAC and addresses"
    if "_acl" in flow.stage and origin is not None and origin.table == "ACL":
        unit = origin.unit
        where = f"{unit.namespace}/{unit.name}" if unit.namespace else unit.name
        words = rule(origin)
        why = words if words.startswith("no ") else f"rule {words}"
        return f"{how} by {unit.kind} {where}: {why}"
    if _rejects(flow) and "_lb" in flow.stage:
        whose = (
            f"LoadBalancer {origin.unit.namespace}/{origin.unit.name}" if origin is not None else "the load balancer"
        )
        return f"{how} by {whose}: none of its endpoints is up"
    if flow.steers and origin is not None and origin.table == _POLICY:
        return f"{how} by Router {origin.unit.namespace}/{origin.unit.name}: {_policy_of(origin)}"
    if flow.stage.startswith("lr_in_ip_routing"):
        return f"{how} by {here}: it has no route to the destination"
    if any(action.startswith("/* omitting output because inport == outport") for action in flow.actions):
        return f"{how} by {here}: it would leave through the port it arrived at"
    if "l2_unknown" in flow.stage or "l2_lkup" in flow.stage:
        return f"{how} by {here}: no port has the destination's MAC"
    return f"{how} by {here} in {flow.stage}: {flow.match or 'no flow matches'}"


# The switch of a node.

_TUNNEL = re.compile(r"tunneling to (\S+) via|tun_dst|set\(tunnel\([^)]*dst=([0-9a-f.:]+)")
_OUT = re.compile(r"^\s*output:(\d+)\s*$")


def on_switch(text: str, devices: Mapping[int, str], nodes: Mapping[str, str]) -> str:
    """Return where a switch outputs a packet, from the output of ofproto/trace."""
    tunnels = [found[1] or found[2] for line in text.splitlines() if (found := _TUNNEL.search(line))]
    tunnels = [ip for ip in tunnels if ip]
    if tunnels:
        ip = tunnels[-1]
        return f"through the tunnel to {nodes.get(ip, ip)}{f' ({ip})' if ip in nodes else ''}"
    outputs = [int(found[1]) for line in text.splitlines() if (found := _OUT.match(line))]
    last = [line for line in text.splitlines() if line.startswith("Datapath actions:")]
    if outputs and last and not last[-1].endswith(": drop") and "controller(" not in last[-1]:
        return f"output to device {devices.get(outputs[-1], f'number {outputs[-1]}')}"
    actions = last[-1].partition(": ")[2] if last else "drop"
    if "controller(" in actions or (not _sends(actions) and re.search(r"^\s*controller\(", text, re.MULTILINE)):
        return "sent to ovn-controller, which replies or resolves the next hop"
    if re.search(r"\bhash\(", actions):
        return "one of several paths is chosen by a hash: not traced further"
    return f"datapath actions: {actions}" if _sends(actions) else "dropped"


def _sends(actions: str) -> bool:
    """Whether datapath actions output a packet, and not only commit it to connection tracking."""
    while (flat := re.sub(r"\([^()]*\)", "", actions)) != actions:
        actions = flat
    return any(one.isdecimal() or one in ("tnl_push", "recirc", "userspace", "clone") for one in actions.split(","))
