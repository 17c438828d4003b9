"""Drawings of a topology: a tree for terminals, Mermaid, DOT and SVG.

All of them show the same graph: the wan, routers, networks and hosts, with addresses at the links. The names in a
topology without errors are letters, digits and dashes, so none has to be escaped.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from netloom.model.kinds.sandbox import SandboxLink, Topology, Wan
from netloom.model.topology.checks import MAN
from netloom.model.topology.instance import MAN_NETWORK, Link, instance


class Vertex(Struct, frozen=True):
    """A machine or network."""

    name: str
    kind: str
    """wan, router, network or host: the columns of the SVG, from left to right."""
    detail: str = ""


class Graph(Struct, frozen=True):
    """What the drawings show."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Link, ...]
    """Between a machine and a network."""


def graph(topology: Topology) -> Graph:
    """Return machines, networks and their links, without the management node and network."""
    wan = topology.wan or Wan()
    made = instance(topology)
    vertices = [
        Vertex(wan.name, "wan", wan.cidr),
        *(Vertex(router.name, "router") for router in topology.routers),
        *(Vertex(network.name, "network", network.cidr) for network in topology.networks),
        *(Vertex(host.name, "host") for host in topology.hosts),
    ]
    edges = [link for link in made.links if link.node != MAN and link.network != MAN_NETWORK]
    return Graph(tuple(vertices), tuple(edges))


def tree(topology: Topology, links: Iterable[SandboxLink] = ()) -> str:
    """Return routers, their networks, and the hosts in them, as a tree."""
    made = instance(topology)
    qualities = {(link.host, link.network): quality(link) for link in links}
    hidden = {host.name for host in topology.hosts if host.hidden}
    hosts: dict[str, list[str]] = {}
    for one in topology.net_mappings:
        words = [one.host, one.ip, qualities.get((one.host, one.network), ""), "(hidden)" * (one.host in hidden)]
        hosts.setdefault(one.network, []).append(" ".join(filter(None, words)))
    routers: dict[str, list[str]] = {}
    for other in topology.router_mappings:
        routers.setdefault(other.router, []).append(other.network)
    cidrs = {network.name: network.cidr for network in topology.networks}
    branches = [(router.name, routers.get(router.name, [])) for router in topology.routers]
    if without_router := [name for name in cidrs if name not in made.gateways]:
        branches.append(("", without_router))
    lines = [topology.name]
    for i, (router, networks) in enumerate(branches):
        title = f"{router} {made.wan_ip(router)}" if router else "no router"
        bar = _branch(lines, title, "", last=i + 1 == len(branches))
        for j, network in enumerate(networks):
            address = made.addresses.get((router, network), "")
            title = f"{network} {cidrs[network]}" + (f" at {address}" if address else "")
            inner = _branch(lines, title, bar, last=j + 1 == len(networks))
            # Where several routers are in a network, its hosts are shown once.
            shown = hosts.get(network, []) if made.gateways.get(network, "") == router else []
            for k, host in enumerate(shown):
                _branch(lines, host, inner, last=k + 1 == len(shown))
    return "\n".join([*lines, ""])


def _branch(lines: list[str], text: str, bar: str, *, last: bool) -> str:
    """Add a line to a tree, and return what its own branches begin with."""
    lines.append(f"{bar}{'└── ' if last else '├── '}{text}")
    return bar + ("    " if last else "│   ")


def quality(link: SandboxLink) -> str:
    """Return the quality of a link in the notation of tc."""
    words = [("rate", link.rate), ("burst", link.burst), ("delay", link.delay), ("jitter", link.jitter)]
    return " ".join(f"{name} {value}" for name, value in [*words, ("loss", link.loss)] if value)


_MERMAID = {"wan": '(("{}"))', "router": '{{{{"{}"}}}}', "network": '(["{}"])', "host": '["{}"]'}
_DOT = {"wan": "doublecircle", "router": "diamond", "network": "ellipse", "host": "box"}


def mermaid(topology: Topology) -> str:
    """Return a Mermaid flowchart."""
    shown = graph(topology)
    numbers = {vertex.name: f"n{i}" for i, vertex in enumerate(shown.vertices)}
    lines = ["graph LR"]
    lines += [
        f"    {numbers[vertex.name]}{_MERMAID[vertex.kind].format(_label(vertex, '<br/>'))}"
        for vertex in shown.vertices
    ]
    lines += [f'    {numbers[edge.network]} -- "{edge.ip}" --- {numbers[edge.node]}' for edge in shown.edges]
    return "\n".join([*lines, ""])


def dot(topology: Topology) -> str:
    """Return a graph in the language of Graphviz."""
    shown = graph(topology)
    lines = [f'graph "{topology.name}" {{', "    rankdir=LR;"]
    for vertex in shown.vertices:
        label = _label(vertex, "\\n")
        lines.append(f'    "{vertex.name}" [label="{label}", shape={_DOT[vertex.kind]}];')
    lines += [f'    "{edge.network}" -- "{edge.node}" [label="{edge.ip}"];' for edge in shown.edges]
    return "\n".join([*lines, "}", ""])


def _label(vertex: Vertex, newline: str) -> str:
    return vertex.name + (newline + vertex.detail if vertex.detail else "")


COLUMN, ROW, WIDTH, HEIGHT = 260, 60, 180, 40
"""Distances of the SVG, and the size of a box."""
_COLUMNS = ("wan", "router", "network", "host")
_FILLS = {"wan": "#dbe9f6", "router": "#f9e0c7", "network": "#dff0d8", "host": "#f5f5f5"}


def svg(topology: Topology) -> str:
    """Return a drawing in columns: wan, routers, networks, hosts."""
    shown = graph(topology)
    columns = [[vertex for vertex in shown.vertices if vertex.kind == kind] for kind in _COLUMNS]
    tallest = max(len(column) for column in columns)
    places = {
        vertex.name: (20 + x * COLUMN, round(20 + (y + 0.5) * tallest / len(column) * ROW - ROW / 2))
        for x, column in enumerate(columns)
        for y, vertex in enumerate(column)
    }
    size = f'width="{COLUMN * 3 + WIDTH + 40}" height="{tallest * ROW + 20}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">']
    for edge in shown.edges:
        lines += _edge(places[edge.network], places[edge.node], edge.ip)
    for vertex in shown.vertices:
        lines += _box(vertex, places[vertex.name])
    return "\n".join([*lines, "</svg>", ""])


def _edge(network: tuple[int, int], node: tuple[int, int], ip: str) -> Sequence[str]:
    left, right = sorted((network, node))
    x1, y1, x2, y2 = left[0] + WIDTH, left[1] + HEIGHT // 2, right[0], right[1] + HEIGHT // 2
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#888"/>',
        f'<text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 4}" text-anchor="middle" font-size="10">{ip}</text>',
    )


def _box(vertex: Vertex, at: tuple[int, int]) -> Sequence[str]:
    x, y = at
    middle = f'x="{x + WIDTH // 2}" text-anchor="middle"'
    lines = [
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{_FILLS[vertex.kind]}" stroke="#444"/>',
        f'<text y="{y + (17 if vertex.detail else 24)}" {middle}>{vertex.name}</text>',
    ]
    if vertex.detail:
        lines.append(f'<text y="{y + 32}" font-size="10" {middle}>{vertex.detail}</text>')
    return lines
