"""The commands that turn one table into another, as one transaction of `nft -f`.  Pure.

Sets and chains come first, because rules and elements name them; what is removed goes last, when nothing names it any
more. A set that is declared differently cannot be changed: then the whole table is written again, in the same
transaction, so that packets always find either the old one or the new one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from netloom.drivers.nft.listing import SeenChain, SeenSet, SeenTable, declaration, form
from netloom.plan.kube.node.nftables import Chain, Json, NamedSet, Table

COMMENT = "netloom: written by the agent, which restores it"
PER_COMMAND = 512
"""Elements in one command: an error of nft quotes the command."""
Same = Callable[[str, object, object], bool]
"""Whether a planned form of a chain or set is the observed one."""


@dataclass(slots=True)
class Changes:
    """A transaction."""

    commands: list[str] = field(default_factory=list)
    elements: int = 0
    """How many elements it adds and deletes."""
    chains: int = 0
    """How many chains it writes or deletes."""
    written: dict[str, tuple[Json, ...]] = field(default_factory=dict)
    """The planned forms of the chains and sets that it writes."""

    def __bool__(self) -> bool:
        return bool(self.commands)

    @property
    def text(self) -> str:
        """What `nft -f` reads."""
        return "\n".join(self.commands) + "\n"


def exactly(name: str, planned: object, seen: object) -> bool:
    """Whether two forms are equal."""
    return planned == seen


def changes(name: str, seen: SeenTable | None, wanted: Table | None, same: Same = exactly) -> Changes:
    """Return the transaction that makes the table `name` of family inet what is wanted; None: no table."""
    made = Changes()
    table = f"inet {name}"
    if wanted is None:
        made.commands += [] if seen is None else [f"delete table {table}"]
        return made
    if seen is not None and (seen.other or not _extends(seen, wanted, same)):
        made.commands.append(f"delete table {table}")
        seen = None
    if seen is None:
        made.commands.append(f'add table {table} {{ comment "{COMMENT}"; }}')
        seen = SeenTable()
    for one, planned in sorted(wanted.sets.items()):
        if one not in seen.sets:
            made.commands.append(f"add {_kind(planned)} {table} {one} {{ {_declared(planned)} }}")
            made.written[one] = declaration(planned)
    changed = [
        one
        for one, chain in sorted(wanted.chains.items())
        if one not in seen.chains or not same(one, form(chain), seen.chains[one].form())
    ]
    excess = sorted(seen.chains.keys() - wanted.chains.keys())
    made.commands += [
        f"add chain {table} {one}{_hook(wanted.chains[one])}" for one in changed if one not in seen.chains
    ]
    made.commands += [f"flush chain {table} {one}" for one in (*changed, *excess) if one in seen.chains]
    for one in changed:
        made.commands += [f"add rule {table} {one} {line.text}" for line in wanted.chains[one].rules]
        made.written[one] = form(wanted.chains[one])
    made.chains = len(changed) + len(excess)
    empty: Mapping[str, str] = {}
    for one, planned in sorted(wanted.sets.items()):
        before = seen.sets[one].elements if one in seen.sets else empty
        _elements(made, f"{table} {one}", before, planned.elements)
    made.commands += [f"delete chain {table} {one}" for one in excess]
    for one in sorted(seen.sets.keys() - wanted.sets.keys()):
        made.commands.append(f"delete {'map' if seen.sets[one].declaration[1] else 'set'} {table} {one}")
    return made


def applied(wanted: Table | None) -> SeenTable | None:
    """Return what a table is after a transaction."""
    if wanted is None:
        return None
    return SeenTable(
        {name: SeenSet(declaration(one), dict(one.elements)) for name, one in wanted.sets.items()},
        {
            name: SeenChain(chain.hook, [list(line.json) for line in chain.rules])
            for name, chain in wanted.chains.items()
        },
    )


def _extends(seen: SeenTable, wanted: Table, same: Same) -> bool:
    """Whether the sets and hooks that both tables have are declared alike, so that changes of elements and rules do."""
    return all(
        one not in seen.sets or same(one, declaration(planned), seen.sets[one].declaration)
        for one, planned in wanted.sets.items()
    ) and all(one not in seen.chains or seen.chains[one].hook == chain.hook for one, chain in wanted.chains.items())


def _elements(made: Changes, place: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    gone = sorted(key for key, value in before.items() if after.get(key) != value)
    new = sorted(key for key, value in after.items() if before.get(key) != value)
    made.elements += len(gone) + len(new)
    made.commands += _several(f"delete element {place}", gone)
    made.commands += _several(f"add element {place}", [f"{key} : {after[key]}" if after[key] else key for key in new])


def _several(command: str, elements: list[str]) -> Iterable[str]:
    for start in range(0, len(elements), PER_COMMAND):
        yield f"{command} {{ {', '.join(elements[start : start + PER_COMMAND])} }}"


def _kind(planned: NamedSet) -> str:
    return "map" if planned.data else "set"


def _declared(planned: NamedSet) -> str:
    key, data = " . ".join(planned.key), " . ".join(planned.data)
    return f"type {key}{f' : {data}' if data else ''};{' flags interval;' if planned.interval else ''}"


def _hook(chain: Chain) -> str:
    if chain.hook is None:
        return ""
    kind, hook, priority = chain.hook
    return f" {{ type {kind} hook {hook} priority {priority}; policy accept; }}"
