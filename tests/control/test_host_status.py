"""What an agent writes of an attachment, and what it leaves alone."""

from typing import Any

import msgspec

from netloom.control.node.local_ports.status import PlugResult, document, settled
from netloom.control.node.views import AttachmentView
from netloom.control.runtime.conditions import READY
from netloom.model.document import Document
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.model.registry import NETWORK_ATTACHMENT
from netloom.plan.problem import Problem
from netloom.store.base import stored
from tests.control.helpers import NOON

ADDRESSED = {"type": "Addressed", "status": "True", "observedGeneration": 1, "reason": "Addressed"}


def view(status: Document) -> AttachmentView:
    one = stored(
        NETWORK_ATTACHMENT,
        {
            "apiVersion": NETWORK_ATTACHMENT.api_version,
            "kind": "NetworkAttachment",
            "metadata": {"name": "a", "namespace": "ns1", "uid": "u", "generation": 1, "resourceVersion": "7"},
            "spec": {"node": "n1", "network": "blue"},
            "status": status,
        },
    )
    value = one.value()
    assert isinstance(value, NetworkAttachment)
    return AttachmentView(value, one)


def after(before: Document, found: PlugResult) -> Document:
    made: Document = document(view(before), found, "172.31.0.1", NOON)["status"]
    return made


def condition(status: Document, kind: str) -> Any:
    return next(one for one in status["conditions"] if one["type"] == kind)


def test_an_installed_port_is_plugged_and_ready_and_saying_it_twice_is_saying_it_once() -> None:
    found = PlugResult(device="nl1", installed=True)
    status = after({"ips": ["10.0.0.9/24"], "conditions": [ADDRESSED]}, found)
    assert (status["ifcName"], status["hostIP"]) == ("nl1", "172.31.0.1")
    assert condition(status, "Plugged")["status"] == condition(status, READY)["status"] == "True"
    assert settled(view(status).value, found, "172.31.0.1")
    assert not settled(view(status).value, found, "172.31.0.2")
    assert after(status, found) == status


def test_a_port_that_waits_for_ovn_is_neither_plugged_nor_ready() -> None:
    status = after({"conditions": [ADDRESSED]}, PlugResult(device="nl1"))
    assert condition(status, "Plugged")["status"] == condition(status, READY)["status"] == "Unknown"
    assert condition(status, READY)["reason"] == "NotInstalled"


def test_trouble_is_said_and_taken_back() -> None:
    found = PlugResult(problem=Problem("NamespaceMissing", "there is none"))
    status = after({"conditions": [ADDRESSED]}, found)
    assert status["errors"] == {"host": ["there is none"]}
    assert condition(status, READY)["reason"] == "NamespaceMissing"
    assert settled(view(status).value, found, "172.31.0.1")
    healed = after(status, PlugResult(device="nl1", installed=True))
    assert "errors" not in healed
    assert condition(healed, READY)["status"] == "True"


def test_what_others_wrote_and_what_we_do_not_know_stays() -> None:
    foreign = {"type": "Programmed", "status": "False", "reason": "X", "message": "", "observedGeneration": 1}
    before = {
        "ips": ["10.0.0.9/24"],
        "errors": {"ipam": ["full"]},
        "fromTheFuture": {"x": 1},
        "conditions": [ADDRESSED, foreign],
    }
    status = after(before, PlugResult(problem=Problem("W", "m")))
    assert status["ips"] == before["ips"]
    assert status["fromTheFuture"] == {"x": 1}
    assert status["errors"] == {"ipam": ["full"], "host": ["m"]}
    assert condition(status, "Programmed")["reason"] == "X"


def test_an_attachment_that_lost_its_address_is_not_ready_though_it_is_plugged() -> None:
    lost = {**ADDRESSED, "status": "False", "reason": "SubnetFull"}
    status = after({"conditions": [lost]}, PlugResult(device="nl1", installed=True))
    assert condition(status, "Plugged")["status"] == "True"
    assert condition(status, READY)["reason"] == "SubnetFull"


def test_a_long_complaint_is_cut() -> None:
    status = after({"conditions": [ADDRESSED]}, PlugResult(problem=Problem("W", "x" * 5000)))
    assert len(msgspec.json.encode(status)) < 5000
