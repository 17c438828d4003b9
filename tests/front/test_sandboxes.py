"""A Sandbox whose topology cannot work is refused, in the words for files."""

from pathlib import Path
from typing import Any

import pytest

from netloom.model import codec
from netloom.model.document import Document
from netloom.model.topology.reading import read
from tests.front.serving import Serving, document, path

TOPOLOGIES = Path(__file__).parent.parent / "model" / "topology"


def sandbox(name: str, topology: Document, **spec: Any) -> Document:
    return document("Sandbox", name, "default", {"topology": topology, **spec})


def good() -> Document:
    return codec.documents((TOPOLOGIES / "valid" / "good.yml").read_bytes())[0]


def causes(answer: Any) -> dict[str, str]:
    assert answer.code == 422, answer.body
    return {cause["field"]: cause["message"] for cause in answer.json["details"]["causes"]}


def test_a_topology_that_passes_the_checks_is_stored(server: Serving) -> None:
    link = {"host": "home", "network": "home-switch", "rate": "10mbit"}
    answer = server.post(path("sandboxes"), sandbox("good", good(), links=[link]))
    assert answer.code == 201, answer.body


def test_all_problems_of_a_topology_are_causes_with_their_fields(server: Serving) -> None:
    topology = good()
    topology["net_mappings"][0]["ip"] = "10.10.20.255"
    topology["router_mappings"][1]["router"] = "nobody"
    topology["groups"][0]["name"] = "hosts"
    link = {"host": "home", "network": "server-switch", "rate": "10mbit"}
    answer = server.post(path("sandboxes"), sandbox("bad", topology, links=[link]))
    assert causes(answer) == {
        "spec.topology.net_mappings[0].ip": 'IP address "10.10.20.255" is not valid host address of "10.10.20.0/24" '
        'defined in network "server-switch".',
        "spec.topology.router_mappings[1].router": 'Invalid router mapping with ip "10.10.30.1". '
        'Cannot find router with name "nobody".',
        "spec.topology.groups[0].name": 'Invalid group with name "hosts". The name is reserved: choose another one.',
        "spec.links[0]": '"home" has no link to network "server-switch": add a mapping, or remove it.',
    }
    assert server.get(path("sandboxes", name="bad")).code == 404


def test_an_update_is_checked_and_changes_nothing(server: Serving) -> None:
    made = server.post(path("sandboxes"), sandbox("updated", good()))
    assert made.code == 201, made.body
    change = {"spec": {"topology": {"networks": [{"name": "server-switch", "cidr": "10.10.20.0/24"}]}}}
    assert set(causes(server.patch(path("sandboxes", name="updated"), change))) == {
        "spec.topology.net_mappings[1].network",
        "spec.topology.router_mappings[1].network",
    }
    assert server.get(path("sandboxes", name="updated")).json["spec"] == made.json["spec"]
    assert server.patch(path("sandboxes", name="updated"), {"metadata": {"labels": {"a": "b"}}}).code == 200
    assert server.patch(path("sandboxes", name="updated", subresource="status"), {"status": {"hosts": 2}}).code == 200


def test_warnings_are_not_refused(server: Serving) -> None:
    topology = good() | {"networks": [*good()["networks"], {"name": "spare", "cidr": "10.10.50.0/24"}]}
    assert server.post(path("sandboxes"), sandbox("warned", topology)).code == 201


WHOLE = sorted(
    file
    for file in (TOPOLOGIES / "faults").glob("*.yml")
    if file.name.startswith(("mapping-", "overlap", "group-", "vpn-", "forwarding-", "unique-", "wan-"))
    and file.name not in ("forwarding-direction.yml", "forwarding-no-destination.yml")  # The schema's own words.
)


@pytest.mark.parametrize("file", WHOLE, ids=lambda file: file.name)
def test_a_topology_is_refused_in_the_words_for_files(server: Serving, file: Path) -> None:
    (finding,) = read(file.read_bytes()).findings
    answer = server.post(path("sandboxes"), sandbox(file.stem, codec.documents(file.read_bytes())[0]))
    if finding.is_warning:
        assert answer.code == 201, answer.body
    else:
        assert list(causes(answer).values()) == [finding.message]
