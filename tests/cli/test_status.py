"""`netloom status`: all objects and their problems."""

import json
from datetime import UTC, datetime

import pytest

from netloom.cli.diagnosis.status import lines
from netloom.diagnose.status import overview
from tests.cli.test_commands import apply, network, subnet
from tests.plan.planning import resources
from tests.run.serving import Serving

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
READY = "conditions: [{type: Ready, status: 'True'}]"
NODE = f"""
kind: Node
metadata: {{name: n1}}
spec: {{underlayIP: 172.31.0.1}}
status: {{lastHeartbeat: '2026-11-15T11:59:55Z', datapath: userspace, {READY}}}
"""
BLUE = f"""
kind: Network
metadata: {{name: blue}}
spec: {{}}
status: {{vni: 10, {READY}}}
---
kind: Subnet
metadata: {{name: blue-v4}}
spec: {{network: blue, cidr: 10.1.0.0/24, dhcp: {{}}}}
status: {{validated: true, capacity: 253, used: 1, {READY}}}
---
kind: NetworkAttachment
metadata: {{name: web}}
spec: {{node: n1, network: blue}}
status: {{ips: [10.1.0.2/24], mac: "06:01:00:02:00:0a", ifcName: nl1, {READY}}}
"""


def shown(*texts: str) -> list[str]:
    found = overview(resources("---".join(texts)), NOW)
    return list(lines(found, "https://here", "default"))


def problems(*texts: str) -> list[str]:
    return [str(one) for one in overview(resources("---".join(texts)), NOW).problems]


def test_a_tree_of_what_there_is() -> None:
    assert shown(NODE, BLUE) == [
        "Netloom at https://here, namespace default",
        "",
        "No problems found.",
        "",
        "Nodes",
        "└─ n1  172.31.0.1, userspace, 1 attachment  ready",
        "Networks",
        "└─ blue  VNI 10",
        "   ├─ blue-v4  10.1.0.0/24, 1 of 253 used, DHCP",
        "   └─ on n1",
        "      └─ web  10.1.0.2, nl1  ready",
    ]


def test_all_else_has_a_line_that_says_what_it_does() -> None:
    more = f"""
kind: Router
metadata: {{name: r}}
spec: {{networks: [{{network: blue}}], gateway: {{network: out, ips: [192.0.2.10/24]}}}}
status: {{gatewayNode: n1, {READY}}}
---
kind: SecurityProfile
metadata: {{name: p}}
spec: {{ingress: []}}
status: {{ports: 1, {READY}}}
---
kind: LoadBalancer
metadata: {{name: l}}
spec: {{networks: [blue], vips: [{{ip: "fd00::1", port: 80}}], endpoints: []}}
status: {{endpointsUp: 2, {READY}}}
---
kind: Shaping
metadata: {{name: s}}
spec: {{from: {{attachment: web}}, to: {{node: n1}}, rate: 10mbit, delay: 5ms}}
status: {{applied: {{rate: 10mbit}}, {READY}}}
---
kind: Mirror
metadata: {{name: m}}
spec: {{source: {{attachment: web}}, destination: {{attachment: tap}}}}
status: {{{READY}}}
"""
    text = "\n".join(shown(NODE, BLUE, more))
    assert "└─ r  joins blue, external network out as 192.0.2.10, gateway on n1" in text
    assert "└─ p  covers 1 port, ingress 0 rules, egress open" in text
    assert "└─ l  [fd00::1]:80/tcp, 2 endpoints up, 0 down, in blue" in text
    assert "└─ s  from web to node n1 and back, rate 10mbit, delay 5ms" in text
    assert "└─ m  copies web to tap, both" in text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("11:59:55", "11:50:00", "Node n1: its agent sent its last heartbeat 10m ago"),
        ("capacity: 253", "capacity: 1", "Subnet default/blue-v4: all of its 1 addresses are in use"),
        ("node: n1", "node: n9", "NetworkAttachment default/web: there is no Node n9"),
        (
            f"ifcName: nl1, {READY}",
            "conditions: [{type: Plugged, status: 'False', message: no netns}, {type: Ready, status: 'False'}]",
            "NetworkAttachment default/web: no netns",
        ),
        (f"vni: 10, {READY}", "conditions: [{type: Ready, status: 'False', reason: Full}]",
         "Network default/blue: Ready is False (Full)"),
    ],
)  # fmt: skip
def test_a_problem_is_said_in_words(old: str, new: str, said: str) -> None:
    whole = NODE + "---" + BLUE
    assert old in whole
    assert problems(whole.replace(old, new)) == [said]


def test_what_no_controller_has_processed_is_a_problem_only_after_a_while() -> None:
    text = "{kind: Network, metadata: {name: red, creationTimestamp: '2026-11-15T11:59:%s'}, spec: {}}"
    assert problems(text % "58Z") == []
    assert problems(text % "00Z") == [
        "Network default/red: no controller has processed its current spec: check that one runs"
    ]


def test_a_balancer_whose_endpoints_are_down_and_a_shaping_that_cannot_be() -> None:
    balancer = f"""
kind: LoadBalancer
metadata: {{name: l}}
spec: {{networks: [blue], vips: [{{ip: 10.1.0.9, port: 80}}], endpoints: []}}
status: {{endpointsUp: 1, endpointsDown: 1, {READY}}}
"""
    shaping = f"""
kind: Shaping
metadata: {{name: s}}
spec: {{from: {{attachment: web}}, loss: 1%}}
status: {{unsupported: [{{field: loss, reason: no netem here}}], {READY}}}
"""
    assert problems(balancer, shaping) == [
        "LoadBalancer default/l: 1 of 2 endpoints does not answer",
        "Shaping default/s: loss has no effect: no netem here",
    ]


def test_many_with_the_same_problem_share_a_line() -> None:
    many = "---".join(
        BLUE.rpartition("---")[2].replace("name: web", f"name: w{i}").replace("n1", "n9") for i in range(9)
    )
    text = shown(NODE, BLUE, many)
    assert "  NetworkAttachment default/w0 and 8 others: there is no Node n9" in text
    assert "9 problems:" in text


def test_control_characters_of_others_do_not_reach_the_terminal() -> None:
    bad = BLUE.replace("ifcName: nl1", "ifcName: nl1, errors: {host: []}").replace(
        READY, 'conditions: [{type: Ready, status: "False", message: "a\\u001b[31mb"}]', 1
    )
    assert "\x1b" not in "\n".join(shown(NODE, bad))


def test_the_command_speaks_text_and_json_and_fails_if_there_are_problems(server: Serving, ns: str) -> None:
    answer = server.cli("status", "-n", ns)
    assert f"Namespace {ns} is empty." in answer.out
    apply(server, ns, network("blue"), subnet("v4", "10.0.0.0/24"), subnet("v4-again", "10.0.0.0/25"))
    server.cli("wait", "-n", ns, "network/blue", "--for", "condition=Ready")
    server.cli("wait", "-n", ns, "subnet/v4", "subnet/v4-again", "--for", "jsonpath={.status.conditions}")
    answer = server.cli("status", "-n", ns, check=False)
    assert answer.rc == 1
    assert "CIDR overlaps with" in answer.out
    assert "FAILED" in answer.out
    assert "\x1b" not in answer.out
    found = json.loads(server.cli("status", "-n", ns, "-o", "json", check=False).out)
    assert found["healthy"] is False
    assert found["namespaces"][ns][0]["items"][0]["name"] == "blue"
    assert ns in server.cli("status", "-A", check=False).out


def test_an_agent_is_silent_when_the_controllers_say_so_and_not_before() -> None:
    assert problems(NODE.replace("11:59:55", "11:59:22")) == []
    [said] = problems(NODE.replace("11:59:55", "11:59:19"))
    assert "n1" in said
