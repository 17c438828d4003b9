"""Logging in by a program: real programs, against a real server."""

import asyncio
import json
import stat
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from netloom.errors import BadRequest, NetloomError, NotFound, Unauthorized, Unreachable
from netloom.front.api.auth.tokens import line
from netloom.model.codec import encode_yaml
from netloom.model.registry import NETWORK
from netloom.store.kube import execplugin, kubeconfig
from netloom.store.kube.execplugin import MOST_OUTPUT, Plugin, Spec, Variable
from netloom.store.kube.store import KubeStore
from tests.front.serving import Serving, make_credentials, network, serving
from tests.support.process import wait_until

V1 = "client.authentication.k8s.io/v1"
HUSH = "hush-hush"


class Program:
    """A login program that prints what lies in a file, and counts how often it is run."""

    def __init__(self, folder: Path, body: str = "") -> None:
        self.folder = folder
        self.path = folder / "login"
        self.path.write_text(f'#!/bin/sh\necho run >>"{folder}/runs"\n{body or f"cat {folder}/answer"}\n')
        self.path.chmod(0o700)

    @property
    def runs(self) -> int:
        runs = self.folder / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def answers(self, version: str = V1, **status: str) -> None:
        document = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        (self.folder / "answer").write_text(json.dumps(document))

    def spec(self, **more: Any) -> Spec:
        return Spec(**{"command": str(self.path), "api_version": V1, "interactive_mode": "Never", **more})


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("credentials")
    make_credentials(folder)
    with serving(folder) as running:
        yield running


def written(server: Serving, folder: Path, user: dict[str, Any]) -> str:
    cluster = {
        "server": f"https://127.0.0.1:{server.port}",
        "certificate-authority": str(server.folder / "ca.crt"),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "lab"}}],
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "me", "user": {"exec": {"apiVersion": V1, "interactiveMode": "Never", **user}}}],
    }
    (folder / "config").write_text(encode_yaml(document))
    return str(folder / "config")


def with_store(path: str, work: Callable[[KubeStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = await KubeStore.open(kubeconfig.load(path))
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())


def stamp(seconds: float) -> str:
    return (datetime.fromtimestamp(seconds, UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_token_is_asked_for_once_and_used_for_everything(server: Serving, program: Program) -> None:
    program.answers(token="admin-token", expirationTimestamp=stamp(datetime.now(UTC).timestamp() + 3600))

    async def work(store: KubeStore) -> None:
        await asyncio.gather(*(store.list(NETWORK) for _ in range(20)))
        await store.create(NETWORK, network("made-by-exec"))
        watch = await store.watch(NETWORK, since=(await store.list(NETWORK)).revision)
        await watch.close()

    # Relative to the kubeconfig.
    with_store(written(server, program.folder, {"command": "./login"}), work)
    assert program.runs == 1


def test_a_refused_token_is_replaced_and_the_request_is_sent_again(
    server: Serving, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.answers(token="first")
    tokens = server.folder / "tokens"
    before = tokens.read_text()
    tokens.write_text(before + line("first", "me", ["netloom:admin"]))

    async def work(store: KubeStore) -> None:
        await store.create(NETWORK, network("one"))
        program.answers(token="second")
        tokens.write_text(before + line("second", "me", ["netloom:admin"]))
        await asyncio.to_thread(_until_refused, server, "first")
        # Too soon: a server that refuses everything must not have the program run at its own pace.
        with pytest.raises(Unauthorized):
            await store.create(NETWORK, network("two"))
        assert program.runs == 1
        monkeypatch.setattr(execplugin, "REFUSED_SECONDS", 0.0)
        await store.create(NETWORK, network("two"))
        assert program.runs == 2

    with_store(written(server, program.folder, {"command": str(program.path)}), work)
    tokens.write_text(before)


def _until_refused(server: Serving, token: str) -> None:
    def refused() -> bool:
        return server.get("/version", who="", Authorization=f"Bearer {token}").code == 401

    wait_until(refused, what="the server to refuse the token")


def test_a_client_certificate_is_used_and_replaced(
    server: Serving, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gives(name: str) -> None:
        pair = [(server.folder / f"{name}.{part}").read_text() for part in ("crt", "key")]
        program.answers(clientCertificateData=pair[0], clientKeyData=pair[1])

    gives("plain")

    async def work(store: KubeStore) -> None:
        with pytest.raises(NetloomError, match='User "plain"'):
            await store.list(NETWORK)
        gives("cert-admin")
        cluster = store._client._login
        assert isinstance(cluster, Plugin)
        monkeypatch.setattr(execplugin, "REFUSED_SECONDS", 0.0)
        assert cluster.refused(cluster.generation)
        await store.list(NETWORK)
        assert program.runs == 2

    with_store(written(server, program.folder, {"command": str(program.path)}), work)


def test_a_credential_is_kept_until_its_end(program: Program) -> None:
    now = 1_800_000_000.0
    plugin = Plugin(program.spec(), clock=lambda: now)
    program.answers(token="one", expirationTimestamp=stamp(now + 100))
    assert [plugin.get().token for _ in range(3)] == ["one"] * 3
    program.answers(token="two")
    now += 99
    assert (plugin.get().token, program.runs) == ("one", 1)
    now += 1
    assert (plugin.get().token, program.runs) == ("two", 2)
    now += 10_000_000
    assert (plugin.get().token, program.runs) == ("two", 2)


def test_many_who_wait_wait_for_one_run(program: Program) -> None:
    program.answers(token="one")
    plugin = Plugin(program.spec())

    async def main() -> None:
        await asyncio.gather(*(plugin.refresh() for _ in range(50)))

    asyncio.run(main())
    assert (plugin.get().token, program.runs) == ("one", 1)


def test_the_program_is_told_of_the_cluster_and_given_its_arguments_as_they_are(
    server: Serving, tmp_path: Path
) -> None:
    body = (
        f'echo "$KUBERNETES_EXEC_INFO" >"{tmp_path}/info"; echo "$OWN|$1|$2" >"{tmp_path}/args"; cat {tmp_path}/answer'
    )
    program = Program(tmp_path, body)
    program.answers(token="admin-token")
    user = {
        "command": str(program.path),
        "args": ["$(touch owned)", "a b"],
        "env": [{"name": "OWN", "value": "x;y"}],
        "provideClusterInfo": True,
    }
    cluster = kubeconfig.load(written(server, tmp_path, user))
    assert cluster.headers() == {"Authorization": "Bearer admin-token"}
    assert (tmp_path / "args").read_text() == "x;y|$(touch owned)|a b\n"
    told = json.loads((tmp_path / "info").read_text())
    assert (told["apiVersion"], told["kind"], told["spec"]["interactive"]) == (V1, "ExecCredential", False)
    about = told["spec"]["cluster"]
    assert (about["server"], about["config"]) == (cluster.server, {"audience": "lab"})
    assert about["certificate-authority-data"]
    assert "admin-token" not in f"{cluster!r} {cluster.login!r} {cluster.login and cluster.login.get()!r}"


def test_without_leave_the_program_is_told_nothing_of_the_cluster(tmp_path: Path) -> None:
    program = Program(tmp_path, f'echo "$KUBERNETES_EXEC_INFO" >"{tmp_path}/info"; cat {tmp_path}/answer')
    program.answers(token="x")
    Plugin(program.spec(), cluster={"server": "x"}).get()
    assert json.loads((tmp_path / "info").read_text())["spec"] == {"interactive": False}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"command": ""}, "command is missing"),
        ({"api_version": "client.authentication.k8s.io/v1alpha1"}, "apiVersion is .* it must be one of"),
        ({"interactive_mode": "Always"}, "interactiveMode is Always: .* needs a terminal"),
        ({"interactive_mode": ""}, "interactiveMode is '': it must be Never or IfAvailable"),
        ({"env": [Variable("a=b")]}, "env has an entry"),
    ],
)
def test_what_cannot_be_run_is_refused_with_words(program: Program, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        execplugin.check("me", program.spec(**changes))


def test_the_beta_needs_no_interactive_mode(program: Program) -> None:
    beta = "client.authentication.k8s.io/v1beta1"
    spec = program.spec(api_version=beta, interactive_mode="")
    execplugin.check("me", spec)
    program.answers(beta, token="x")
    assert Plugin(spec).get().token == "x"


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (f"echo {HUSH}; echo {HUSH} >&2; exit 3", Unreachable, r"failed \(exit status 3\): run it by hand"),
        (f"echo {HUSH}", BadRequest, "did not print an ExecCredential"),
        (f'echo \'{{"kind": 7, "status": {{"token": "{HUSH}"}}}}\'', BadRequest, "did not print an ExecCredential"),
        (f'echo \'{{"kind": "Secret", "status": {{"token": "{HUSH}"}}}}\'', BadRequest, "a kind or version other than"),
        ("yes x | head -c 2000000", BadRequest, f"more than {MOST_OUTPUT} bytes"),
        ("sleep 1000", Unreachable, "did not finish within 0.5 s"),
        ("sleep 1000 & exec 1>&-; wait", Unreachable, "did not finish within 0.5 s"),
    ],
)
def test_a_program_that_fails_is_named_and_nothing_it_said_is(
    tmp_path: Path, body: str, error: type[NetloomError], words: str
) -> None:
    plugin = Plugin(Program(tmp_path, body).spec(args=[HUSH]), run_seconds=0.5 if "sleep" in body else 30)
    with pytest.raises(error, match=words) as caught:
        plugin.get()
    assert HUSH not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "neither a token nor a client certificate"),
        ({"clientKeyData": "x"}, "only one of client certificate and key"),
        ({"token": "a\r\nb"}, "a token with characters that a header cannot have"),
        ({"token": HUSH, "expirationTimestamp": "soon"}, "no time"),
        ({"token": HUSH, "expirationTimestamp": "2020-01-01T00:00:00Z"}, "has already expired: check the clock"),
    ],
)
def test_a_credential_that_cannot_be_used_is_refused(program: Program, status: dict[str, str], words: str) -> None:
    program.answers(**status)
    with pytest.raises(BadRequest, match=words) as caught:
        Plugin(program.spec()).get()
    assert HUSH not in str(caught.value)


def test_a_failure_stands_for_a_moment_and_then_the_program_is_run_again(program: Program) -> None:
    now = 0.0
    plugin = Plugin(program.spec(), clock=lambda: now)
    program.answers()
    for _ in range(5):
        with pytest.raises(BadRequest):
            plugin.get()
        with pytest.raises(BadRequest):
            asyncio.run(plugin.refresh())
    assert program.runs == 1
    program.answers(token="x")
    now += execplugin.FAILED_SECONDS
    assert plugin.get().token == "x"


def test_a_program_that_is_not_there_comes_with_its_hint(program: Program) -> None:
    missing = program.spec(command="no-such-login-program", install_hint="Install it from the vendor.")
    with pytest.raises(NotFound, match=r"cannot be run: No such file or directory\nInstall it from the vendor\."):
        Plugin(missing).get()
    program.path.chmod(stat.S_IRUSR)
    with pytest.raises(NotFound, match="cannot be run: Permission denied"):
        Plugin(program.spec()).get()


def test_a_program_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    program = Program(tmp_path, f'sleep 1000 & echo $! >"{tmp_path}/child"; wait')
    with pytest.raises(Unreachable):
        Plugin(program.spec(), run_seconds=0.5).get()
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not _lives(child), what="the child to end")


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]
    except OSError:
        return False
