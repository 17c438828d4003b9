"""Sample files of the old platform and of CyberRangeCZ, as their projects have them (`samples/`)."""

from pathlib import Path

from netloom.model.topology.reading import Reading, read

FOLDER = Path(__file__).parent / "samples"
TOPOLOGIES = {
    "topology": "topology.yml",
    "monitoring": "topology-with-monitoring.yml",
    "vpn": "topology-with-vpn.yml",
    "forwarding": "topology-with-forwarding.yml",
    "platform": "expected/definition.yml",
    "openstack": "openstack-lib-definition.yml",
    "empty": "openstack-lib-definition-empty.yml",
    "example": "legacy-json/example_conf.json",
    "deploy": "legacy-json/readme-sdn-deploy.json",
    "desired": "legacy-json/readme-sdn-desired.json",
}
"""The files that are topologies, by a short name."""


def sample(path: str) -> Reading:
    """Return the content of a sample."""
    return read((FOLDER / path).read_bytes())
