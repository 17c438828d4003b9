"""`netloom plan`: what would change, found without changing anything."""

import json

from tests.cli.test_commands import apply, network, subnet, text
from tests.run.serving import Answer, Serving

VERSION = "netloom.dev/v1alpha1"


def attachment(name: str, **spec: object) -> dict[str, object]:
    spec = {"node": "n1", "network": "blue", **spec}
    return {"apiVersion": VERSION, "kind": "NetworkAttachment", "metadata": {"name": name}, "spec": spec}


def plan(server: Serving, ns: str, *documents: object, flags: tuple[str, ...] = (), check: bool = True) -> Answer:
    return server.cli("plan", "-n", ns, "-f", "-", *flags, stdin=text(*documents), check=check)


def settled(server: Serving, ns: str, *documents: object) -> None:
    apply(server, ns, *documents)
    for document in documents:
        assert isinstance(document, dict)
        kind, name = document["kind"].lower(), document["metadata"]["name"]
        goal = "condition=Addressed" if kind == "networkattachment" else "condition=Ready"
        server.cli("wait", "-n", ns, f"{kind}/{name}", "--for", goal)


def test_a_new_network_with_all_that_is_in_it(server: Serving, ns: str) -> None:
    answer = plan(server, ns, network("blue"), subnet("v4", "10.20.0.0/24"), attachment("a", ips=["10.20.0.9"]),
                  attachment("b"))  # fmt: skip
    assert "network.netloom.dev/blue would be created" in answer.out
    assert f"    + Logical_Switch {ns}/blue" in answer.out
    assert "requested-tnl-key=(a VNI)" in answer.out
    assert "addresses: (a MAC) 10.20.0.9" in answer.out
    assert "addresses: (a MAC) (an address of v4)" in answer.out
    assert f"    + NetworkAttachment/{ns}/b" in answer.out
    assert "Rows in OVN:" in answer.out
    assert server.cli("get", "networks", "-n", ns, check=False).err == f"No resources found in {ns} namespace.\n"


def test_what_is_there_already_changes_nothing(server: Serving, ns: str) -> None:
    manifests = network("blue"), subnet("v4", "10.21.0.0/24"), attachment("a")
    settled(server, ns, *manifests)
    answer = plan(server, ns, *manifests)
    assert "network.netloom.dev/blue unchanged" in answer.out
    assert answer.out.endswith("Nothing would change in OVN or on the nodes.\n")


def test_one_more_is_one_row_and_one_more_in_the_switch(server: Serving, ns: str) -> None:
    settled(server, ns, network("blue"), subnet("v4", "10.22.0.0/24"), attachment("a"))
    found = json.loads(plan(server, ns, attachment("b", ips=["10.22.0.7"]), flags=("-o", "json")).out)
    rows = {(one["kind"], one["table"]) for one in found["rows"]}
    assert rows == {("create", "Logical_Switch_Port"), ("change", "Logical_Switch")}
    [port] = found["ports"]
    assert (port["kind"], port["node"], port["unit"]) == ("create", "n1", f"NetworkAttachment/{ns}/b")
    assert found["objects"] == {"networkattachment.netloom.dev/b": "created"}


def test_deleting_shows_what_goes_and_refuses_what_is_in_use(server: Serving, ns: str) -> None:
    manifests = network("blue"), subnet("v4", "10.23.0.0/24"), attachment("a")
    settled(server, ns, *manifests)
    answer = plan(server, ns, *manifests, flags=("--delete",))
    assert f"    - Logical_Switch {ns}/blue" in answer.out
    assert f"    - NetworkAttachment/{ns}/a" in answer.out
    answer = plan(server, ns, network("blue"), flags=("--delete",), check=False)
    assert answer.rc == 1
    assert f"NetworkAttachment {ns}/a" in answer.err
    assert "Nothing would change" in answer.out
    answer = plan(server, ns, network("red"), flags=("--delete",))
    assert "network.netloom.dev/red not found" in answer.out


def test_what_would_not_work_is_told(server: Serving, ns: str) -> None:
    settled(server, ns, network("blue"), subnet("v4", "10.24.0.0/24"))
    answer = plan(server, ns, attachment("out", ips=["10.99.0.1"]), attachment("lost", network="red"))
    assert "Problems:" in answer.out
    assert f"NetworkAttachment/{ns}/out: 10.99.0.1 is outside Subnet v4 (10.24.0.0/24)" in answer.out
    assert f"NetworkAttachment/{ns}/lost: Network red does not exist" in answer.out


def test_whether_a_network_may_join_its_physical_network_is_told(server: Serving, ns: str) -> None:
    outside = {**network("out"), "spec": {"provider": {"physicalNetwork": "p", "vlan": 7}}}
    answer = plan(server, ns, outside)
    assert f"    + Logical_Switch {ns}/out" in answer.out
    assert f"valid only if the controllers' setting providerGrants grants {ns}=p:7" in answer.out
    answer = plan(server, ns, outside, flags=("--provider-grants", f"{ns}=p:1-9"))
    assert f"    + Logical_Switch {ns}/out" in answer.out
    assert "Problems:" not in answer.out
    words = (
        "may not join VLAN 7 of physical network p; an administrator grants it to the controllers by the setting"
        f" providerGrants: {ns}=p:7"
    )
    answer = plan(server, ns, outside, flags=("--provider-grants", "other=p"))
    assert words in answer.out
    assert "Nothing would change in OVN or on the nodes." in answer.out
    # The server of this test grants nothing, and says so of what is there.
    apply(server, ns, outside, {**subnet("v4", ""), "spec": {"network": "out", "cidr": "10.25.0.0/24"}})
    server.cli("wait", "-n", ns, "network/out", "--for", "jsonpath={.status.conditions[0].reason}=NotGranted")
    server.cli("wait", "-n", ns, "subnet/v4")
    answer = plan(server, ns, attachment("a", network="out"))
    assert f"NetworkAttachment/{ns}/a: spec.network: Network out: spec.provider: namespace {ns} {words}" in answer.out
    assert "Logical_Switch_Port" not in answer.out


def test_a_wrong_document_is_refused_as_by_apply_and_the_rest_planned(server: Serving, ns: str) -> None:
    bad = {**subnet("v4", "10.0.0.1/24")}
    answer = plan(server, ns, bad, network("blue"), flags=(), check=False)
    assert answer.rc == 1
    assert "spec.cidr" in answer.err
    assert f"    + Logical_Switch {ns}/blue" in answer.out


def test_wrong_usage_is_told(server: Serving, ns: str) -> None:
    assert plan(server, ns, check=False).rc == 2
    assert server.cli("plan", check=False).rc == 2
    answer = server.cli("plan", "--fil", "x", check=False)
    assert (answer.rc, "--filename" in answer.err) == (2, True)
