"""What the plugin's verbs do: they check a request, and have the ports of pods made, removed or compared."""

import asyncio
import logging
from collections.abc import Callable

from netloom.control.node.local_ports.pods import PodPorts
from netloom.control.runtime.counters import Histograms
from netloom.drivers.vswitch.pods import PodInterface
from netloom.errors import NetloomError
from netloom.front.cni import results
from netloom.front.cni.errors import CniError, Code, cni_error
from netloom.front.cni.request import LATEST, Request, Verb, read, split, version_of
from netloom.front.cni.results import Json
from netloom.model.kinds.attachments import NetworkAttachment
from netloom.plan.kube import names
from netloom.plan.node.pods import PodSandbox

log = logging.getLogger(__name__)


class Verbs:
    """The verbs, on one node."""

    def __init__(
        self, pods: PodPorts, *, namespace: str, timeout: float, is_ready: Callable[[], bool], durations: Histograms
    ) -> None:
        """`namespace` has the attachments of pods; `timeout`: seconds that an ADD may take.

        `durations` counts the calls by command and code; a call that was taken back is not counted.
        """
        self._pods = pods
        self._namespace = namespace
        self._timeout = timeout
        self._is_ready = is_ready
        self._durations = durations

    async def answer(self, data: bytes) -> bytes:
        """Return the answer to a request."""
        clock = asyncio.get_running_loop().time
        began, version, command = clock(), LATEST, ""
        try:
            variables, stdin = split(data)
            version, command = version_of(stdin), variables.get("CNI_COMMAND", "")
            answer = results.succeeded(await self._run(read(variables, stdin)))
            code = 0
        except (CniError, NetloomError) as error:
            failure = error if isinstance(error, CniError) else cni_error(error)
            log.info("CNI %s: %s", command, failure.message, extra={"code": int(failure.code)})
            answer, code = results.failed(failure, version), failure.code
        except Exception:  # The edge: a bug must not end the agent.
            log.exception("CNI %s failed", command)
            failure = CniError(Code.INTERNAL, "internal error: see the log of netloom agent")
            answer, code = results.failed(failure, version), failure.code
        known = command if command in {*Verb} else "other"
        self._durations.observe((known, str(int(code))), clock() - began)
        return answer

    async def _run(self, request: Request) -> Json | None:
        match request.verb:
            case Verb.VERSION:
                return results.supported(request.version)
            case Verb.ADD:
                return await self._add(request)
            case Verb.DEL:
                await self._pods.delete(_interface(request))
            case Verb.CHECK:
                await self._check(request)
            case Verb.STATUS:
                self._status()
            case Verb.GC:
                await self._collect(request)
        return None

    async def _add(self, request: Request) -> Json:
        def accept(attachment: NetworkAttachment) -> None:
            status, name = attachment.status, attachment.spec.port.name
            if name and name != request.device:
                raise CniError(Code.ENVIRONMENT, f"CNI_IFNAME: the pod's attachment has port.name {name}")
            results.accept(request.ips, request.mac, status.ips, status.mac)

        wanted = PodSandbox(
            namespace=self._namespace,
            name=names.pod(request.namespace, request.pod),
            uid=request.uid,
            container=request.container,
            device=request.device,
            netns=request.netns,
            identity="",
        )
        port = await self._pods.add(wanted, accept, timeout=self._timeout)
        return results.added(port.plan, request.version, request.previous)

    async def _check(self, request: Request) -> None:
        port, found = await self._pods.check(_interface(request))
        if port is not None:
            if port.sandbox.netns != request.netns:
                found.append(f"CNI_NETNS is not {port.sandbox.netns}")
            found += results.differences(port.plan, request.previous or {})
        if found:
            text = f"{request.device} is not as it was added: {found[0]}"
            raise CniError(Code.DIFFERENT, text, "; ".join(found[1:]))

    def _status(self) -> None:
        problem = self._pods.problem()
        if problem is not None:
            # Without its bridge, no pod of this node is connected.
            limited = problem.reason == "SwitchNotPrepared" and self._pods.any()
            raise CniError(Code.LIMITED if limited else Code.NOT_AVAILABLE, problem.message, problem.reason)
        if not self._is_ready():
            raise CniError(Code.NOT_AVAILABLE, "the agent has not read the attachments of this node yet")

    async def _collect(self, request: Request) -> None:
        failed = await self._pods.collect({PodInterface(*one) for one in request.keep})
        if failed:
            raise CniError(Code.INCOMPLETE, f"{len(failed)} interfaces cannot be removed yet", "; ".join(failed))


def _interface(request: Request) -> PodInterface:
    return PodInterface(request.container, request.device)
