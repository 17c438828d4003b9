"""Reading of topologies: what is valid stays what it is, and nothing crashes the reader."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.model import codec
from netloom.model.document import Document
from netloom.model.kinds.sandbox import Topology, Wan
from netloom.model.registry import SANDBOX
from netloom.model.schemas import validation
from netloom.model.topology import checks, exports, views
from netloom.model.topology.findings import MOST_FINDINGS
from netloom.model.topology.reading import Format, read
from tests.model.topology.topologies import topology_documents

SMALL = b"""
name: small
hosts: [{name: server, base_box: &box {image: debian-12}}, {name: home, base_box: {<<: *box, mgmt_user: root}}]
monitoring_targets: [{node: server, targets: [{port: 22, interface: ens3}]}]
"""


def written(topology: Topology) -> bytes:
    return codec.encode_yaml(msgspec.json.decode(msgspec.json.encode(topology))).encode()


@given(topology_documents())
def test_a_valid_topology_has_no_errors_and_is_the_same_when_read_again(document: Document) -> None:
    reading = read(codec.encode_yaml(document).encode())
    assert reading.is_valid, reading.findings
    assert reading.topology is not None
    assert [problem for problem in checks.check(reading.topology) if not problem.is_warning] == []
    assert read(written(reading.topology)).topology == reading.topology
    assert read(json.dumps(document).encode()).topology == reading.topology


@given(topology_documents())
def test_every_view_of_a_valid_topology_names_all_that_it_has(document: Document) -> None:
    topology = read(codec.encode_yaml(document).encode()).topology
    assert topology is not None
    for text in (views.svg(topology), views.mermaid(topology), views.dot(topology)):
        assert all(one["name"] in text for one in [*document["hosts"], *document["routers"], *document["networks"]])
    assert views.tree(topology).count("\n") >= 1 + len(document["routers"])
    machines = {one["name"] for one in [*document["hosts"], *document["routers"]]}
    assert exports.inventory(topology)["all"]["hosts"].keys() == machines | {"man"}
    shown = {router["name"] for router in exports.front_end(topology)["routers"]}
    assert shown == {one["name"] for one in document["routers"]}
    again = read(exports.ssh_config(topology).encode())
    assert again.format is Format.SSH_CONFIG
    assert {machine.names[0] for machine in again.machines} == machines | {"man"}


@given(st.binary(max_size=200))
def test_any_bytes_give_a_topology_or_findings(data: bytes) -> None:
    reading = read(data)
    assert reading.findings or reading.topology or reading.containers or reading.machines


KEYS = st.sampled_from([*Topology.__struct_fields__, "containers", "sandbox", "zzz"])
INNER = st.sampled_from(
    [
        *("name", "base_box", "image", "cidr", "host", "network", "ip", "nodes"),
        *("tcp", "node", "targets", "destination", "hosts", "lan"),
    ]
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(["a", "10.0.0.0/24", "10.0.0.1", "", "A_"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(INNER, inner, max_size=3)),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_mapping_gives_a_topology_or_findings_inside_the_text(document: Document) -> None:
    text = codec.encode_yaml(document)
    reading = read(text.encode())
    lines = text.split("\n")
    for finding in reading.findings:
        assert 1 <= finding.line <= len(lines)
        assert 1 <= finding.column <= len(lines[finding.line - 1]) + 1
    assert reading.is_valid == (reading.topology is not None or reading.containers is not None)


@given(topology_documents(), st.data())
def test_a_valid_topology_with_one_value_replaced_never_crashes_the_reader(
    document: Document, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(document)))
    value = document[key]
    if isinstance(value, list) and value:
        index = data.draw(st.integers(0, len(value) - 1))
        inner = data.draw(st.sampled_from(sorted(value[index])))
        value[index][inner] = data.draw(VALUES)
    else:
        document[key] = data.draw(VALUES)
    reading = read(codec.encode_yaml(document).encode())
    assert reading.topology is not None or not reading.is_valid


def test_defaults_and_deprecated_names_are_filled_in_on_reading() -> None:
    reading = read(b"name: small\nhosts: [{name: a, base_box: {image: i, man_user: root, mng_protocol: winrm}}]\n")
    assert reading.topology is not None
    box = reading.topology.hosts[0].base_box
    assert box is not None
    assert (box.mgmt_user, box.mgmt_protocol, box.man_user, box.mng_protocol) == ("root", "WINRM", "", "")
    assert reading.topology.wan == Wan(name="wan", cidr="100.100.100.0/24")


def test_aliases_merge_keys_and_the_older_monitoring_list_are_read() -> None:
    topology = read(SMALL).topology
    assert topology is not None
    boxes = [host.base_box for host in topology.hosts]
    assert [(box.image, box.mgmt_user) for box in boxes if box] == [("debian-12", "debian"), ("debian-12", "root")]
    assert topology.monitoring_targets is not None
    assert topology.monitoring_targets.tcp[0].targets[0].port == 22


def test_a_read_topology_is_one_that_the_api_accepts() -> None:
    topology = read(SMALL).topology
    document = {"apiVersion": SANDBOX.api_version, "kind": "Sandbox", "metadata": {"name": "a", "namespace": "b"}}
    spec = {"topology": msgspec.json.decode(msgspec.json.encode(topology))}
    assert validation.admit(SANDBOX, document | {"spec": spec}) == []


def test_a_file_with_thousands_of_errors_reports_the_first_and_their_number() -> None:
    reading = read(b"name: small\n" + b"".join(b"k%d: 1\n" % i for i in range(5000)))
    assert len(reading.findings) == MOST_FINDINGS + 1
    assert str(reading.findings[-1]).endswith("and 4000 more")


def test_a_file_that_is_too_large_is_refused_before_it_is_read() -> None:
    (finding,) = read(b"#" * (codec.SIZE_LIMIT + 1)).findings
    assert "at most 3145728 are allowed" in finding.message


def test_aliases_that_expand_without_end_are_refused() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(40))
    (finding,) = read(text.encode()).findings
    assert "expands to more than" in finding.message


def test_json_that_is_no_yaml_is_read_without_places() -> None:
    reading = read(b'{"name": "small", "hosts": [{"name": "a", "flavor": "\\ud83d\\ude00"}], "x": 1}')
    assert [str(finding) for finding in reading.findings] == ['1:1: unknown key "x"']


def test_a_long_text_that_many_values_repeat_is_not_repeated_in_messages() -> None:
    long = "a" * 1_000_000
    for item in ("*x", "[*x]", "{name: *x}", "{name: b, flavor: *x}", "{<<: *y}"):
        text = f"name: a\nhosts:\n- {{name: &x {long}, extra: &y {{? {long} : 1}}}}\n" + f"- {item}\n" * 500
        reading = read(text.encode())
        assert len(reading.findings) >= 500
        assert sum(len(finding.message) for finding in reading.findings) < 500_000


def test_json_with_too_many_values_and_no_places_is_refused() -> None:
    (finding,) = read(b'{"name": "\\ud83d\\ude00", "hosts": [' + b"[]," * codec.VALUE_LIMIT + b"[]]}").findings
    assert "commas and brackets" in finding.message


def test_old_formats_that_are_not_utf8_name_the_line() -> None:
    assert [str(finding) for finding in read(b"Host a\n# \xff\n").findings] == ["2:1: not UTF-8 at byte 9"]


def test_more_machines_or_rows_than_allowed_are_refused() -> None:
    (finding,) = read(b"Host a\n" * 5000).findings
    assert finding.message == "the config has more than 4096 machines"
    rows = b"a\t1\n" * 20_001
    (finding,) = read(b"COPY node (name, measurable_id) FROM stdin;\n" + rows + b"\\.\n").findings
    assert str(finding) == "20002:1: the dump has more than 20000 rows"


def test_an_older_monitoring_list_of_json_without_places_is_read() -> None:
    targets = b'[{"node": "\\ud83d\\ude00"}]'
    (finding,) = read(b'{"name": "a", "monitoring_targets": ' + targets + b"}").findings
    assert (finding.line, finding.column) == (1, 1)
    assert "No node with name" in finding.message


MANIFEST = """\
apiVersion: netloom.dev/v1alpha1
kind: Sandbox
metadata: {name: rooms, labels: {course: a}}
spec:
  run: true
  links: [{host: alice, network: left, rate: 10mbit}]
  topology:
    name: rooms
    hosts: [{name: alice}]
    routers: [{name: hall}]
    networks: [{name: left, cidr: 10.1.0.0/24}]
    net_mappings: [{host: alice, network: left, ip: 10.1.0.5}]
    router_mappings: [{router: hall, network: left, ip: 10.1.0.1}]
"""


def test_a_sandbox_object_is_read_with_its_topology_and_links() -> None:
    found = read(MANIFEST.encode())
    assert found.format is Format.SANDBOX
    assert found.findings == ()
    assert found.topology is not None
    assert found.topology.name == "rooms"
    assert [(link.host, link.rate) for link in found.links] == [("alice", "10mbit")]
    assert found.sandbox is not None
    assert found.sandbox["metadata"]["labels"] == {"course": "a"}


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("netloom.dev/v1alpha1", "netloom.dev/v2", "1:13: must be netloom.dev/v1alpha1"),
        ("metadata: {name: rooms, labels: {course: a}}", "", "1:1: metadata.name: required"),
        ("  run: true", "  ran: true", '5:3: unknown key "ran" (did you mean "run"?)'),
        ("rate: 10mbit", "delay: soon", "6:"),
        (", rate: 10mbit", "", "6:11: Required value: at least one of rate, delay and loss must be set"),
        ("ip: 10.1.0.5", "ip: 10.2.0.5", "12:"),
        ("metadata:", "more: 1\nmetadata:", '3:1: unknown key "more"'),
        ("  topology:", "  topolog:", "5:3: spec.topology: required"),
    ],
)
def test_a_wrong_sandbox_object_is_refused_at_the_place_of_the_fault(before: str, after: str, problem: str) -> None:
    assert before in MANIFEST
    found = read(MANIFEST.replace(before, after).encode())
    assert found.topology is None
    assert found.sandbox is None
    assert str(found.findings[0]).startswith(problem), found.findings
