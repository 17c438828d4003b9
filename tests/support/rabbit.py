"""A real RabbitMQ on free loopback ports, with a node name, a port mapper and a folder of its own.

with rabbit() as broker:
    ...                     # broker.url, broker.password
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from netloom.run.access import certificates
from tests.support.process import Program, find_program, free_port, scratch

INSTALL = "tools/system-packages test"
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Not the one on PATH, which changes to the user rabbitmq."""
PASSWORD = "p@ss:w%rd-of-rabbit"
ONLY_LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"


class Broker(NamedTuple):
    """A running broker."""

    url: str
    """Without the password."""
    port: int
    ca: Path | None


@contextlib.contextmanager
def rabbit(*, tls: bool = False) -> Iterator[Broker]:
    """Yield a broker, with TLS or without.  It ends with the test process, however that ends."""
    find_program("rabbitmq-server", install=INSTALL)
    _sweep()
    with scratch(f"rabbit-{os.getpid()}") as folder:
        port, mapper = free_port(), free_port()
        listener = [f"listeners.tcp.1 = 127.0.0.1:{port}"]
        if tls:
            _make_certificates(folder)
            listener = [
                "listeners.tcp = none",
                f"listeners.ssl.1 = 127.0.0.1:{port}",
                f"ssl_options.cacertfile = {folder / 'ca.crt'}",
                f"ssl_options.certfile = {folder / 'server.crt'}",
                f"ssl_options.keyfile = {folder / 'server.key'}",
            ]
        users = ["default_user = netloom", f"default_pass = {PASSWORD}", "log.console = true"]
        (folder / "rabbitmq.conf").write_text("\n".join([*listener, *users]) + "\n")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"netloom-{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-start_epmd false {ONLY_LOOPBACK}",
            "RUNNING_UNDER_SYSTEMD": "true",  # One process, instead of a shell with a child.
        }
        with (
            Program(["epmd", "-address", "127.0.0.1", "-port", str(mapper)], log=folder / "epmd.log", env=environment),
            Program([SERVER], log=folder / "rabbit.log", env=environment) as server,
        ):
            server.wait_ready(lambda: "Server startup complete" in server.output(), timeout=300)
            yield Broker(f"rabbit://netloom@127.0.0.1:{port}/", port, folder / "ca.crt" if tls else None)
            server.kill()  # Its graceful end takes seconds.


def _sweep() -> None:
    """Remove the folders of tests that were killed; their brokers ended with them."""
    for folder in Path(tempfile.gettempdir()).glob("netloom-rabbit-*-*"):
        if not Path("/proc", folder.name.split("-")[2]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _make_certificates(folder: Path) -> None:
    now = datetime.now(UTC)
    ca = certificates.Pair(certificates.make_ca(key := certificates.new_key(), name="rabbit", now=now), key)
    key = certificates.new_key()
    (folder / "ca.crt").write_bytes(ca.certificate)
    (folder / "server.crt").write_bytes(certificates.make_server(ca, key, hosts=["127.0.0.1"], now=now))
    (folder / "server.key").write_bytes(key)
