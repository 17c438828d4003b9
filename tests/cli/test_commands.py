"""The commands against a real `netloom serve`."""

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from netloom.model import codec
from tests.run.serving import NETLOOM, Answer, Serving, environment, netloom, serving
from tests.support.process import Program, free_port, wait_until

pytestmark = pytest.mark.slow

VERSION = "netloom.dev/v1alpha1"
GROUP = f"/apis/{VERSION}"


def network(name: str, **spec: object) -> dict[str, object]:
    return {"apiVersion": VERSION, "kind": "Network", "metadata": {"name": name, "labels": {"n": name}}, "spec": spec}


def lease(name: str) -> dict[str, object]:
    """Return what no controller writes to, so that who watches sees the test's own changes only."""
    spec = {"holderIdentity": "n1"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def router(name: str) -> dict[str, object]:
    return {"apiVersion": VERSION, "kind": "Router", "metadata": {"name": name}, "spec": {}}


def subnet(name: str, cidr: str, of: str = "blue") -> dict[str, object]:
    return {
        "apiVersion": VERSION,
        "kind": "Subnet",
        "metadata": {"name": name},
        "spec": {"network": of, "cidr": cidr},
    }


def text(*documents: object) -> str:
    return "\n---\n".join(json.dumps(document) for document in documents)


def apply(server: Serving, ns: str, *documents: object, check: bool = True, flags: tuple[str, ...] = ()) -> Answer:
    return server.cli("apply", "-n", ns, "-f", "-", *flags, stdin=text(*documents), check=check)


def test_apply_says_created_unchanged_and_configured(server: Serving, ns: str) -> None:
    assert apply(server, ns, network("blue")).out == "network.netloom.dev/blue created\n"
    assert apply(server, ns, network("blue")).out == "network.netloom.dev/blue unchanged\n"
    assert apply(server, ns, network("blue", mtu=1400)).out == "network.netloom.dev/blue configured\n"


def test_apply_makes_what_is_used_first(server: Serving, ns: str) -> None:
    made = apply(server, ns, subnet("s", "10.1.0.0/24"), network("blue"))
    assert made.out.split() == ["network.netloom.dev/blue", "created", "subnet.netloom.dev/s", "created"]


def test_a_dry_run_changes_nothing(server: Serving, ns: str) -> None:
    made = apply(server, ns, network("blue"), flags=("--dry-run=server",))
    assert made.out == "network.netloom.dev/blue created (server dry run)\n"
    assert server.cli("get", "networks", "-n", ns, "-o", "name").out == ""
    apply(server, ns, network("blue"))
    again = apply(server, ns, network("blue", mtu=1300), flags=("--dry-run=server",))
    assert again.out == "network.netloom.dev/blue configured (server dry run)\n"
    assert server.cli("get", "network/blue", "-n", ns, "-o", "jsonpath={.spec.mtu}").out.strip() != "1300"


def test_a_wrong_document_is_refused_by_field_and_the_rest_applied(server: Serving, ns: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text(network("bad", fabric="wool", vni=0), network("good")))
    answer = server.cli("apply", "-n", ns, "-f", file, check=False)
    assert answer.rc == 1
    assert answer.out == "network.netloom.dev/good created\n"
    assert f"Error: {file}:1: Network/bad: " in answer.err
    assert "\n  spec.fabric: " in answer.err
    assert "\n  spec.vni: " in answer.err


def test_an_unknown_field_is_refused_naming_the_nearest(server: Serving, ns: str) -> None:
    answer = apply(server, ns, network("bad", fabrik="ovn"), check=False)
    assert answer.rc == 1
    assert "fabrik" in answer.err
    assert "fabric" in answer.err


def test_a_field_that_another_manages_is_a_conflict_until_forced(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue", mtu=1400), flags=("--field-manager=somebody",))
    refused = apply(server, ns, network("blue", mtu=1300), check=False)
    assert refused.rc == 1
    assert "mtu" in refused.err
    assert "--force-conflicts" in refused.err
    assert apply(server, ns, network("blue", mtu=1300), flags=("--force-conflicts",)).rc == 0


def test_get_shows_the_servers_table_and_wide_shows_more(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue", vni=1010), network("red"))
    narrow = server.cli("get", "networks", "-n", ns).out.splitlines()
    assert narrow[0].split()[:2] == ["NAME", "FABRIC"]
    assert [line.split()[0] for line in narrow[1:]] == ["blue", "red"]
    wide = server.cli("get", "networks", "-n", ns, "-o", "wide").out.splitlines()
    assert "MTU" in wide[0].split()
    assert "MTU" not in narrow[0].split()


def test_get_takes_several_kinds_names_and_selectors(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue"), network("red"), subnet("s", "10.2.0.0/24"), subnet("t", "10.3.0.0/24", "red"))
    several = server.cli("get", "net,sn", "-n", ns).out
    assert "network.netloom.dev/blue" in several
    assert "\n\n" in several
    assert "subnet.netloom.dev/s" in several

    def names(*args: str) -> list[str]:
        return server.cli("get", *args, "-n", ns, "-o", "name").out.split()

    assert names("networks", "-l", "n=red") == ["network.netloom.dev/red"]
    assert names("subnets", "--field-selector", "spec.network=red") == ["subnet.netloom.dev/t"]
    assert names("network/blue", "subnet/t") == ["network.netloom.dev/blue", "subnet.netloom.dev/t"]
    assert names("networks", "red", "blue") == ["network.netloom.dev/red", "network.netloom.dev/blue"]
    everything = names("all")  # Of the shared server, too: what is in no namespace.
    assert len([name for name in everything if name.startswith(("network.", "subnet."))]) == 4


def test_get_of_all_namespaces_names_them(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue"))
    shown = server.cli("get", "networks", "-A").out.splitlines()
    assert shown[0].startswith("NAMESPACE ")
    assert any(line.split()[:2] == [ns, "blue"] for line in shown)


def test_get_as_yaml_can_be_applied_again(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue", mtu=1400))
    one = codec.decode(server.cli("get", "network", "blue", "-n", ns, "-o", "yaml").out.encode(), "application/yaml")
    assert one["spec"]["mtu"] == 1400
    assert "managedFields" not in one["metadata"]
    several = json.loads(server.cli("get", "networks", "-n", ns, "-o", "json").out)
    assert several["kind"] == "List"
    assert [item["kind"] for item in several["items"]] == ["Network"]
    shown = json.loads(server.cli("get", "network/blue", "-n", ns, "-o", "json", "--show-managed-fields").out)
    assert shown["metadata"]["managedFields"][0]["manager"] == "netloom"


def test_get_of_what_is_not_there(server: Serving, ns: str) -> None:
    nothing = server.cli("get", "networks", "-n", ns)
    assert (nothing.out, nothing.err) == ("", f"No resources found in {ns} namespace.\n")
    missing = server.cli("get", "network", "blue", "-n", ns, check=False)
    assert (missing.rc, missing.err) == (1, 'Error: networks.netloom.dev "blue" not found\n')
    assert server.cli("get", "network", "blue", "-n", ns, "--ignore-not-found").out == ""
    unknown = server.cli("get", "netwroks", "-n", ns, check=False)
    assert unknown.rc == 1
    assert "netwroks" in unknown.err


def test_a_wrong_selector_is_refused_in_words(server: Serving, ns: str) -> None:
    answer = server.cli("get", "networks", "-n", ns, "--field-selector", "spec.colour=red", check=False)
    assert answer.rc == 1
    assert "spec.colour" in answer.err


def test_describe_shows_fields_conditions_and_events(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue"), subnet("s", "10.4.0.0/24"), subnet("overlapping", "10.4.0.128/25"))
    server.cli("wait", "--for=condition=Ready=False", "subnet/overlapping", "-n", ns)

    def described() -> str:
        shown = server.cli("describe", "subnet", "overlapping", "-n", ns).out
        return shown if "From" in shown else ""

    shown = wait_until(described, what="an Event about the Subnet")
    assert "Name:        overlapping" in shown or "Name:" in shown
    assert "CIDR" in shown.upper()
    assert "10.4.0.128/25" in shown
    assert "Conditions:" in shown
    assert "Ready" in shown
    assert "Events:" in shown


def test_delete_by_name_label_file_and_kind(server: Serving, ns: str) -> None:
    apply(server, ns, *(network(name) for name in "abcd"))
    assert server.cli("delete", "network", "a", "-n", ns).out == 'network.netloom.dev "a" deleted\n'
    assert server.cli("delete", "networks", "-l", "n=b", "-n", ns).out == 'network.netloom.dev "b" deleted\n'
    assert (
        server.cli("delete", "-f", "-", "-n", ns, stdin=text(network("c"))).out == 'network.netloom.dev "c" deleted\n'
    )
    assert server.cli("delete", "networks", "--all", "-n", ns).out == 'network.netloom.dev "d" deleted\n'
    assert server.cli("get", "networks", "-n", ns, "-o", "name").out == ""


def test_delete_of_what_is_not_there(server: Serving, ns: str) -> None:
    answer = server.cli("delete", "network", "a", "-n", ns, check=False)
    assert (answer.rc, answer.err) == (1, 'Error: networks.netloom.dev "a" not found\n')
    assert server.cli("delete", "network", "a", "-n", ns, "--ignore-not-found").rc == 0
    careless = server.cli("delete", "networks", "-n", ns, check=False)
    assert careless.rc == 2


def test_delete_waits_until_finalizers_let_go(server: Serving, ns: str) -> None:
    held = network("blue")
    held["metadata"] |= {"finalizers": ["example.com/hold"]}  # type: ignore[operator]
    apply(server, ns, held)
    late = server.cli("delete", "network/blue", "-n", ns, "--timeout=1s", check=False)
    assert late.rc == 1
    assert "timed out waiting for delete" in late.err
    free = network("blue")
    free["metadata"] |= {"finalizers": []}  # type: ignore[operator]
    apply(server, ns, free)
    assert server.cli("wait", "--for=delete", "network/blue", "-n", ns).rc == 0


def test_wait_for_conditions_and_values(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue"), subnet("s", "10.5.0.0/24"))
    ready = server.cli("wait", "--for=condition=Ready", "subnet/s", "-n", ns)
    assert ready.out == "subnet.netloom.dev/s condition met\n"
    assert server.cli("wait", "--for=jsonpath={.status.validated}=true", "subnets", "--all", "-n", ns).rc == 0
    never = server.cli(
        "wait", "--for=jsonpath={.status.validated}=maybe", "subnet/s", "-n", ns, "--timeout=1s", check=False
    )
    assert never.rc == 1
    assert "timed out" in never.err
    assert server.cli("wait", "--for=nonsense", "subnet/s", "-n", ns, check=False).rc == 2
    assert server.cli("wait", "--for=delete", "subnet/nothing", "-n", ns).rc == 0
    missing = server.cli("wait", "--for=condition=Ready", "subnet/nothing", "-n", ns, check=False)
    assert (missing.rc, "not found" in missing.err) == (1, True)


@pytest.mark.parametrize("command", [["watch", "leases"], ["get", "leases", "-w"]])
def test_a_watch_shows_changes_until_interrupted(server: Serving, ns: str, tmp_path: Path, command: list[str]) -> None:
    apply(server, ns, lease("blue"))
    argv = [*NETLOOM, *command, "-n", ns, "--kubeconfig", str(server.kubeconfig)]
    with Program(argv, log=tmp_path / "err", out=tmp_path / "out", env=environment()) as watching:
        wait_until(lambda: "blue" in watching.output(), what="what is there")
        apply(server, ns, lease("red"))
        wait_until(lambda: "red" in watching.output(), what="an addition")
        server.cli("delete", "lease", "blue", "-n", ns)
        wait_until(lambda: watching.output().count("blue") == 2, what="a deletion")
        os.kill(watching.pid, signal.SIGINT)
        assert watching.wait() == 130
    lines = (tmp_path / "out").read_text().splitlines()
    if command[0] == "watch":
        assert [line.split()[:2] for line in lines] == [
            ["EVENT", "NAME"],
            ["ADDED", "blue"],
            ["ADDED", "red"],
            ["DELETED", "blue"],
        ]
    else:
        assert [line.split()[0] for line in lines] == ["NAME", "blue", "red", "blue"]
    assert (tmp_path / "err").read_text().strip() == ""


def test_a_watch_goes_on_when_the_server_comes_back(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        apply(server, "default", lease("blue"))
        argv = [*NETLOOM, "watch", "leases", "--kubeconfig", str(server.kubeconfig)]
        with Program(argv, log=tmp_path / "err", out=tmp_path / "out", env=environment()) as watching:
            wait_until(lambda: "blue" in watching.output(), what="what is there")
            server.kill()
            server.start()
            apply(server, "default", lease("red"))
            wait_until(lambda: "red" in watching.output(), what="an addition after the crash")
            assert [line.split()[1] for line in watching.output().splitlines()] == ["NAME", "blue", "red"]


def test_a_watch_with_a_timeout_ends_by_itself_and_speaks_json(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue"))
    shown = server.cli("watch", "networks", "-n", ns, "-o", "json", "--timeout=1s").out
    event = json.loads(shown)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "blue")


def test_a_closed_pipe_is_no_drama(server: Serving, ns: str) -> None:
    apply(server, ns, *(network(f"n{i}") for i in range(5)))
    command = " ".join([*NETLOOM, "get", "networks", "-n", ns, "-o", "yaml"])
    env = environment(KUBECONFIG=str(server.kubeconfig))
    ended = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1"], capture_output=True, text=True, env=env, check=True
    )
    assert ended.stdout == "apiVersion: v1\n"
    assert ended.stderr == ""


def test_version_shows_client_and_server(server: Serving) -> None:
    assert [line.split(":")[0] for line in server.cli("version").out.splitlines()] == ["Client", "Server"]
    assert netloom("version", "--client").out.startswith("Client: ")


def test_a_server_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    config = tmp_path / "config"
    port = free_port()
    config.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{port}"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                "current-context": "c",
            }
        )
    )
    answer = netloom("get", "networks", kubeconfig=config, check=False)
    assert (answer.rc, answer.err) == (1, f"Error: cannot reach https://127.0.0.1:{port}: connection refused\n")
    late = netloom("wait", "server", "--timeout=300ms", kubeconfig=config, check=False)
    assert late.rc == 1
    assert "the server is not ready" in late.err


def test_a_server_of_another_ca_is_not_trusted(server: Serving, tmp_path: Path) -> None:
    config = codec.decode(server.kubeconfig.read_bytes(), "application/yaml")
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    file = tmp_path / "config"
    file.write_text(json.dumps(config))
    answer = netloom("get", "networks", kubeconfig=file, check=False)
    assert answer.rc == 1
    assert answer.err.startswith(f"Error: the certificate of https://127.0.0.1:{server.port} is not trusted: ")


def test_a_name_the_certificate_lacks_is_not_trusted(server: Serving, tmp_path: Path) -> None:
    config = codec.decode(server.kubeconfig.read_bytes(), "application/yaml")
    file = tmp_path / "config"
    config["clusters"][0]["cluster"]["tls-server-name"] = "example.com"
    file.write_text(json.dumps(config))
    assert "is not trusted" in netloom("get", "networks", kubeconfig=file, check=False).err
    config["clusters"][0]["cluster"]["tls-server-name"] = "localhost"
    file.write_text(json.dumps(config))
    assert netloom("get", "networks", kubeconfig=file).rc == 0


def test_a_kubeconfig_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    answer = netloom("get", "networks", "--kubeconfig", tmp_path / "none", check=False)
    assert answer.rc == 1
    assert answer.err.startswith("Error: ")
    assert str(tmp_path / "none") in answer.err


def test_the_context_chooses_server_user_and_namespace(server: Serving, ns: str, tmp_path: Path) -> None:
    apply(server, ns, network("blue"))
    config = codec.decode(server.kubeconfig.read_bytes(), "application/yaml")
    config["contexts"].append({"name": "other", "context": {"cluster": "netloom", "user": "admin", "namespace": ns}})
    file = tmp_path / "config"
    file.write_text(json.dumps(config))
    assert (
        netloom("get", "networks", "--context=other", "-o", "name", kubeconfig=file).out == "network.netloom.dev/blue\n"
    )
    assert (
        netloom("--context=other", "get", "networks", "-o", "name", kubeconfig=file).out == "network.netloom.dev/blue\n"
    )
    assert netloom("get", "networks", "--context=none", kubeconfig=file, check=False).rc == 1


def test_credentials_are_made_used_listed_and_revoked(server: Serving, ns: str, tmp_path: Path) -> None:
    apply(server, ns, network("blue"))
    for flags in ([], ["--certificate"]):
        viewer = tmp_path / f"viewer{len(flags)}"
        made = netloom("credential", "--data", server.data, "--name", f"v{ns}", "--role", "viewer", "-n", ns, *flags)
        viewer.write_text(made.out)
        wait_until(
            lambda file=viewer: netloom("get", "networks", "-n", ns, kubeconfig=file, check=False).rc == 0,  # type: ignore[misc]
            what="the server to know the viewer",
        )
        refused = netloom("delete", "network", "blue", "-n", ns, kubeconfig=viewer, check=False)
        assert refused.rc == 1
        assert "forbidden" in refused.err
        assert netloom("get", "networks", "-n", "elsewhere", kubeconfig=viewer, check=False).rc == 1
    listed = netloom("credential", "--data", server.data, "--list").out
    assert [f"v{ns}", f"netloom:viewer:{ns}"] in [line.split()[:2] for line in listed.splitlines()]
    again = netloom("credential", "--data", server.data, "--name", f"v{ns}", "--role", "viewer", check=False)
    assert (again.rc, "revoke it first with --revoke" in again.err) == (1, True)
    assert netloom("credential", "--data", server.data, "--name", f"v{ns}", "--revoke").rc == 0
    wait_until(
        lambda: netloom("get", "networks", "-n", ns, kubeconfig=tmp_path / "viewer0", check=False).rc == 1,
        what="the server to forget the viewer",
    )
    assert "Unauthorized" in netloom("get", "networks", "-n", ns, kubeconfig=tmp_path / "viewer1", check=False).err


def test_one_certificate_is_revoked_by_its_fingerprint(server: Serving, ns: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        made = ("--name", f"v{ns}", "--role", "viewer", "-n", ns, "--certificate", "--output", tmp_path / name)
        assert netloom("credential", "--data", server.data, *made).out == f"{tmp_path / name} written\n"
        assert server.request("GET", f"{GROUP}/namespaces/{ns}/networks", kubeconfig=tmp_path / name)[0] == 200
    listed = netloom("credential", "--data", server.data, "--list").out.splitlines()
    first = next(line.split() for line in listed if line.startswith(f"v{ns} "))
    assert first[2] == "certificate"
    revoked = netloom("credential", "--data", server.data, "--revoke", "--fingerprint", first[3])
    assert revoked.out == f"v{ns}: 1 certificate revoked\n"
    wait_until(
        lambda: server.request("GET", f"{GROUP}/namespaces/{ns}/networks", kubeconfig=tmp_path / "one")[0] == 401,
        what="the server to refuse the certificate",
    )
    assert server.request("GET", f"{GROUP}/namespaces/{ns}/networks", kubeconfig=tmp_path / "two")[0] == 200
    listed = netloom("credential", "--data", server.data, "--list").out.splitlines()
    revoked_line = [f"v{ns}", f"netloom:viewer:{ns}", "certificate", "(revoked)", first[3]]
    assert revoked_line in [line.split() for line in listed]


def test_a_credential_is_written_to_a_private_file_that_is_not_overwritten(
    server: Serving, ns: str, tmp_path: Path
) -> None:
    def made(*flags: str | Path, check: bool = True) -> Answer:
        args = ("credential", "--data", server.data, "--name", f"o{ns}", "--role", "viewer", *flags)
        return netloom(*args, check=check)

    file, known = tmp_path / "it", server.data / "tokens"
    before = known.read_bytes()
    file.write_text("precious")
    refused = made("--output", file, check=False)
    assert (refused.rc, file.read_text(), known.read_bytes()) == (1, "precious", before)
    assert "exists: choose another name, or overwrite it with --force" in refused.err
    nowhere = made("--output", tmp_path / "none" / "it", check=False)
    assert (nowhere.rc, known.read_bytes()) == (1, before)
    file.chmod(0o644)
    made("--output", file, "--force")
    assert (stat.S_IMODE(file.stat().st_mode), os.listdir(tmp_path)) == (0o600, ["it"])
    assert server.request("GET", f"{GROUP}/networks", kubeconfig=file)[0] == 200


def test_a_credential_that_goes_to_a_file_others_can_read_gets_a_warning(
    server: Serving, ns: str, tmp_path: Path
) -> None:
    for mode, warned in ((0o644, True), (0o600, False)):
        file = tmp_path / str(mode)
        file.touch(mode)
        file.chmod(mode)
        with file.open("wb") as output:
            ended = subprocess.run(
                [*NETLOOM, "credential", "--data", server.data, "--name", f"w{mode}{ns}", "--role", "viewer"],
                stdout=output,
                stderr=subprocess.PIPE,
                env=environment(),
                check=True,
                timeout=120,
            )
        assert (b"use --output FILE" in ended.stderr) is warned
        assert b"token:" in file.read_bytes()


def test_completion_offers_kinds_and_names(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue"), network("black"), network("red"))

    def completed(line: str) -> set[str]:
        words = f"netloom {line}"
        env = environment(
            KUBECONFIG=str(server.kubeconfig),
            _NETLOOM_COMPLETE="bash_complete",
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split(" ")) - 1),
        )
        ended = subprocess.run(NETLOOM, capture_output=True, text=True, env=env, check=False)
        return {entry.partition(",")[2] for entry in ended.stdout.split()}

    assert completed("ge") == {"get"}
    assert completed("get netw") == {"networks", "networkattachments"}
    assert completed(f"get -n {ns} networks bl") == {"blue", "black"}
    assert completed(f"describe -n {ns} network/r") == {"network/red"}
    assert completed("get networks,sub") == {"networks,subnets"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    assert "_NETLOOM_COMPLETE" in netloom("completion", shell).out


def test_wrong_usage_is_exit_status_2() -> None:
    for args in (["nonsense"], ["get", "--nonsense"], ["apply"], ["completion", "tcsh"], ["get"]):
        answer = netloom(*args, check=False, kubeconfig=Path("/dev/null"))
        assert answer.rc == 2 or (args == ["get"] and answer.rc == 1), (args, answer)


def test_help_is_there_for_every_command() -> None:
    from netloom.cli.main import COMMANDS

    shown = netloom("--help").out
    for name in COMMANDS:
        assert f"  {name} " in shown
        assert netloom(name, "--help").out.startswith("Usage: ")


def test_crds_are_a_document_for_each_kind() -> None:
    found = codec.documents(netloom("crds").out)
    assert {document["kind"] for document in found} == {"CustomResourceDefinition"}
    assert "networks.netloom.dev" in {document["metadata"]["name"] for document in found}
    assert len(json.loads(netloom("crds", "-o", "json").out)["items"]) == len(found)


def test_the_effective_configuration_says_where_values_come_from(tmp_path: Path) -> None:
    file = tmp_path / "netloom.yaml"
    file.write_text("logLevel: error\n")
    shown = netloom(
        "config", "show", "serve", "--config", file, "--data", "/d", env={"NETLOOM_LISTEN": "127.0.0.1:1"}
    ).out
    lines = dict(line.split("#") for line in shown.splitlines())
    found = {key.strip(): source.strip() for key, source in lines.items()}
    assert found['data: "/d"'] == "--data"
    assert found['listen: "127.0.0.1:1"'] == "NETLOOM_LISTEN"
    assert found['logLevel: "error"'] == str(file)
    assert found['logFormat: "auto"'] == "default"


def test_delete_says_who_uses_what_it_cannot_delete(server: Serving, ns: str) -> None:
    apply(server, ns, network("blue"), subnet("s", "10.1.0.0/24"))
    answer = server.cli("delete", "network", "blue", "-n", ns, check=False)
    assert answer.rc == 1
    assert answer.err.splitlines() == [
        'Error: Operation cannot be fulfilled on networks.netloom.dev "blue": it is used by:',
        f"  Subnet {ns}/s",
    ]


def test_delete_waits_for_users_that_are_on_their_way_out(server: Serving, ns: str, tmp_path: Path) -> None:
    held = subnet("s", "10.1.0.0/24")
    held["metadata"] = {"name": "s", "finalizers": ["example.com/wait"]}
    file = tmp_path / "x.yaml"
    file.write_text(text(network("blue"), held))
    server.cli("apply", "-n", ns, "-f", file)
    argv = [*NETLOOM, "delete", "-n", ns, "-f", str(file)]
    with Program(argv, log=tmp_path / "log", env=environment(KUBECONFIG=str(server.kubeconfig))) as program:
        marked = ("get", "subnet", "s", "-n", ns, "-o", "jsonpath={.metadata.deletionTimestamp}")
        wait_until(lambda: server.cli(*marked).out.strip(), what="the Subnet to be marked")
        where = f"/apis/{VERSION}/namespaces/{ns}/subnets/s"
        document = json.loads(server.request("GET", where)[1])
        document["metadata"]["finalizers"] = []
        assert server.request("PUT", where, document)[0] == 200
        assert program.wait() == 0, program.output()
    assert server.cli("get", "networks", "-n", ns, "-o", "name").out == ""


def test_a_login_program_is_run_or_named_with_what_is_wrong(server: Serving, ns: str, tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1"
    config = codec.decode(server.kubeconfig.read_bytes(), "application/yaml")
    token = config["users"][0]["user"]["token"]
    status = {"token": token}
    (tmp_path / "good").write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
    login = {"apiVersion": version, "interactiveMode": "Never", "command": "cat", "args": [str(tmp_path / "good")]}
    config["users"][0]["user"] = {"exec": login}
    file = tmp_path / "kubeconfig"
    file.write_text(codec.encode_yaml(config))
    assert netloom("apply", "-n", ns, "-f", "-", stdin=text(network("blue")), kubeconfig=file).rc == 0
    for changed, words in (
        ({"interactiveMode": "Always"}, "needs a terminal"),
        ({"command": "false"}, "failed (exit status 1): run it by hand to see why"),
        ({"command": "no-such-login", "installHint": "Get it from the shelf."}, "Get it from the shelf."),
    ):
        config["users"][0]["user"] = {"exec": login | changed}
        file.write_text(codec.encode_yaml(config))
        refused = netloom("get", "networks", "-n", ns, kubeconfig=file, check=False)
        assert (refused.rc, words in refused.err, token in refused.err) == (1, True, False), refused.err
