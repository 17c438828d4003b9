"""`netloom sandbox`: files without a server, and the Sandboxes that they become."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from netloom.cli.main import cli
from netloom.errors import BadRequest
from netloom.model import codec
from netloom.model.registry import SANDBOX
from netloom.model.schemas import validation
from tests.run.serving import Serving

TOPOLOGIES = Path(__file__).parent.parent / "model" / "topology"
GOOD = (TOPOLOGIES / "valid" / "good.yml").read_text()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files of all formats."""
    for file in (TOPOLOGIES / "valid").iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sandbox(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["sandbox", *args], input=stdin, standalone_mode=False)


def test_valid_files_are_named_with_their_format() -> None:
    result = sandbox(
        "validate", "good.yml", "good.json", "good.sql", "good.conf", "good-containers.yml", "-", stdin=GOOD
    )
    assert result.return_value == 0
    assert result.stdout.splitlines() == [
        "good.yml: valid topology: 2 hosts, 2 routers, 2 networks",
        "good.json: valid sandbox-json: 2 hosts, 2 routers, 3 networks",
        "good.sql: valid kypodb: 1 host, 2 routers, 3 networks",
        "good.conf: valid ssh-config: 3 machines",
        "good-containers.yml: valid containers",
        "-: valid topology: 2 hosts, 2 routers, 2 networks",
    ]


def test_errors_have_file_line_and_column_and_other_files_are_still_checked(folder: Path) -> None:
    (folder / "bad.yml").write_text(GOOD.replace("flavor", "flavour", 1).replace("10.10.30.5", "10.10.30.0"))
    (folder / "warned.yml").write_text(GOOD.replace("mgmt_user", "man_user"))
    result = sandbox("validate", "bad.yml", "missing.yml", "warned.yml")
    assert result.return_value == 1
    assert result.stdout.splitlines() == [
        'bad.yml:5:5: unknown key "flavour" (did you mean "flavor"?)',
        'bad.yml:30:9: IP address "10.10.30.0" is not valid host address of "10.10.30.0/24" defined in network '
        '"home-switch".',
        "missing.yml:1:1: No such file or directory",
        'warned.yml:4:44: warning: "man_user" is deprecated: use "mgmt_user".',
        "warned.yml: valid topology: 2 hosts, 2 routers, 2 networks",
    ]


def test_containers_are_compared_with_the_topology_that_is_given_with_them(folder: Path) -> None:
    (folder / "c.yml").write_text((folder / "good-containers.yml").read_text().replace("host: server", "host: db", 1))
    assert sandbox("validate", "c.yml").return_value == 0
    result = sandbox("validate", "good.yml", "c.yml")
    assert result.return_value == 1
    assert 'c.yml:5:28: Invalid container mapping. Cannot find host with name "db".\n' in result.stdout


def test_json_output_has_all_findings() -> None:
    result = sandbox("validate", "-o", "json", "good.yml", "-", stdin="name: small\nx: 1\n")
    assert json.loads(result.stdout) == [
        {"file": "good.yml", "format": "topology", "valid": True, "findings": []},
        {
            "file": "-",
            "format": "topology",
            "valid": False,
            "findings": [{"line": 2, "column": 1, "message": 'unknown key "x"', "is_warning": False}],
        },
    ]


def test_control_characters_of_a_file_do_not_reach_the_terminal() -> None:
    result = sandbox("validate", "-", stdin='name: small\n"\\e[31mred": 1\n')
    assert "\x1b" not in result.stdout
    assert "unknown key" in result.stdout


@pytest.mark.parametrize("file", ["good.yml", "good.json", "good.sql", "good-vpn.yml", "good-forwarding.yml"])
def test_a_converted_file_is_a_sandbox_that_the_api_accepts(file: str) -> None:
    result = sandbox("convert", file)
    (document,) = codec.documents(result.stdout)
    document["metadata"]["namespace"] = "default"
    assert validation.admit(SANDBOX, document) == []
    links = [
        {name: text for name, text in one.items() if name != "impairment"} for one in document["spec"].get("links", [])
    ]
    assert links == (
        [{"host": "host1", "network": "lan1", "rate": "512000kbit", "delay": "20ms", "jitter": "2ms"}]
        if file == "good.json"
        else [{"host": "host1", "network": "net1", "rate": "800000kbit"}]
        if file == "good.sql"
        else []
    )


def test_an_ssh_config_places_the_hosts() -> None:
    (document,) = codec.documents(sandbox("convert", "good.json", "--ssh-config", "good.conf", "--name", "mine").stdout)
    assert document["metadata"]["name"] == "mine"
    assert document["spec"]["placement"] == {"hosts": {"host1": "range-net1"}}
    result = sandbox("convert", "good.yml", "--ssh-config", "good.conf")
    assert isinstance(result.exception, BadRequest)
    assert "no host of the topology is behind a jump host" in str(result.exception)


def test_names_of_topologies_become_names_of_objects() -> None:
    (document,) = codec.documents(sandbox("convert", "-", stdin="name: mySandbox-\n").stdout)
    assert document["metadata"]["name"] == "mysandbox"


@pytest.mark.parametrize("command", ["convert", "show"])
def test_what_is_no_valid_topology_is_refused_with_its_errors(command: str) -> None:
    result = sandbox(command, "-", stdin="name: small\nx: 1\n")
    assert isinstance(result.exception, BadRequest)
    assert result.stderr == '-:2:1: unknown key "x"\n'
    assert result.stdout == ""
    result = sandbox(command, "good.conf")
    assert str(result.exception) == "good.conf is no topology, but ssh-config: it has no networks"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("tree", "│   └── server-switch 10.10.20.0/24 at 10.10.20.1"),
        ("svg", "</svg>"),
        ("mermaid", "graph LR"),
        ("dot", 'graph "small-sandbox" {'),
        ("json", '    "routers": ['),
        ("ssh-config", "    ProxyJump man"),
        ("inventory", "    user_accessible_nodes:"),
    ],
)
def test_every_view_of_a_file_is_printed(output: str, line: str) -> None:
    assert line in sandbox("show", "good.yml", "-o", output).stdout.splitlines()


def test_the_tree_is_the_default_and_shows_qualities() -> None:
    assert "host1 10.0.1.2 rate 512000kbit delay 20ms jitter 2ms" in sandbox("show", "good.json").stdout


def test_commands_and_formats_are_completed() -> None:
    from click.shell_completion import ShellComplete

    complete = ShellComplete(cli, {}, "netloom", "_NETLOOM_COMPLETE")
    assert [item.value for item in complete.get_completions(["sandbox"], "")] == [
        "apply",
        "convert",
        "deploy-ovn",
        "destroy",
        "documents",
        "exec",
        "fault",
        "measure",
        "plan",
        "restore",
        "show",
        "snapshot",
        "validate",
        "verify",
    ]
    assert [item.value for item in complete.get_completions(["sandbox", "show", "-o"], "s")] == ["svg", "ssh-config"]
    assert [item.type for item in complete.get_completions(["sandbox", "validate"], "g")] == ["file"]


@pytest.mark.slow
def test_a_file_is_applied_changed_and_destroyed(server: Serving, ns: str) -> None:
    def run(*args: str, check: bool = True) -> tuple[int, str, str]:
        answer = server.cli("-n", ns, "sandbox", *args, check=check)
        return answer.rc, answer.out, answer.err

    name = codec.documents(GOOD)[0]["name"].lower()
    assert run("apply", "good.yml", "--run", "--no-wait") == (0, f"sandbox.netloom.dev/{name} created\n", "")
    stored = json.loads(server.cli("-n", ns, "get", f"sandbox/{name}", "-o", "json").out)
    assert stored["spec"]["run"] is True
    assert run("apply", "good.yml", "--run", "--no-wait")[1] == f"sandbox.netloom.dev/{name} unchanged\n"
    code, _, said = run("apply", "good.yml", "--timeout", "1s", check=False)  # No agent is there.
    assert (code, "timed out waiting for condition=Ready" in said) == (1, True)
    Path("bad.yml").write_text(GOOD.replace("networks:", "netwroks:"))
    code, out, said = run("apply", "bad.yml", "--no-wait", check=False)
    assert (code, out) == (1, "")
    assert "did you mean" in said
    again = json.loads(server.cli("-n", ns, "get", f"sandbox/{name}", "-o", "json").out)
    assert "run" not in again["spec"], "without the option, hosts do not run"
    assert run("destroy", "good.yml") == (0, f'sandbox.netloom.dev "{name}" deleted\n', "")
    code, _, said = run("destroy", "good.yml", check=False)
    assert (code, "not found" in said) == (1, True)


def test_documents_of_hosts_are_printed_and_problems_are_said() -> None:
    hosts = ("--node", "a=192.0.2.1", "--node", "b=192.0.2.2")
    every = sandbox("documents", "good.yml", "--name", "s1", *hosts)
    assert every.return_value == 0
    printed = json.loads(every.stdout)
    assert printed["owner"] == "default.s1"
    assert {name: one["local"] for name, one in printed["documents"].items()} == {"a": "192.0.2.1", "b": "192.0.2.2"}
    assert (
        json.loads(sandbox("documents", "good.yml", "--name", "s1", *hosts, "--only", "b").stdout)
        == (printed["documents"]["b"])
    )
    wrong = sandbox("documents", "good.yml", "--node", "a=192.0.2.1", "--node", "b=nowhere")
    assert wrong.return_value == 1
    assert wrong.stderr == "NodeInvalid: host b: 'nowhere' is not an address: give it another address\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--node", "a"), "--node: 'a' is not NAME=ADDRESS"),
        (("--node", "a=192.0.2.1", "--only", "b"), "--only: there is no --node b=ADDRESS"),
        (("--node", "a=192.0.2.1", "--node", "b=nowhere", "--only", "b"), "nothing of the Sandbox is on b"),
    ],
)
def test_hosts_of_documents_must_be_given_with_their_addresses(options: tuple[str, ...], message: str) -> None:
    result = sandbox("documents", "good.yml", *options)
    assert isinstance(result.exception, BadRequest)
    assert result.exception.message == message
