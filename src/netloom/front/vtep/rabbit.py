"""The operations as an oslo.messaging RPC server on RabbitMQ, as the agent of evpn-for-ovn serves them.

    client.call(ctxt, "add_network", arg={"vni": 10, "logical_switch": "ls1"})

An answer is the same as that of the REST API. What does not exist is an answer too, `{"VniNotFound": {"vni": 10}}`;
other errors are raised in the client, as remote errors. Every client that may publish to the topic may do
everything: the broker authenticates and authorizes.

Only this module imports oslo.messaging, which is installed by `netloom[openstack]`. The library blocks, so it runs in
threads, and the operations on the event loop. It reconnects by itself.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import socket
import threading
import warnings
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from netloom.errors import Invalid, NetloomError, NotFound, Unreachable
from netloom.front.vtep.arguments import ARGUMENTS
from netloom.front.vtep.operations import Missing, Vtep
from netloom.model.document import Document

try:
    with warnings.catch_warnings():
        # It imports eventlet, which warns that it is deprecated; nothing uses it.
        warnings.simplefilter("ignore")
        import oslo_messaging
        from oslo_config import cfg
except ImportError as error:
    raise NotFound(f"--rabbit needs oslo.messaging: install netloom[openstack] ({error})") from None

log = logging.getLogger(__name__)

TOPICS = ("bgpagent_bus", "ovn_bus")
"""The topic of evpn-for-ovn, and that of its first version."""
_ANSWER_SECONDS = 60.0
_STOP_SECONDS = 5.0
_PREFETCHED = 64


class Broker(Struct, frozen=True, kw_only=True):
    """A RabbitMQ server, and the credentials for it."""

    url: str
    """rabbit://USER@HOST:PORT/VHOST, without a password."""
    password: str
    ca: str = ""
    """The file with the CA of its certificate; "" for a connection without TLS."""

    def __post_init__(self) -> None:
        """Refuse a password that the library would write into its URL without escaping it."""
        if not self.password or "/" in self.password:
            raise Invalid("the password for RabbitMQ must not be empty or contain /, which oslo.messaging cannot use")

    def __repr__(self) -> str:
        """Return the server without the password."""
        return f"Broker({self.url!r})"


async def serve(vtep: Vtep, broker: Broker) -> None:
    """Serve RPC until cancelled."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    stopping = threading.Event()

    def work() -> None:
        failed: Exception | None = None
        try:
            _serve(_Endpoint(vtep, loop), broker, stopping)
        except Exception as error:  # noqa: BLE001  # raised on the event loop
            # Not its text: the library puts the password into URLs, and may show a part of one.
            failed = Unreachable(f"cannot serve RPC on {broker.url}: {type(error).__name__}")
        with contextlib.suppress(RuntimeError):  # The loop did not wait for this.
            loop.call_soon_threadsafe(_end, ended, failed)

    # A daemon: while the broker is not reachable, the library cannot be stopped.
    threading.Thread(target=work, name="rabbit", daemon=True).start()
    try:
        await asyncio.shield(ended)
    finally:
        stopping.set()
        done, _ = await asyncio.wait([ended], timeout=_STOP_SECONDS)
        for one in done:
            if error := one.exception():
                log.warning("%s", error)


def _end(ended: "asyncio.Future[None]", failed: Exception | None) -> None:
    if failed is not None:
        ended.set_exception(failed)
    else:
        ended.set_result(None)


def _serve(endpoint: "_Endpoint", broker: Broker, stopping: threading.Event) -> None:
    settings = cfg.ConfigOpts()
    settings([], project="netloom", default_config_files=[], default_config_dirs=[])
    url = oslo_messaging.TransportURL.parse(settings, broker.url)
    for host in url.hosts:
        host.password = broker.password
    url.query = {"rabbit_qos_prefetch_count": str(_PREFETCHED)}
    if broker.ca:
        url.query |= {"ssl": "true", "ssl_ca_file": broker.ca, "ssl_enforce_hostname_verification": "true"}
    transport = oslo_messaging.get_rpc_transport(settings, url=url)
    servers = [
        oslo_messaging.get_rpc_server(
            transport,
            oslo_messaging.Target(topic=topic, server=socket.gethostname()),
            [endpoint],
            executor="threading",
        )
        for topic in TOPICS
    ]
    for server in servers:
        server.start()
    log.info("serving RPC", extra={"topics": list(TOPICS)})
    stopping.wait()
    for server in servers:
        server.stop()
        server.wait()
    transport.cleanup()


class _Endpoint:
    """One method for each operation."""

    def __init__(self, vtep: Vtep, loop: asyncio.AbstractEventLoop) -> None:
        self._vtep = vtep
        self._loop = loop
        for operation in ARGUMENTS:
            setattr(self, operation, self._method(operation))

    def _method(self, operation: str) -> Callable[..., Document]:
        @oslo_messaging.expected_exceptions(NetloomError)  # type: ignore[untyped-decorator]
        def method(context: Any, arg: object = None) -> Document:  # noqa: ANN401  # any client's
            running = asyncio.run_coroutine_threadsafe(
                self._vtep.run(operation, {} if arg is None else arg), self._loop
            )
            try:
                return running.result(_ANSWER_SECONDS)
            except Missing as missing:
                return {missing.name: missing.details}
            except concurrent.futures.TimeoutError:
                running.cancel()
                raise Unreachable("the request took too long; it may or may not have been processed") from None

        wrapped: Callable[..., Document] = method
        return wrapped
