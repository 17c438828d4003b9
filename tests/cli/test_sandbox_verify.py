"""`netloom sandbox verify`, `plan` and `exec`: leaks with their paths, changes in words, and hosts."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from netloom.cli.main import cli
from netloom.errors import BadRequest
from netloom.model import codec
from tests.lab.worlds import document
from tests.plan.test_reachability import RANGE
from tests.run.serving import Serving, serving
from tests.support.process import wait_until

VPN = {"entrypoints": [{"name": "server", "routes": ["10.3.0.0/24"]}]}
HOLE = """
apiVersion: netloom.dev/v1alpha1
kind: Router
metadata: {name: hole}
spec:
  networks:
  - {network: range-homes, ips: [10.1.0.200/24]}
  - {network: range-store, ips: [10.3.0.200/24]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a topology that is contained, one that leaks, and the Router of another."""
    write(tmp_path, "range.yml")
    write(tmp_path, "leaky.yml", vpn=VPN)
    (tmp_path / "hole.yaml").write_text(HOLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, name: str, **changes: Any) -> None:
    (folder / name).write_text(codec.encode_yaml({**RANGE, **changes}))


def sandbox(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["sandbox", *args], input=stdin, standalone_mode=False)


def test_a_plan_is_verified_without_a_server() -> None:
    result = sandbox("verify", "range.yml", "--plan-only")
    assert result.return_value == 0
    assert result.stdout == "plan: 6 pairs reach as declared, 14 are blocked as declared\n"


def test_a_leaky_topology_is_caught_by_its_plan_alone() -> None:
    result = sandbox("verify", "leaky.yml", "--plan-only")
    assert result.return_value == 1
    assert result.stdout.splitlines() == [
        "plan: 6 pairs reach as declared, 14 are blocked as declared, 1 difference",
        "  leak: users -> vpn server -> router r2 -> vault 10.3.0.5: vpn.entrypoints lets users in, and store is not "
        "accessible_by_user",
    ]


def test_objects_of_others_are_part_of_the_plan() -> None:
    result = sandbox("verify", "range.yml", "--plan-only", "--with", "hole.yaml")
    assert result.return_value == 1
    assert "  leak: Router hole -> network store: it is not of the Sandbox" in result.stdout.splitlines()


def test_json_has_the_matrix_and_the_paths() -> None:
    found = json.loads(sandbox("verify", "leaky.yml", "--plan-only", "-o", "json").stdout)
    assert (found["sandbox"], found["verified"], found["live"], found["probes"]) == ("range", False, None, None)
    assert found["plan"]["matrix"]["attacker"] == {
        "server 10.2.0.5": True,
        "vault 10.3.0.5": False,
        "lonely 10.4.0.5": False,
    }
    (leak,) = found["plan"]["differences"]
    assert leak["path"] == ["users", "vpn server", "router r2", "vault 10.3.0.5"]


def test_a_plan_alone_needs_a_file() -> None:
    assert "--plan-only needs FILE" in str(sandbox("verify", "--plan-only").exception)
    assert "--with needs --plan-only" in str(sandbox("verify", "range.yml", "--with", "hole.yaml").exception)


def test_sandboxes_with_hosts_of_the_same_names_are_told_apart(tmp_path: Path, ns: str) -> None:
    nodes = [document("Node", f"v{n}", {"underlayIP": f"192.0.2.{n}"}) for n in (1, 2, 3)]
    names = ("one", "two", "three")
    # A server of its own: on one with other tests, their Sandboxes would place hosts on these Nodes.
    with serving(tmp_path) as server:
        server.cli("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, nodes)))
        for name in names:
            server.cli("-n", ns, "sandbox", "apply", "range.yml", "--name", name, "--no-wait")
        for name in names:
            args = ("-n", ns, "sandbox", "verify", "-", "--name", name, "--no-probe")
            text = Path("range.yml").read_text()
            wait_until(lambda: server.cli(*args, stdin=text, check=False).rc == 0, what="all objects")  # noqa: B023
            shown = server.cli("-n", ns, "sandbox", "plan", "range.yml", "--name", name).out
            assert shown == "Nothing would change.\n"
        answer = server.cli("-n", ns, "sandbox", "verify", "--no-probe", check=False)
        assert (answer.rc, "choose one of one, three, two with --name" in answer.err) == (2, True)
        answer = server.cli("-n", ns, "sandbox", "exec", "--name", "two", "server", "true", check=False)
        assert (answer.rc, "host server does not run" in answer.err) == (1, True)
        server.cli("-n", ns, "sandbox", "apply", "range.yml", "--name", "two", "--run", "--no-wait")

        def named() -> bool:
            answer = server.cli("-n", ns, "sandbox", "exec", "--name", "two", "server", "true", check=False)
            return answer.rc == 1 and "host server runs on Node v" in answer.err

        wait_until(named, what="the Sandbox to run")


def test_a_leaky_file_is_not_applied(server: Serving, ns: str) -> None:
    answer = server.cli("-n", ns, "sandbox", "apply", "leaky.yml", "--no-wait", check=False)
    assert (answer.rc, answer.out) == (1, "")
    assert "users -> vpn server -> router r2 -> vault 10.3.0.5" in answer.err
    assert server.cli("-n", ns, "get", "sandboxes").out == ""
    answer = server.cli("-n", ns, "sandbox", "apply", "leaky.yml", "--no-wait", "--no-verify")
    assert answer.out == "sandbox.netloom.dev/range created\n"
    server.cli("-n", ns, "sandbox", "destroy", "leaky.yml")


def test_a_file_that_is_not_deployed_is_not_found(server: Serving, ns: str) -> None:
    answer = server.cli("-n", ns, "sandbox", "verify", "range.yml", check=False)
    assert (answer.rc, "--plan-only" in answer.err) == (1, True)
    answer = server.cli("-n", ns, "sandbox", "exec", "server", "true", check=False)
    assert (answer.rc, "there is no Sandbox" in answer.err) == (1, True)


def test_objects_that_are_missing_or_of_others_are_differences(server: Serving, ns: str) -> None:
    """There is no agent, so the hosts have no Node, and no attachment."""

    def run(*args: str) -> tuple[int, str]:
        answer = server.cli("-n", ns, *args, check=False)
        return answer.rc, answer.out + answer.err

    assert run("sandbox", "apply", "range.yml", "--no-wait")[0] == 0
    wait_until(lambda: "range-man" in run("get", "routers")[1], what="the routers")
    code, text = run("sandbox", "verify", "range.yml", "--no-probe")
    assert code == 1
    assert "gap: attacker: server 10.2.0.5 is not reached: host attacker has no attachment" in text
    assert "leak" not in text
    assert run("apply", "-f", "hole.yaml")[0] == 0
    assert "  leak: Router hole -> network homes: it is not of the Sandbox" in run("sandbox", "verify", "--no-probe")[1]
    code, text = run("sandbox", "exec", "servr", "true")
    assert code == 1
    assert text == "Error: Sandbox range has no host servr: its hosts are attacker, server, vault, lonely\n"
    code, text = run("sandbox", "exec", "server", "true")
    assert (code, "host server is on no Node: see `netloom describe sandbox/range`" in text) == (1, True)
    complete = ShellComplete(cli, {}, "netloom", "_NETLOOM_COMPLETE")
    words = ["--kubeconfig", str(server.kubeconfig), "-n", ns, "sandbox", "exec"]
    assert [item.value for item in complete.get_completions(words, "")] == ["attacker", "server", "vault", "lonely"]
    assert [item.value for item in complete.get_completions([*words, "-f", "range.yml"], "se")] == ["server"]
    assert complete.get_completions([*words, "--name", "other"], "") == []
    run("delete", "router/hole")
    run("sandbox", "destroy", "range.yml")


def test_a_plan_shows_what_apply_would_change_in_the_words_of_the_topology(
    server: Serving, ns: str, folder: Path
) -> None:
    def run(*args: str) -> list[str]:
        return server.cli("-n", ns, "sandbox", *args).out.splitlines()

    shown = run("plan", "range.yml")
    assert shown[0] == "+ network homes (Network range-homes)"
    assert "+ router r1 (Router range-r1)" in shown
    assert server.cli("-n", ns, "get", "sandboxes").out == "", "nothing is created"
    run("apply", "range.yml", "--no-wait")
    wait_until(lambda: not [line for line in run("plan", "range.yml") if line.startswith("+")], what="all objects")
    open_networks = [{**one, "accessible_by_user": True} for one in RANGE["networks"] if one["name"] != "lone"]
    hosts = [one for one in RANGE["hosts"] if one["name"] != "lonely"]
    links = [one for one in RANGE["net_mappings"] if one["network"] != "lone"]
    write(folder, "edited.yml", networks=open_networks, hosts=hosts, net_mappings=links)
    shown = run("plan", "edited.yml")
    assert "~ router man (Router range-man)" in shown
    assert "    policies: priority 1000 to 10.3.0.0/24 action drop -> (none)" in shown
    assert "- network lone (Network range-lone)" in shown
    found = json.loads("\n".join(run("plan", "edited.yml", "-o", "json")))
    assert {"action": "delete", "kind": "Network", "name": "range-lone", "part": "network lone", "fields": []} in found[
        "changes"
    ]
    run("destroy", "range.yml")


def test_the_file_of_a_refused_apply_may_come_from_standard_input() -> None:
    text = Path("leaky.yml").read_text()
    result = sandbox("verify", "-", "--plan-only", stdin=text)
    assert result.return_value == 1
    result = sandbox("verify", "-", "--plan-only", stdin="name: small\nx: 1\n")
    assert isinstance(result.exception, BadRequest)
