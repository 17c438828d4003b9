import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from netloom.cli.diagnosis.timeline import lines
from netloom.control.runtime.clock import micro, stamp
from netloom.diagnose.explain.timeline import Sources, timeline
from netloom.model.values import uids
from tests.run.serving import Serving
from tests.support.process import wait_until

CREATED = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
OF_CHANCE = "0f0c7a4e-3b1c-4d9e-8a52-0d9c5a2f1b3c"
Json = dict[str, Any]


def later(milliseconds: float) -> datetime:
    return CREATED + timedelta(milliseconds=milliseconds)


def condition(name: str, milliseconds: float, status: str = "True", **more: str) -> Json:
    return {"type": name, "status": status, "lastTransitionTime": micro(later(milliseconds)), **more}


def attachment(*conditions: Json, uid: str = "", **status: Any) -> Json:
    return {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": uid or uids.mint(CREATED.timestamp(), 1),
            "creationTimestamp": stamp(CREATED),
            "managedFields": [
                {"manager": "kubectl", "operation": "Apply"},
                {"manager": "netloom-agent", "operation": "Update", "subresource": "status"},
            ],
        },
        "spec": {"node": "n2", "network": "blue"},
        "status": {**status, "conditions": list(conditions)} if conditions else {},
    }


def lock(milliseconds: float, uid: str = "") -> Json:
    meta = {"name": "v1-10-10-10-0-2", "creationTimestamp": stamp(later(milliseconds))}
    meta["uid"] = uid or uids.mint(later(milliseconds).timestamp(), 2)
    return {"metadata": meta, "spec": {"ip": "10.10.0.2"}}


READY = attachment(
    condition("Addressed", 8),
    condition("Plugged", 32),
    condition("Ready", 32),
    ips=["10.10.0.2/24"],
    mac="02:0a:0a:00:02:0a",
    ifcName="nl0a0a00020a",
    hostIP="172.31.0.2",
    postCreateExecReport={
        "command": ["/usr/bin/tell", "x"],
        "exitStatus": 3,
        "startTime": micro(later(32.5)),
        "stopTime": micro(later(64)),
    },
)
ASSIGNED = {
    "reason": "AddressAssigned",
    "message": "Assigned 10.10.0.2/24",
    "firstTimestamp": micro(later(9)),
    "count": 2,
    "source": {"component": "netloom-controller"},
}


def test_a_timeline_is_what_happened_in_its_order_with_a_drawing() -> None:
    found = timeline(Sources(attachment=READY, locks=(lock(4),), events=(ASSIGNED,)), later(1000))
    assert found.took is not None
    assert round(found.took, 3) == 0.032
    assert "\n".join(lines(found)) == (
        "NetworkAttachment shop/web on node n2, in Network blue\n"
        "Created at 2030-01-01 12:00:00.250 UTC\n"
        "       0.0 ms  │▏                               │ created  by kubectl\n"
        "       4.0 ms  │██                              │ lock     10.10.0.2 (v1-10-10-10-0-2)\n"
        "       8.0 ms  │  ██                            │ address  10.10.0.2/24, 02:0a:0a:00:02:0a\n"
        "       9.0 ms  │    ·                           │ event    AddressAssigned: Assigned 10.10.0.2/24 (2 times)"
        " — netloom-controller\n"
        "      32.0 ms  │    ████████████                │ plugged  nl0a0a00020a on n2 at 172.31.0.2\n"
        "      32.0 ms  │                ▏               │ ready\n"
        "      32.5 ms  │                ▏               │ hook     /usr/bin/tell started\n"
        "      64.0 ms  │                ████████████████│ hook     /usr/bin/tell exited with status 3\n"
        "Ready 32.0 ms after its creation"
    )


def test_a_hook_that_did_not_end_by_itself_says_so() -> None:
    report = {"command": ["/bin/slow"], "exitStatus": -3, "stopTime": micro(later(99))}
    one = {**READY, "status": {**READY["status"], "postCreateExecReport": report}}
    assert "hook     /bin/slow exceeded its time limit and was killed" in "\n".join(
        lines(timeline(Sources(attachment=one), later(100)))
    )


def test_where_the_server_knows_seconds_that_is_said() -> None:
    one = {**READY, "metadata": {**READY["metadata"], "uid": OF_CHANCE}}
    event = {**ASSIGNED, "firstTimestamp": stamp(later(9))}
    found = timeline(Sources(attachment=one, locks=(lock(4, OF_CHANCE),), events=(event,)), later(1000))
    text = "\n".join(lines(found))
    assert "Created at 2030-01-01 12:00:00 UTC, or up to a second later" in text
    assert "~0.0 ms" in text
    assert "   258.0 ms  │" in text
    assert "Ready at most 282.0 ms after its creation" in text
    assert not found.exact


@pytest.mark.parametrize(
    ("one", "node", "says"),
    [
        (attachment(), None, "Waiting 50,000.0 ms for an address: no controller has processed it yet"),
        (
            attachment(condition("Addressed", 5, "False", reason="SubnetFull", message="Subnet blue is full")),
            None,
            "Waiting 49,995.0 ms for an address (since 2030-01-01 12:00:00.255 UTC)\n  SubnetFull: Subnet blue is full",
        ),
        (
            attachment(condition("Addressed", 5), ips=["10.10.0.2/24"]),
            None,
            "Waiting 49,995.0 ms for the agent of node n2, which has not processed it yet"
            " (since 2030-01-01 12:00:00.255 UTC)\nWaiting 50,000.0 ms for Node n2, which does not exist"
            " (since 2030-01-01 12:00:00.250 UTC)",
        ),
        (
            attachment(condition("Addressed", 5), condition("Plugged", 6, "Unknown", reason="NotInstalled")),
            {
                "metadata": {"name": "n2"},
                "status": {"conditions": [condition("Ready", -10_000, "Unknown", reason="AgentSilent")]},
            },
            "Waiting 49,994.0 ms for a working port (since 2030-01-01 12:00:00.256 UTC)\n  NotInstalled\n"
            "Waiting 60s for Node n2 to be ready (since 2030-01-01 11:59:50.250 UTC)\n  AgentSilent",
        ),
    ],
)
def test_what_is_stuck_says_what_it_waits_for_and_since_when(one: Json, node: Json | None, says: str) -> None:
    found = timeline(Sources(attachment=one, node=node), later(50_000))
    assert says in "\n".join(lines(found))
    assert not found.ready


def test_a_network_or_a_subnet_that_became_valid_after_the_creation_is_part_of_it() -> None:
    def other(name: str, *conditions: Json) -> Json:
        return {"metadata": {"name": name}, "status": {"conditions": list(conditions)}}

    found = timeline(
        Sources(
            attachment=READY,
            network=other("blue", condition("Ready", -50)),
            subnets=(other("blue-v4", condition("Validated", 2)), other("blue-v6", condition("Validated", 3, "False"))),
        ),
        later(1000),
    )
    assert [(one.step, one.text) for one in found.moments][:2] == [
        ("created", "by kubectl"),
        ("subnet", "blue-v4 is valid"),
    ]
    assert not any(one.step == "network" for one in found.moments)


def test_what_is_going_says_what_holds_it() -> None:
    one = {
        **READY,
        "metadata": {**READY["metadata"], "deletionTimestamp": stamp(later(9000)), "finalizers": ["netloom.dev/hooks"]},
    }
    text = "\n".join(lines(timeline(Sources(attachment=one), later(20_000))))
    assert "deletion requested" in text
    assert "for its finalizers: netloom.dev/hooks (since" in text


MANIFESTS = """
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: blue}
spec: {vni: 777}
---
apiVersion: netloom.dev/v1alpha1
kind: Subnet
metadata: {name: blue-v4}
spec: {network: blue, cidr: 10.77.0.0/24}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: web}
spec: {node: nowhere, network: blue}
"""


def test_a_real_server_knows_to_the_millisecond_and_what_is_waited_for(server: Serving, ns: str) -> None:
    server.cli("apply", "-n", ns, "-f", "-", stdin=MANIFESTS)
    server.cli("wait", "-n", ns, "--for=condition=Addressed", "networkattachment/web")
    wait_until(lambda: "AddressAssigned" in server.cli("get", "events", "-n", ns).out, what="the Event")
    text = server.cli("explain", "-n", ns, "networkattachment/web", "--timeline").out
    steps = [line.partition("│ ")[2].split()[0] for line in text.splitlines() if "│ " in line]
    assert steps[0] == "created"
    assert {"lock", "address", "event"} <= set(steps)
    assert "~" not in text
    assert "for the agent of node nowhere, which has not processed it yet" in text
    assert "for Node nowhere, which does not exist" in text
    found = json.loads(server.cli("explain", "-n", ns, "networkattachment/web", "--timeline", "-o", "json").out)
    offsets = {one["step"]: one["offset"] for one in found["moments"] if one["step"] != "event"}
    assert 0 == offsets["created"] < offsets["lock"] < offsets["address"] < 60
    assert found["exact"]
    refused = server.cli("explain", "-n", ns, "network/blue", "--timeline", check=False)
    assert refused.rc == 2
    assert "--timeline requires a networkattachment." in refused.err
