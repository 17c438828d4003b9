"""Several labs as data centres, with a router between them.

    DIR            the router, and the route reflector if there is one
    DIR/siteK      a lab of its own, with its own API, controllers and OVN

Nodes of one site reach the underlay addresses of the others through the router, which forwards packets as they are.
Namespaces and processes belong to the lab of their folder; so what ends one lab, after whatever crash, ends a site.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from netloom.errors import Conflict
from netloom.lab import checks, lab, peering, state, wiring
from netloom.lab.daemons import processes
from netloom.lab.lab import UP_SECONDS, Lab, Say
from netloom.lab.layout import Layout
from netloom.lab.state import Reflector, State


def up(
    folder: Path,
    *,
    sites: int = 2,
    reflector: Reflector = "none",
    nodes: int = 2,
    ovn: Literal[0, 1, 3] = 1,
    plain_ovn: bool = False,
    restart: bool = True,
    outside: bool = False,
    roots: Mapping[str, str] | None = None,
    timeout: float = UP_SECONDS,
    say: Say = lambda text: None,
) -> list[Lab]:
    """Bring up the router and all sites that are not up, and return the sites; the other options are each site's."""
    folder = folder.absolute()
    checks.root(os.geteuid())
    checks.programs(ovn, roots or {})
    checks.reflector(reflector)
    wanted = State(nodes=nodes, ovn=0, port=0, restart=restart, sites=sites, reflector=reflector)
    numbers = range(1, sites + 1)

    def bring_up(number: int) -> None:
        Lab.up(
            state.site(folder, number),
            site=number,
            nodes=nodes,
            ovn=ovn,
            plain_ovn=plain_ovn,
            restart=restart,
            outside=outside,
            roots=roots,
            timeout=timeout,
            say=lambda text: say(f"site {number}: {text}"),
        )

    with lab.alone(folder) as earlier:
        lab.check_options(folder, earlier, wanted)
        joined = _is_up(folder)
        missing = [number for number in numbers if not joined or not _is_up(state.site(folder, number))]
        if not missing:
            raise Conflict(
                f"all sites of the lab in {folder} are up: run `netloom lab down --data {folder}` first, or choose "
                "another folder with --data"
            )
        try:
            if not joined:
                say("a router between the sites")
                lab.end(folder)
                lab.start(folder, earlier, wanted, timeout=timeout, say=say)
            for number in missing:
                bring_up(number)
            _peer(folder, sites, reflector)
        except BaseException as error:
            for number in missing:
                lab.end(state.site(folder, number))
            if not joined:
                lab.end(folder)
            if earlier is None and isinstance(error, KeyboardInterrupt):
                shutil.rmtree(folder, ignore_errors=True)
            raise
    return [Lab(state.site(folder, number)) for number in numbers]


def _peer(folder: Path, sites: int, reflector: Reflector) -> None:
    """Create the objects of BGP at every site, and at the reflector if it has an API."""
    labs = [state.site(folder, number) for number in range(1, sites + 1)]
    for one in [*labs, *([folder] if reflector == "netloom" else [])]:
        peering.create(Layout(one, state.load(one)), sites, reflected=reflector != "none")


def _is_up(folder: Path) -> bool:
    """Whether a site, or the router between sites, is up."""
    if not (folder / state.FILE).exists():
        return False
    found, lab_id = state.load(folder), state.identity(folder)
    if found.sites:
        return found.phase == "up" and bool(wiring.namespaces(lab_id))
    pid = processes.read_pid(folder / "pids", "supervisor")
    return found.phase == "up" and processes.is_of(pid, lab_id, "supervisor")
