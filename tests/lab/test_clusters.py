"""The kubeconfigs of a lab whose API is a cluster's: all lead to one port of the loopback, and expect the cluster."""

from pathlib import Path

import pytest

from netloom.errors import Invalid
from netloom.lab import clusters
from netloom.lab.layout import Layout
from netloom.lab.state import State
from netloom.run.access import credentials
from netloom.store.kube import kubeconfig


def written(path: Path, server: str, **user: str) -> Path:
    path.write_text(credentials.kubeconfig(server, b"A CA", "somebody", dict(user)))
    return path


def test_every_kubeconfig_leads_to_the_labs_port_and_keeps_who_it_is(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    admin = written(given / "admin.kubeconfig", "https://k8s.example:6443", token="admin")
    written(given / "n1.kubeconfig", "https://k8s.example:6443", token="one")
    layout = Layout(tmp_path / "lab", State(nodes=2, port=20001, cluster=clusters.endpoint(admin)))
    for node in layout.nodes:
        layout.node(node).mkdir(parents=True)
    clusters.write_credentials(layout, admin, given)
    files = [layout.kubeconfig, layout.controller_kubeconfig, *(layout.agent_kubeconfig(node) for node in layout.nodes)]
    found = [kubeconfig.load(str(path)) for path in files]
    assert [one.token for one in found] == ["admin", "admin", "one", "admin"]
    assert {(one.server, one.server_name, one.ca) for one in found} == {
        ("https://127.0.0.1:20001", "k8s.example", b"A CA")
    }
    assert clusters.target(layout.state.cluster) == ("k8s.example", 6443)


@pytest.mark.parametrize("server", ["http://k8s.example:8080", "https://k8s.example/clusters/one"])
def test_an_api_that_cannot_be_brought_to_a_port_is_refused(server: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        clusters.endpoint(written(tmp_path / "k", server, token="t"))
