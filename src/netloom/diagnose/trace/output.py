"""What ovn-trace and ofproto/trace print, read, and told as the way of a packet.  Pure.

    text ──► events: a pipeline begins, a flow matches, something is said ──► hops, and how it ends

Only a few of the many flows a packet passes decide anything: who lets it pass or stops it, where it is routed, what is
changed in it, where it comes out. They are known by their stage. Which wish a flow came of is looked up (`Origin`) by
whoever has the databases: the stage names no ACL, but the flow's uuid leads to it.
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

GATEWAY = "goes by the gateway node"


class Origin(Struct, frozen=True):
    """What a flow came of."""

    unit: Unit
    table: str
    key: str


class Flow(Struct, frozen=True):
    """One flow that matched."""

    datapath: str
    inport: str
    stage: str
    match: str = ""
    uuid: str = ""
    """The first eight digits; "" where nothing matched."""
    actions: tuple[str, ...] = ()

    @property
    def drops(self) -> bool:
        """Whether the packet ends here."""
        return not self.uuid or any(one == "drop;" or "ct_mark.blocked = 1" in one for one in self.actions)

    @property
    def judges(self) -> bool:
        """Whether it may be an ACL's."""
        return "_acl" in self.stage and not any(word in self.stage for word in ("hint", "pre_acl"))

    @property
    def steers(self) -> bool:
        """Whether it may be a router policy's: not one of those that every packet passes."""
        everybodys = self.match in ("1", "reg8[0..15] == 0")
        return self.stage in ("lr_in_policy", "lr_in_policy_ecmp") and not everybodys


class Hop(Struct, frozen=True):
    """One thing that happens to a packet."""

    place: str
    what: str


class Way(Struct, frozen=True):
    """How a packet goes."""

    hops: tuple[Hop, ...]
    outputs: tuple[tuple[str, str], ...] = ()
    """Where it comes out: ports, with their types."""
    stopped: str = ""
    """By whom and why it is dropped or rejected; "" where it is not."""
    answered: str = ""
    """Who answers it in place of going on with it."""


def parse(text: str) -> Iterator[Flow]:
    """Give the flows of what ovn-trace printed in detail, each with its actions."""
    within: list[tuple[int, str, str]] = []
    """The pipelines begun: one inside another is set in, and what follows it is of the outer one again."""
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
    return {one.uuid for one in flows if one.uuid and (one.judges or one.steers or _ends(one) or _changes(one))}


def _ends(flow: Flow) -> bool:
    return flow.drops or _rejects(flow)


def _changes(flow: Flow) -> bool:
    return any(_NAT.search(action) or _BACKENDS.search(action) for action in flow.actions)


def _rejects(flow: Flow) -> bool:
    return any(action.startswith("reject") for action in flow.actions)


def way(flows: list[Flow], origins: Mapping[str, Origin], name: Callable[[str], str]) -> Way:
    """Return how a packet goes; `name` says what a port, a switch or a router is called among people."""
    return _Telling(origins, name).told(flows)


class _Telling:
    """What was told so far."""

    def __init__(self, origins: Mapping[str, Origin], name: Callable[[str], str]) -> None:
        self._origins = origins
        self._name = name
        self._hops: list[Hop] = []
        self._outputs: list[tuple[str, str]] = []
        self._stopped = self._answered = ""
        self._judge: Origin | None = None
        """Whose ACL judged last, where the packet is now."""
        self._entered: tuple[str, str] | None = None

    def told(self, flows: list[Flow]) -> Way:
        for flow in flows:
            self._pass(flow)
        if flows and not (self._outputs or self._stopped or self._answered):
            self._stop(flows[-1])  # Some versions say so by going nowhere.
        return Way(tuple(dict.fromkeys(self._hops)), tuple(self._outputs), self._stopped, self._answered)

    def _pass(self, flow: Flow) -> None:
        here = _here(flow, self._name)
        if (flow.datapath, flow.inport) != self._entered:
            self._entered, self._judge = (flow.datapath, flow.inport), None
            if flow.stage.startswith("ls_"):
                self._say(here, f"in from {self._name(flow.inport)}" if flow.inport else "back to the sender")
        origin = self._origins.get(flow.uuid)
        if flow.judges and origin is not None and origin.table == "ACL":
            self._judge = origin
            self._say(here, f"{_rule_of(origin)}: lets it pass")
        for words in _changed(flow, origin, self._name):
            self._say(here, words)
        if flow.stage.startswith("lr_in_ip_input") and any(one in flow.actions for one in _ECHO_REPLY):
            self._say(here, "answers the ping itself")
            self._answered = here
        if not self._stopped and _ends(flow):
            self._stop(flow)
        for action in flow.actions:
            if (out := _OUTPUT.search(action)) and out[2] != "patch":
                self._outputs.append((out[1], out[2]))

    def _say(self, here: str, what: str) -> None:
        self._hops.append(Hop(here, what))

    def _stop(self, flow: Flow) -> None:
        here = _here(flow, self._name)
        origin = self._origins.get(flow.uuid) or self._judge
        self._stopped = _why(flow, origin, here)
        if "_acl" in flow.stage and origin is not None and origin.table == "ACL":
            passed = Hop(here, f"{_rule_of(origin)}: lets it pass")
            self._hops = [one for one in self._hops if one != passed]
            self._say(here, f"{_rule_of(origin)}: {'rejects' if _rejects(flow) else 'drops'} it")


def _here(flow: Flow, name: Callable[[str], str]) -> str:
    return f"{'router' if flow.stage.startswith('lr_') else 'network'} {name(flow.datapath)}"


def _rule_of(origin: Origin) -> str:
    return f"{origin.unit.kind} {origin.unit.name}, {rule(origin)}"


def rule(origin: Origin) -> str:
    """Return which rule of a profile an ACL stands for."""
    where = origin.key.partition(":")[2]
    side, _, rest = where.partition(":")
    if rest == "default":
        return f"nothing in {side} allows it"
    if rest == "open":
        return f"{side} is open"
    if rest == "always":
        return f"what always passes in {side}"
    return side or origin.key


def _changed(flow: Flow, origin: Origin | None, name: Callable[[str], str]) -> Iterator[str]:
    """Give what a flow does to a packet, where that matters to people."""
    by = f"{origin.unit.kind} {origin.unit.name}: " if origin is not None and origin.table == "Load_Balancer" else ""
    for action in flow.actions:
        if found := _BACKENDS.search(action):
            yield f"{by or 'load balancer: '}goes to one of {found[1].replace(',', ', ')}"
        elif found := _NAT.search(action):
            yield f"{'destination' if found[1] == 'dnat' else 'source'} becomes {found[2]}"
        elif action.startswith(("arp {", "nd_ns {")):
            yield "does not know the neighbour's MAC yet, and asks for it"
        elif action.startswith("/* Replacing type"):
            yield GATEWAY
    out = next((name(found[1]) for action in flow.actions if (found := _OUTPORT.match(action))), "")
    if flow.stage == "lr_in_ip_routing" and not flow.drops and out:
        block = re.search(r"ip[46]\.dst == (\S+)", flow.match)
        yield f"routes {block[1] if block else 'it'} out at {out}"
    if flow.steers and origin is not None and origin.table == _POLICY:
        yield from (f"{_policy_of(origin)}: {words}" for words in _steered(flow, out))


def _policy_of(origin: Origin) -> str:
    return f"policy of priority {origin.key.split(':')[-2]}"


def _steered(flow: Flow, out: str) -> Iterator[str]:
    """Give what a policy does to a packet; nothing where it has yet to choose among next hops."""
    hop = next((found[1] for action in flow.actions if (found := _NEXT_HOP.match(action))), "")
    if flow.drops:
        yield "drops it"
    elif out:
        yield f"sends it to {hop} out at {out}"
    elif not any("select(" in action for action in flow.actions):
        yield "leaves it as it is routed"


def _why(flow: Flow, origin: Origin | None, here: str) -> str:
    """Return who stops a packet, and why."""
    how = "rejected" if _rejects(flow) else "dropped"
    if "port_sec" in flow.stage:
        return f"{how} by the port security of {here}: the sender may only use its own MAC and addresses"
    if "_acl" in flow.stage and origin is not None and origin.table == "ACL":
        unit = origin.unit
        where = f"{unit.namespace}/{unit.name}" if unit.namespace else unit.name
        words = rule(origin)
        why = words if words.startswith("nothing") else f"its rule {words} says so"
        return f"{how} by {unit.kind} {where} because {why}"
    if _rejects(flow) and "_lb" in flow.stage:
        whose = (
            f"LoadBalancer {origin.unit.namespace}/{origin.unit.name}" if origin is not None else "the load balancer"
        )
        return f"{how} by {whose} because none of its endpoints is up"
    if flow.steers and origin is not None and origin.table == _POLICY:
        return f"{how} by Router {origin.unit.namespace}/{origin.unit.name} because its {_policy_of(origin)} says so"
    if flow.stage.startswith("lr_in_ip_routing"):
        return f"{how} by {here} because it has no route there"
    if any(action.startswith("/* omitting output because inport == outport") for action in flow.actions):
        return f"{how} by {here} because it would go back to where it came from"
    if "l2_unknown" in flow.stage or "l2_lkup" in flow.stage:
        return f"{how} by {here} because nobody there has the destination's MAC"
    return f"{how} by {here} because of {flow.stage}{f': {flow.match}' if flow.match else ', where nothing matches'}"


# The switch of a node.

_TUNNEL = re.compile(r"tunneling to (\S+) via|tun_dst|set\(tunnel\([^)]*dst=([0-9a-f.:]+)")
_OUT = re.compile(r"^\s*output:(\d+)\s*$")


def on_switch(text: str, devices: Mapping[int, str], nodes: Mapping[str, str]) -> str:
    """Return what a switch does with a packet, of what ofproto/trace printed: where it comes out."""
    tunnels = [found[1] or found[2] for line in text.splitlines() if (found := _TUNNEL.search(line))]
    tunnels = [ip for ip in tunnels if ip]
    if tunnels:
        ip = tunnels[-1]
        return f"through the tunnel to {nodes.get(ip, ip)}{f' ({ip})' if ip in nodes else ''}"
    outputs = [int(found[1]) for line in text.splitlines() if (found := _OUT.match(line))]
    last = [line for line in text.splitlines() if line.startswith("Datapath actions:")]
    if outputs and last and not last[-1].endswith(": drop") and "controller(" not in last[-1]:
        return f"out by device {devices.get(outputs[-1], f'number {outputs[-1]}')}"
    actions = last[-1].partition(": ")[2] if last else "drop"
    if "controller(" in actions or (not _sends(actions) and re.search(r"^\s*controller\(", text, re.MULTILINE)):
        return "handed to ovn-controller, which answers or asks in its place"
    if re.search(r"\bhash\(", actions):
        return "one of several ways is chosen by a hash: not traced further here"
    return f"the switch does: {actions}" if _sends(actions) else "dropped"


def _sends(actions: str) -> bool:
    """Whether a datapath's actions send a packet anywhere, other than to be remembered."""
    while (flat := re.sub(r"\([^()]*\)", "", actions)) != actions:
        actions = flat
    return any(one.isdecimal() or one in ("tnl_push", "recirc", "userspace", "clone") for one in actions.split(","))
