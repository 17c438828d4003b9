"""What `netloom status`, `doctor` and `explain` say of BGP speakers, peers and EVPNNetworks."""

import json
from pathlib import Path

import pytest

from netloom.diagnose.doctor.evpn import ADVICE
from netloom.plan.audit.evpn import audit
from netloom.plan.audit.finding import Check, Finding
from tests.cli.test_commands import VERSION, apply, network
from tests.cli.test_status import NODE, READY, problems, shown
from tests.plan.planning import resources
from tests.run.serving import serving

FAILED = "conditions: [{type: Ready, status: 'False', reason: %s, message: %s}]"
BLUE = f"""
kind: Network
metadata: {{name: blue}}
spec: {{}}
status: {{vni: 10, {READY}}}
"""
SPEAKER = f"""
kind: BGPSpeaker
metadata: {{name: main}}
spec: {{asn: 65001, routerID: 192.0.2.1, node: n1}}
status: {{peers: 1, established: 1, {READY}}}
"""
PEER = f"""
kind: BGPPeer
metadata: {{name: site2}}
spec: {{speaker: main, address: 192.0.2.2, remoteASN: 65002}}
status: {{state: Established, received: 4, sent: 3, {READY}}}
"""
EVPN = f"""
kind: EVPNNetwork
metadata: {{name: blue}}
spec: {{network: blue, speaker: main}}
status: {{vni: 10, forwarding: true, localMACs: 1, remoteMACs: 2, {READY}}}
"""
VTEP = """
kind: RemoteVTEP
metadata: {name: blue.192-0-2-2.10.0, creationTimestamp: '2026-11-15T11:00:00Z'}
spec: {evpnNetwork: blue, network: blue, node: n1, address: 192.0.2.2, vni: 10, localVNI: 10, flood: true,
       macs: [{mac: '02:00:00:00:00:01'}, {mac: '02:00:00:00:00:02'}]}
"""
ALL = (NODE, BLUE, SPEAKER, PEER, EVPN, VTEP)


def findings(*texts: str) -> list[Finding]:
    return audit(resources("---".join(texts)))


def test_status_shows_speakers_with_their_peers_and_networks_with_their_vteps() -> None:
    lines = shown(*ALL)
    assert "No problems found." in lines
    start = lines.index("BGP speakers")
    assert lines[start:] == [
        "BGP speakers",
        "└─ main  AS 65001, 192.0.2.1, on n1, 1 of 1 sessions established",
        "   └─ site2  192.0.2.2, AS 65002, Established, 4 routes received, 3 sent",
        "EVPN networks",
        "└─ blue  extends blue, VNI 10, by main, 1 local and 2 remote MACs",
        "   └─ blue.192-0-2-2.10.0  192.0.2.2, VNI 10, 2 MACs, takes broadcasts",
    ]


def test_a_session_that_is_down_is_a_problem_with_its_last_error() -> None:
    down = PEER.replace("Established", "Active").replace(READY, "lastError: hold timer expired, " + READY)
    assert problems(*ALL[:3], down, *ALL[4:]) == [
        "BGPPeer default/site2: its session with 192.0.2.2 is Active: hold timer expired"
    ]
    new = PEER.partition("status")[0]
    assert problems(*ALL[:3], new, *ALL[4:]) == []  # It was created a moment ago.
    assert [one.check for one in findings(*ALL[:3], new, *ALL[4:])] == [Check.PEER_NOT_ESTABLISHED]


def test_the_peers_of_a_speaker_that_does_not_run_are_not_problems_of_their_own() -> None:
    silent = SPEAKER.replace(READY, FAILED % ("SpeakerSilent", "no heartbeat for 15 seconds"))
    down = PEER.replace("Established", "Idle")
    assert problems(NODE, BLUE, silent, down, EVPN) == ["BGPSpeaker default/main: no heartbeat for 15 seconds"]
    assert "there is no BGPSpeaker main" in problems(NODE, BLUE, down)[0]


def test_a_network_on_standby_is_no_problem_and_one_that_nobody_forwards_is() -> None:
    waiting = "conditions: [{type: Ready, status: 'False', reason: NotForwarding, message: another forwards}]"
    other = EVPN.replace("{name: blue}", "{name: blue-b}").replace("forwarding: true", "forwarding: false")
    other = other.replace(READY, waiting)
    assert problems(*ALL, other) == []
    assert "└─ blue-b  extends blue, VNI 10, by main, on standby" in shown(*ALL, other)
    assert problems(NODE, BLUE, SPEAKER, PEER, other) == ["EVPNNetwork default/blue-b: another forwards"]


def test_a_network_without_a_session_says_whether_there_is_a_peer() -> None:
    lost = EVPN.replace(READY, FAILED % ("NoSession", "no session is established"))
    assert [one.message for one in findings(SPEAKER, lost)] == ["no BGPPeer names its speaker main"]
    down = PEER.replace("Established", "Active")
    assert [one.message for one in findings(SPEAKER, down, lost)] == [
        "no session is established",
        "its session with 192.0.2.2 is Active",
    ]


def test_duplicates_and_vteps_of_nobody_are_found() -> None:
    macs = ", ".join(f"'02:00:00:00:00:{number:02x}'" for number in range(7))
    twins = EVPN.replace("forwarding: true", f"forwarding: true, duplicateMACs: [{macs}]")
    (found,) = findings(SPEAKER, PEER, twins)
    assert found.check is Check.DUPLICATE_EVPN_MAC
    assert "and 2 more are attached here" in found.message
    assert [(one.check, one.name) for one in findings(VTEP)] == [(Check.ORPHANED_VTEP, "blue.192-0-2-2.10.0")]


def test_each_check_has_advice() -> None:
    mine = {one for one in Check if "evpn" in one or "speaker" in one or "peer-" in one or "vtep" in one}
    assert set(ADVICE) == mine


@pytest.mark.slow
def test_the_commands_on_a_server_without_a_speaker(tmp_path: Path, ns: str) -> None:
    speaker = {"asn": 65001, "routerID": "192.0.2.1", "node": "gw"}
    peer = {"speaker": "main", "address": "192.0.2.2", "remoteASN": 65002}
    evpn = {"network": "blue", "speaker": "main"}
    made = [network("blue")]
    for kind, name, spec in (("BGPSpeaker", "main", speaker), ("BGPPeer", "p", peer), ("EVPNNetwork", "blue", evpn)):
        made.append({"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})
    node = {"apiVersion": VERSION, "kind": "Node", "metadata": {"name": "gw"}, "spec": {"underlayIP": "192.0.2.1"}}
    # A server of its own: on one with other tests, their Sandboxes would place hosts on the Node.
    with serving(tmp_path) as server:
        apply(server, ns, node, *made)
        report = json.loads(server.cli("doctor", "--section", "evpn", "-o", "json", check=False).out)
        found = {(one["check"], one["name"]) for one in report["chapters"][0]["complaints"] if one["namespace"] == ns}
        assert ("speaker-not-ready", "main") in found
        assert ("peer-not-established", "p") not in found
        assert ("evpn-not-ready", "blue") in found
        explained = server.cli("explain", "-n", ns, "bgppeer/p").out
        assert "switch of node gw: no address is configured; run this on the node with --ovs" in explained
        assert "On node gw: `netloom evpn routes --peer 192.0.2.2`" in explained
        explained = server.cli("explain", "-n", ns, "evpnnetwork/blue").out
        assert f"On node gw: `netloom evpn macs --network {ns}/blue`" in explained
        assert "BGP speakers" in server.cli("status", "-n", ns, check=False).out
        columns = server.cli("get", "-n", ns, "bgppeers").out.splitlines()[0].split()
        assert columns == ["NAME", "SPEAKER", "ADDRESS", "ASN", "STATE", "RECEIVED", "SENT", "SINCE", "AGE"]
