"""`netloom vtep` as its users run it: a real process on a real API server, asked with curl."""

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from netloom.model import codec
from tests.run.serving import Serving, netloom, serving
from tests.run.vtep import SESSION, Vtep, curl, replay, undo, vtep
from tests.support.ovn import OvnNode, ovn_node, own
from tests.support.process import free_port, wait_until

pytestmark = pytest.mark.slow

SPEAKER = {"as_number": 65000, "router_id": "192.168.10.20"}
NODE = """
apiVersion: netloom.dev/v1alpha1
kind: Node
metadata: {name: gw}
spec: {underlayIP: 192.168.10.20}
"""
CHECKS: Any = [not_a_server_error, checks.response_schema_conformance, checks.content_type_conformance]
BESIDE = f"127.0.0.1:{free_port()}"
KINDS = "bgpspeakers,bgppeers,evpnnetworks,networks"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("serve"), "--vtep-listen", BESIDE) as running:
        yield running


def token(server: Serving, name: str, role: str) -> str:
    made: str = credential(server, "--name", name, "--role", role)["token"]
    return made


def credential(server: Serving, *args: str) -> Any:
    """Create a credential, and return the user of its kubeconfig."""
    made = netloom("credential", "--data", server.data, *args).out
    return codec.decode(made.encode(), "application/yaml")["users"][0]["user"]


def objects(server: Serving, namespace: str) -> list[str]:
    shown = json.loads(server.cli("get", KINDS, "-n", namespace, "-o", "json").out)
    return sorted(f"{one['kind']}/{one['metadata']['name']}" for one in shown["items"])


@pytest.mark.ovn
@pytest.mark.lab
@pytest.mark.root
def test_the_session_of_the_old_systems_gives_the_same_answers(tmp_path: Path, server: Serving) -> None:
    with ovn_node(tmp_path / "ovs", own("netloom-vtep"), "mininet") as node:
        node.vsctl("add-br", "s1", "--", "set", "bridge", "s1", "datapath_type=netdev", "other-config:datapath-id=1")
        node.vsctl("set", "bridge", "s1", 'other-config:datapath-id="0000000000000001"')
        node.vsctl("add-port", "s1", "s1-eth1", "--", "set", "interface", "s1-eth1", "type=internal")
        wait_until(lambda: node.vsctl("get", "interface", "s1-eth1", "ofport").strip() == "1", what="the port")
        wait_until(lambda: "0001" in node.vsctl("get", "bridge", "s1", "datapath_id"), what="the datapath")
        ovs = ["--ovs", node.database.remote]
        with (
            vtep(tmp_path, server, "--namespace", "ryu", "--node", "ryu", *ovs, name="ryu") as ryu,
            vtep(tmp_path, server, "--namespace", "evpn", "--node", "gw", name="evpn") as evpn,
        ):
            sides = {"ryu": ryu, "evpn": evpn}
            assert [step["side"] for step in replay(sides)].count("ryu") == 4
            before = {name: side.request("GET", "/vtep/networks") for name, side in sides.items()}
            for name, side in sides.items():
                side.restart()
                assert side.request("GET", "/vtep/networks") == before[name]
            assert objects(server, "evpn") == [
                "BGPPeer/vtep-192.168.10.10", "BGPSpeaker/vtep", "EVPNNetwork/vni-10", "Network/ls1",
            ]  # fmt: skip
            wrong = {"port": "s1-eth9", "mac": "02:ac:10:ff:00:19", "ip": "192.168.222.19"}
            answer = ryu.request("POST", "/vtep/networks/10/clients", wrong)
            assert answer == (404, {"error": "No such OFPort: s1-eth9", "status": 404})
            for name, side in sides.items():
                list(undo(side, [step for step in SESSION["steps"] if step["side"] == name]))
                assert objects(server, name) == []
            answer = ryu.request("POST", "/vtep/speakers", SPEAKER | {"dpid": 2})
            assert answer == (404, {"error": "No such datapath: 2", "status": 404})
            _replay_documents_of_ryu(server, ryu, node)


def _replay_documents_of_ryu(server: Serving, ryu: Vtep, node: OvnNode) -> None:
    """Send the requests in ryu's documents, and write what its speaker would learn of the other host."""
    told = SESSION["rest_vtep"]
    ours, theirs = told["hosts"]["A"], told["hosts"]["B"]
    ryu.request("POST", "/vtep/speakers", {"dpid": 1, "as_number": told["as"], "router_id": ours})
    ryu.request("POST", "/vtep/neighbors", {"address": theirs, "remote_as": told["as"]})
    ryu.request("POST", "/vtep/networks", {"vni": told["vni"]})
    ryu.request("POST", f"/vtep/networks/{told['vni']}/clients", told["clients"]["A"])
    port = f"vxlan_{theirs}_{told['vni']}"
    options = ["type=vxlan", f"options:remote_ip={theirs}", f"options:key={told['vni']}", "ofport_request=3"]
    node.vsctl("add-port", "s1", port, "--", "set", "interface", port, *options)
    wait_until(lambda: node.vsctl("get", "interface", port, "ofport").strip() == "3", what="the tunnel")
    owner = json.loads(server.cli("get", "evpnnetwork/vni-10", "-n", "ryu", "-o", "json").out)
    remote = told["clients"]["B"]
    learned = {
        "apiVersion": owner["apiVersion"],
        "kind": "RemoteVTEP",
        "metadata": {
            "name": f"vni-10.{theirs}.10.0",
            "ownerReferences": [
                {key: owner[key] for key in ("apiVersion", "kind")}
                | {key: owner["metadata"][key] for key in ("name", "uid")}
            ],
        },
        "spec": {
            "evpnNetwork": "vni-10",
            "network": "vni-10",
            "node": "ryu",
            "address": theirs,
            "vni": told["vni"],
            "localVNI": told["vni"],
            "macs": [{"mac": remote["mac"], "ips": [remote["ip"]]}],
        },
    }
    server.cli("apply", "-n", "ryu", "-f", "-", stdin=json.dumps(learned))
    wait_until(
        lambda: ryu.request("GET", "/vtep/networks") == (200, told["GET /vtep/networks on A afterwards"]),
        what="the answer of ryu's documents",
    )
    assert ryu.request("DELETE", "/vtep/speakers")[0] == 200
    assert objects(server, "ryu") == []


def test_clients_authenticate_and_need_the_right_to_write(tmp_path: Path, server: Serving) -> None:
    admin = (server.data / "admin.token").read_text().strip()
    editor, viewer = token(server, "vtep-editor", "editor"), token(server, "vtep-viewer", "viewer")
    node = token(server, "vtep-node", "node:n1")
    with vtep(tmp_path, server, "--namespace", "tls", "--node", "gw", secure=True) as running:
        for who, code in {"": 401, "wrong": 401, node: 403, viewer: 403}.items():
            got, answer = running.request("POST", "/vtep/speakers", SPEAKER, token=who)
            assert (got, answer["status"]) == (code, code)
        assert objects(server, "tls") == []
        assert running.request("POST", "/vtep/speakers", SPEAKER, token=editor)[0] == 200
        assert running.request("GET", "/vtep/speakers", token=viewer)[0] == 200
        assert running.request("GET", "/vtep/speakers", token=node)[0] == 403
        assert running.request("GET", "/openapi.json")[0] == 401
        assert running.request("GET", "/openapi.json", token=viewer)[1]["openapi"] == "3.0.3"
        greeting = curl("--cacert", server.data / "ca.crt", f"{running.url}/test")
        assert greeting == (200, "<p>Hello, World!</p>")
        assert running.request("DELETE", "/vtep/speakers", token=admin)[0] == 200
        assert running.program.stop() == 0
    log = running.log.read_text()
    assert not any(secret in log for secret in (admin, editor, viewer))


def test_an_editor_of_the_namespace_is_enough_for_the_process(tmp_path: Path, server: Serving) -> None:
    limited = tmp_path / "limited.kubeconfig"
    role = ["--name", "vtep-limited", "--role", "editor", "-n", "limited", "-o", str(limited)]
    netloom("credential", "--data", server.data, *role)
    args = ["--namespace", "limited", "--node", "gw", "--kubeconfig", str(limited)]
    with vtep(tmp_path, server, *args) as running:
        assert running.request("POST", "/vtep/speakers", SPEAKER)[0] == 200
        assert running.request("POST", "/vtep/networks", {"vni": 10})[0] == 200
        assert running.request("DELETE", "/vtep/speakers")[0] == 200
    assert objects(server, "limited") == []


def certificate(folder: Path, server: Serving, name: str, role: str) -> list[str]:
    """Create a client certificate, and return the options of curl for it."""
    user = credential(server, "--name", name, "--role", role, "--certificate")
    for part in ("certificate", "key"):
        (folder / part).write_bytes(base64.b64decode(user[f"client-{part}-data"]))
    return ["--cert", str(folder / "certificate"), "--key", str(folder / "key")]


def test_a_web_site_cannot_use_the_client_certificate_of_a_browser(tmp_path: Path, server: Serving) -> None:
    # A form of any site may POST text/plain, and the browser presents the certificate by itself.
    pair = certificate(tmp_path, server, "vtep-browser", "editor")
    with vtep(tmp_path, server, "--namespace", "browser", "--node", "gw", secure=True) as running:
        request = [*pair, "--cacert", str(server.data / "ca.crt"), "-d", json.dumps(SPEAKER)]
        for origin in ("https://example.com", "null"):
            headers = ["-H", f"Origin: {origin}", "-H", "Content-Type: text/plain"]
            code, text = curl(*request, *headers, f"{running.url}/vtep/speakers")
            assert (code, json.loads(text)["status"]) == (403, 403)
        assert objects(server, "browser") == []
        assert curl(*request, f"{running.url}/vtep/speakers")[0] == 200


def test_the_body_of_a_refused_request_is_not_the_next_request(tmp_path: Path, server: Serving) -> None:
    with vtep(tmp_path, server, "--namespace", "smuggled", "--node", "gw") as running:
        body = json.dumps(SPEAKER).encode()
        hidden = (
            b"POST /vtep/speakers HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
            % (len(body), body)
        )
        for path, more in ((b"/vtep/speakers", b"Origin: https://example.com\r\n"), (b"/nowhere", b"")):
            with socket.create_connection(("127.0.0.1", running.port), timeout=120) as raw:
                head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\n%bContent-Length: %d\r\n\r\n"
                raw.sendall(head % (path, more, len(hidden)) + hidden)
                assert raw.recv(1000).startswith(b"HTTP/1.1 40")
            lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            with socket.create_connection(("127.0.0.1", running.port), timeout=120) as raw:
                raw.sendall(b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\n%b%b%b" % (path, more, lengths, hidden))
                assert raw.recv(1000).startswith(b"HTTP/1.1 40")
        assert running.request("GET", "/vtep/speakers")[0] == 404
    assert objects(server, "smuggled") == []


def test_a_client_certificate_is_as_good_as_a_token_until_it_is_revoked(tmp_path: Path, server: Serving) -> None:
    pair = certificate(tmp_path, server, "vtep-cert", "viewer")
    with vtep(tmp_path, server, "--namespace", "cert", secure=True) as running:
        url = ["--cacert", str(server.data / "ca.crt"), f"{running.url}/openapi.json"]
        assert curl(*pair, *url)[0] == 200
        netloom("credential", "--data", server.data, "--name", "vtep-cert", "--revoke")
        wait_until(lambda: curl(*pair, *url)[0] == 401, what="the revocation")


def test_without_tls_only_programs_of_this_machine_are_served(tmp_path: Path, server: Serving) -> None:
    with vtep(tmp_path, server, "--namespace", "plain", "--node", "gw") as running:
        url = f"{running.url}/vtep/speakers"
        assert running.request("POST", "/vtep/speakers", SPEAKER)[0] == 200
        for header in ("Origin: https://example.com", "Host: example.com"):
            code, text = curl("-H", header, "-X", "DELETE", url)
            assert (code, json.loads(text)["status"]) == (403, 403)
        assert curl("-I", url)[0] == 200
        assert running.request("DELETE", "/vtep/speakers")[0] == 200


def test_bodies_and_headers_are_bounded(tmp_path: Path, server: Serving) -> None:
    with vtep(tmp_path, server, "--namespace", "bounds") as running:
        large = tmp_path / "large"
        large.write_bytes(b'{"vni": "' + b"1" * 70_000 + b'"}')
        code, text = curl("--data-binary", f"@{large}", f"{running.url}/vtep/networks")
        assert (code, json.loads(text)["status"]) == (413, 413)
        assert curl(f"{running.url}/vtep/networks/{'1' * 9000}")[0] == 414
        for sent, code in ((b"nonsense\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000, 431)):
            with socket.create_connection(("127.0.0.1", running.port), timeout=120) as raw:
                raw.sendall(sent)
                assert raw.recv(1000).startswith(b"HTTP/1.1 %d" % code)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_every_operation_stands_what_schemathesis_makes_up(
    tmp_path: Path, server: Serving, mode: GenerationMode
) -> None:
    with vtep(tmp_path, server, "--namespace", f"made-up-{mode.name.lower()}", "--node", "gw") as running:
        running.request("POST", "/vtep/speakers", SPEAKER)
        running.request("POST", "/vtep/networks", {"vni": 10})
        schema: Any = schemathesis.openapi.from_dict(running.request("GET", "/openapi.json")[1])
        operations = [result.ok() for result in schema.get_all_operations()]
        assert len(operations) == 14
        for operation in sorted(operations, key=lambda one: one.method == "delete"):
            if operation.path != "/test" or mode is GenerationMode.POSITIVE:  # It has no input that could be wrong.
                _try(operation, mode, running.url)
        assert running.request("GET", "/vtep/networks")[0] in (200, 404)
    assert "failed" not in running.log.read_text()


def _try(operation: Any, mode: GenerationMode, url: str) -> None:
    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        if case.headers:
            case.headers.clear()
        case.validate_response(case.call(base_url=url, timeout=120), checks=CHECKS)

    run()


def test_serve_answers_too_if_it_is_configured(server: Serving) -> None:
    admin = (server.data / "admin.token").read_text().strip()
    access = ["--cacert", str(server.data / "ca.crt"), "-H", f"Authorization: Bearer {admin}"]
    url = f"https://{BESIDE}/vtep"
    assert curl("--cacert", server.data / "ca.crt", f"{url}/speakers")[0] == 401
    server.cli("apply", "-f", "-", stdin=NODE)
    code, text = curl(*access, "-d", json.dumps(SPEAKER), f"{url}/speakers")
    assert code == 200, text
    assert server.cli("get", "bgpspeaker/vtep", "-o", "jsonpath={.spec.node}").out.strip() == "gw"
    curl(*access, "-d", '{"vni": 10}', f"{url}/networks")
    # Through the API: an object in use is not deleted.
    assert server.cli("delete", "bgpspeaker", "vtep", check=False).rc == 1
    assert curl(*access, "-X", "DELETE", f"{url}/speakers")[0] == 200
    assert objects(server, "default") == []


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--insecure", "--listen", "0.0.0.0:5000"], "0.0.0.0:5000 is not a loopback address"),
        (["--insecure", "--listen", ":5000"], "*:5000 is not a loopback address"),
        (["--insecure", "--listen", "netloom.example:5000"], "is not a loopback address"),
        (["--insecure", "--data", "d"], "use either --insecure or --data, not both"),
        (["--insecure", "--tokens", "t"], "use either --insecure or --tokens, not both"),
        (["--data", "d", "--tls-cert", "c"], "use either --data or --tls-cert, not both"),
        ([], "tlsCert: required"),
        (["--tls-cert", "c", "--tls-key", "k"], "no client can authenticate"),
        (["--insecure", "--ovs", "/run/db.sock"], "is not unix:PATH or tcp:HOST:PORT"),
        (["--insecure", "--bgp-port", "0"], "bgpPort"),
        (["--insecure", "--namespace", ""], "namespace"),
    ],
)
def test_settings_that_are_unsafe_or_contradict_are_refused(args: list[str], text: str) -> None:
    answer = netloom("vtep", *args, check=False)
    assert answer.rc == 1
    assert text in answer.err
