"""Credential plugins of kubeconfigs: client.authentication.k8s.io/v1 and v1beta1.

    users: [{name: u, user: {exec: {apiVersion: …, command: …, args: …, env: …, interactiveMode: Never}}}]

The program is run without a shell and without a terminal, for a limited time, and what it prints is bounded. It prints
an ExecCredential with a token, a client certificate, or both, which are used until the time it states, or until the
server refuses them. How often it is run is bounded, too, whatever it prints and the server answers. Neither what
it prints nor what it was given is ever part of a message.
"""

import asyncio
import copy
import json
import os
import select
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec
from msgspec import Struct

from netloom.errors import BadRequest, NetloomError, NotFound, Unreachable
from netloom.store.http.connect import load_certificate

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
RUN_SECONDS = 60.0
MOST_OUTPUT = 1 << 20
FAILED_SECONDS = 2.0
"""How long a failure is remembered before the program is run again."""
REFUSED_SECONDS = 5.0
"""How old a refused credential must be for the program to be run again."""


class Variable(Struct):
    """An environment variable."""

    name: str
    value: str = ""


class Spec(Struct, rename="camel"):
    """The `exec` of a kubeconfig's user."""

    command: str = ""
    api_version: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _Status(Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _Credential(Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _Status | None = None


class Issued(Struct, frozen=True):
    """The credential a program printed.  Holds secrets: its repr shows none of them."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expires: float | None = None
    """Seconds since the epoch; None: until it is refused."""

    def __repr__(self) -> str:
        return f"Issued(expires={self.expires})"

    __str__ = __repr__


def check(name: str, spec: Spec) -> None:
    """Refuse a specification that cannot be run."""
    where = f'user "{name}" of the kubeconfig: exec'
    if not spec.command:
        raise BadRequest(f"{where}.command is missing")
    if spec.api_version not in VERSIONS:
        raise BadRequest(f"{where}.apiVersion is {spec.api_version!r}: it must be one of {', '.join(VERSIONS)}")
    mode = spec.interactive_mode or ("IfAvailable" if spec.api_version != VERSIONS[0] else "")
    if mode == "Always":
        raise BadRequest(
            f"{where}.interactiveMode is Always: {spec.command} needs a terminal, and is run without one here; "
            "use a kubeconfig with a token or a client certificate"
        )
    if mode not in ("Never", "IfAvailable"):
        raise BadRequest(f"{where}.interactiveMode is {mode!r}: it must be Never or IfAvailable")
    if any(not one.name or "=" in one.name or "\0" in one.name + one.value for one in spec.env or ()):
        raise BadRequest(f"{where}.env has an entry that is no environment variable")


class Plugin:
    """One user's program, and its last credential."""

    def __init__(
        self,
        spec: Spec,
        *,
        folder: str = "",
        cluster: dict[str, Any] | None = None,
        run_seconds: float = RUN_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Run `spec` when a credential is needed; `cluster` describes the server to log in to."""
        self.generation = 0
        """The number of the current credential; each new one has the next number."""
        self._spec = spec
        self._folder = folder
        self._cluster = cluster
        self._run_seconds = run_seconds
        self._clock = clock
        self._issued: Issued | None = None
        self._issued_at = 0.0
        self._failure: tuple[float, NetloomError] | None = None
        self._lock = threading.Lock()
        self._running: asyncio.Task[None] | None = None
        self._contexts: WeakSet[ssl.SSLContext] = WeakSet()

    def secure(self, context: ssl.SSLContext) -> None:
        """Load the client certificate, and each later one, into a TLS context."""
        self._contexts.add(context)
        if self._issued is not None and self._issued.certificate:
            load_certificate(context, self._issued.certificate, self._issued.key)

    def get(self) -> Issued:
        """Return a credential that has not expired; blocks while the program runs."""
        with self._lock:
            if not self._fresh():
                self._raise_failure()
                self._keep(self._run())
                self._raise_failure()
            assert self._issued is not None
            return self._issued

    async def refresh(self) -> None:
        """Get a new credential if there is none or it has expired; does not block the event loop."""
        if self._fresh():
            return
        self._raise_failure()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._refresh())
        await asyncio.shield(self._running)
        self._raise_failure()

    def refused(self, generation: int) -> bool:
        """Record that the server refused a credential; return whether there is, or may be, another one."""
        if generation != self.generation:
            return True
        if self._issued is None or self._clock() - self._issued_at < REFUSED_SECONDS:
            return False
        self._issued = None
        return True

    async def _refresh(self) -> None:
        self._keep(await asyncio.to_thread(self._run))

    def _fresh(self) -> bool:
        return self._issued is not None and (self._issued.expires is None or self._clock() < self._issued.expires)

    def _raise_failure(self) -> None:
        if self._failure is not None and self._clock() - self._failure[0] < FAILED_SECONDS:
            raise copy.copy(self._failure[1])

    def _keep(self, outcome: Issued | NetloomError) -> None:
        now = self._clock()
        if isinstance(outcome, Issued) and outcome.expires is not None and outcome.expires <= now:
            outcome = BadRequest(f"{self._name()} returned a credential that has already expired: check the clock")
        if isinstance(outcome, Issued) and outcome.certificate:
            try:
                for context in self._contexts:
                    load_certificate(context, outcome.certificate, outcome.key)
            except NetloomError as error:
                outcome = error
        if isinstance(outcome, NetloomError):
            self._failure = now, outcome
            return
        self._issued, self._issued_at, self._failure = outcome, now, None
        self.generation += 1

    def _run(self) -> Issued | NetloomError:
        try:
            return self._parsed(self._output())
        except NetloomError as error:
            return error

    def _output(self) -> bytes:
        """Run the program and return what it printed."""
        command = [self._path(), *(self._spec.args or ())]
        # A person may read the program's messages; in a log they might be a secret.
        messages = None if sys.stderr is not None and sys.stderr.isatty() else subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=messages,
                env=self._environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            hint = f"\n{self._spec.install_hint[:1000]}" if self._spec.install_hint else ""
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise NotFound(f"{self._name()} cannot be run: {why}{hint}") from None
        try:
            return self._read(process)
        finally:
            if process.poll() is None:  # Processes that a finished program left running are its own.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _read(self, process: "subprocess.Popen[bytes]") -> bytes:
        assert process.stdout is not None
        end = time.monotonic() + self._run_seconds
        output = b""
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise Unreachable(f"{self._name()} did not finish within {self._run_seconds:g} s")
            part = os.read(process.stdout.fileno(), 64 << 10)
            output += part
            if len(output) > MOST_OUTPUT:
                raise BadRequest(f"{self._name()} printed more than {MOST_OUTPUT} bytes")
            if not part:
                break
        try:
            code = process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{self._name()} did not finish within {self._run_seconds:g} s") from None
        if code:
            raise Unreachable(f"{self._name()} failed (exit status {code}): run it by hand to see why")
        return output

    def _parsed(self, output: bytes) -> Issued:
        try:
            found = msgspec.json.decode(output, type=_Credential)
        except (msgspec.DecodeError, RecursionError):
            # The error of the decoder could quote what was printed.
            raise BadRequest(f"{self._name()} did not print an ExecCredential as JSON") from None
        if found.kind != "ExecCredential" or found.api_version != self._spec.api_version:
            raise BadRequest(f"{self._name()} printed a kind or version other than {self._spec.api_version}")
        status = found.status or _Status()
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise BadRequest(f"{self._name()} returned only one of client certificate and key")
        if not status.token and not status.client_certificate_data:
            raise BadRequest(f"{self._name()} returned neither a token nor a client certificate")
        if not status.token.isascii() or not status.token.isprintable():
            raise BadRequest(f"{self._name()} returned a token with characters that a header cannot have")
        return Issued(
            status.token,
            status.client_certificate_data.encode(),
            status.client_key_data.encode(),
            self._expiry(status.expiration_timestamp),
        )

    def _expiry(self, text: str | None) -> float | None:
        if not text:
            return None
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise BadRequest(f"{self._name()} returned an expirationTimestamp that is no time") from None
        return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()

    def _path(self) -> str:
        """Return the command: one with a slash is relative to the kubeconfig, any other is looked for in PATH."""
        command = self._spec.command
        return str(Path(self._folder, command).absolute()) if "/" in command else command

    def _environment(self) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": False}
        if self._spec.provide_cluster_info:
            spec["cluster"] = self._cluster or {}
        info = {"kind": "ExecCredential", "apiVersion": self._spec.api_version, "spec": spec}
        own = {one.name: one.value for one in self._spec.env or ()}
        return {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _name(self) -> str:
        return f"the login program {self._spec.command!r} of the kubeconfig"
