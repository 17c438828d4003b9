"""Files with one fault each: the finding beside each file is all that is reported."""

from pathlib import Path

import pytest

from netloom.model.topology.reading import read

HERE = Path(__file__).parent
FAULTS = sorted(path for path in (HERE / "faults").iterdir() if path.suffix != ".expected")
VALID = sorted((HERE / "valid").iterdir())


@pytest.mark.parametrize("file", FAULTS, ids=lambda file: file.name)
def test_a_file_with_a_fault_gives_exactly_its_finding(file: Path) -> None:
    reading = read(file.read_bytes())
    assert [str(finding) for finding in reading.findings] == _expected(file).read_text().splitlines()
    only_warnings = all(finding.is_warning for finding in reading.findings)
    assert reading.is_valid == only_warnings
    assert only_warnings or (reading.topology, reading.containers) == (None, None)


def test_every_fault_has_its_finding_and_every_finding_its_file() -> None:
    assert len(FAULTS) >= 60
    assert {_expected(file) for file in FAULTS} == set((HERE / "faults").glob("*.expected"))
    assert all(_expected(file).read_text().count("\n") == 1 for file in FAULTS)


@pytest.mark.parametrize("file", VALID, ids=lambda file: file.name)
def test_the_files_from_which_the_faults_were_made_are_valid(file: Path) -> None:
    assert read(file.read_bytes()).findings == ()


def test_all_faults_of_a_file_are_reported_at_once_and_by_place() -> None:
    text = """\
name: Small
hosts:
  - name: server
    flavour: standard.small
    hidden: maybe
  - flavor: standard.small
networks:
  - {name: lan, cidr: 10.0.0.0/24}
  - {name: dmz, cidr: 10.0.0.128/25}
net_mappings:
  - {host: server, network: lan, ip: 10.0.1.5}
  - {host: server, network: wifi, ip: 10.0.2.5}
groups:
  - {name: hosts, nodes: [server, server]}
hosts: []
"""
    assert [str(finding) for finding in read(text.replace("hosts: []\n", "").encode()).findings] == [
        '1:7: Cannot set TopologyDefinition.name to "Small". It does not match regex "^[a-z]([a-z0-9A-Z-])*$".',
        '4:5: unknown key "flavour" (did you mean "flavor"?)',
        '5:13: Invalid value: "maybe": must be true or false',
        '6:5: the key "name" is missing',
        '9:23: Network "dmz" overlaps with network "lan".',
        '11:38: IP address "10.0.1.5" is not valid host address of "10.0.0.0/24" defined in network "lan".',
        '12:29: Invalid network mapping with ip "10.0.2.5". Cannot find network with name "wifi".',
        '14:12: Invalid group with name "hosts". The name is reserved: choose another one.',
        "14:35: Uniqueness violation. The following name identifiers are not unique within the [Group.nodes] "
        "definition: ['server'].",
    ]
    assert '15:1: duplicate key "hosts"' in [str(finding) for finding in read(text.encode()).findings]


def _expected(file: Path) -> Path:
    return file.with_name(file.name + ".expected")
