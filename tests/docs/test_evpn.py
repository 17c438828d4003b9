"""The objects and the configuration of FRR in docs/evpn.md, which no shell runs, given to what reads them."""

import re
from pathlib import Path

import pytest

from netloom.model import codec
from netloom.model.registry import KINDS
from netloom.model.schemas.validation import admit
from tests.docs.console import FENCE
from tests.support.frr import frr

PAGE = (Path(__file__).parents[2] / "docs" / "evpn.md").read_text()


def blocks(language: str, containing: str) -> list[str]:
    return [text for found, text in FENCE.findall(PAGE) if found == language and containing in text]


def test_the_objects_for_another_vendor_are_valid() -> None:
    (text,) = blocks("yaml", "passwordFrom")
    documents = codec.documents(text)
    assert [one["kind"] for one in documents] == ["BGPSpeaker", "BGPPeer", "EVPNNetwork"]
    for document in documents:
        document["metadata"]["namespace"] = "default"
        admit(KINDS.kind(document["apiVersion"], document["kind"]), document)
    # The targets that one side exports are those that the other imports.
    (configuration,) = blocks("text", "router bgp")
    targets = dict(re.findall(r"route-target (import|export) (\S+)", configuration))
    spec = documents[2]["spec"]
    assert (spec["exportTargets"], spec["importTargets"]) == ([targets["import"]], [targets["export"]])


@pytest.mark.root
@pytest.mark.lab
def test_frr_takes_the_configuration() -> None:
    (configuration,) = blocks("text", "router bgp")
    with frr("") as (_, daemon):
        daemon.vty("configure terminal", *map(str.strip, configuration.splitlines()))  # Which refuses a wrong line.
        running = daemon.vty("show running-config")
    assert "neighbor 192.0.2.10 password our-secret" in running
    assert "route-target import 65001:10" in running
