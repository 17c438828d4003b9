"""The sample files: each loads, or is refused with a reason, and what is made of them agrees with what is expected."""

import json
from copy import deepcopy

import msgspec
import pytest

from netloom.errors import BadRequest
from netloom.model import codec
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Topology
from netloom.model.topology import exports
from netloom.model.topology.instance import Known, known_links
from netloom.plan.linux.documents import plan_documents
from netloom.plan.sandbox.objects import plan_sandbox
from netloom.plan.sandbox.reachability import verify
from tests.model.topology.samples import FOLDER, TOPOLOGIES, sample
from tests.plan.test_sandbox import sandbox

DEPRECATED = ['"man_user" is deprecated: use "mgmt_user".', '"mng_protocol" is deprecated: use "mgmt_protocol".']
WARNINGS = {
    "topology": DEPRECATED,
    "monitoring": DEPRECATED,
    "forwarding": ['The network "monitoring-switch" cannot be reached from any router: add it to router_mappings.'],
}
KNOWN = known_links((FOLDER / "expected/links.yml").read_bytes())


def platform() -> Topology:
    found = sample("expected/definition.yml").topology
    assert found is not None
    return found


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_each_topology_loads_and_is_planned_on_both_backends_without_a_problem(name: str) -> None:
    found = sample(TOPOLOGIES[name])
    assert [one.message for one in found.findings] == WARNINGS.get(name, [])
    assert found.topology is not None
    document = json.loads(exports_json(found.topology))
    wanted = sandbox(document, name=name)
    plan = plan_sandbox(wanted, ["n1", "n2"])
    assert plan.problems == ()
    assert verify(wanted, plan.objects).differences == ()
    linux = plan_documents(sandbox(document, name=name, backend="linux"), {"n1": "192.0.2.1", "n2": "192.0.2.2"})
    assert linux.problems == ()


def exports_json(topology: Topology) -> bytes:
    return msgspec.json.encode(topology)


def test_every_other_file_is_refused_with_the_reason() -> None:
    others = {str(one.relative_to(FOLDER)) for one in FOLDER.rglob("*.*")} - set(TOPOLOGIES.values())
    found = {name: sorted({one.message for one in sample(name).findings if not one.is_warning}) for name in others}
    assert {name: messages[:2] for name, messages in found.items()} == {
        "expected/inventory.yml": ['the key "name" is missing', 'unknown key "all"'],
        "expected/links.yml": ['the key "name" is missing', 'unknown key "link-1"'],
        "legacy-json/kyponet-tests.expected.json": ['the key "name" is missing', 'unknown key "test_addresses.py"'],
    }


def test_the_links_of_a_sandbox_that_runs_are_those_that_the_platform_gave() -> None:
    assert exports.links(platform(), KNOWN) == codec.decode(
        (FOLDER / "expected/links.yml").read_bytes(), "application/yaml"
    )
    # Before it runs, the addresses in the networks are known, and the platform's own ports are not.
    before = exports.links(platform())
    assert set(KNOWN) - set(before) == {"link-13", "link-14"}
    assert [before[f"link-{n}"]["ip"] for n in (1, 2, 5, 6, 8, 10, 11, 12)] == [
        KNOWN[f"link-{n}"].ip for n in (1, 2, 5, 6, 8, 10, 11, 12)
    ]
    with pytest.raises(BadRequest, match=r"link-15: no network has 10\.99\.0\.2"):
        exports.links(platform(), {**KNOWN, "link-15": Known("10.99.0.2")})


def test_the_inventory_is_that_of_the_platform_but_for_what_only_the_platform_knows() -> None:
    expected = codec.decode((FOLDER / "expected/inventory.yml").read_bytes(), "application/yaml")
    assert isinstance(expected, dict)
    ours = exports.inventory(platform(), known=KNOWN)
    assert without_platform(ours) == without_platform(expected)
    # The names of groups and hosts are the same, but for the platform's own way in.
    assert set(expected["all"]["hosts"]) - set(ours["all"]["hosts"]) == {"proxy-jump"}
    assert ours["all"]["children"].keys() == expected["all"]["children"].keys()


def without_platform(inventory: Document) -> Document:
    """Return an inventory without what only an installation of the platform knows.

    These are its jump host, the address of the management node outside, its keys, certificates and proxy, and the
    numbers and names that it gives to a sandbox.
    """
    found = deepcopy(inventory)["all"]
    found["hosts"].pop("proxy-jump", None)
    del found["hosts"]["man"]["ansible_host"]
    for name in [name for name in found["children"]["winrm_nodes"]["vars"] if "proxy" in name or "pem" in name]:
        del found["children"]["winrm_nodes"]["vars"][name]
    ours = ("global_sandbox_man_cidr", "global_syslog_destination_port")
    found["vars"] = {name: value for name, value in found["vars"].items() if name in ours}
    kept: Document = found
    return kept
