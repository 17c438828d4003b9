"""What the plugin's verbs do: they check a request, and have the ports of pods made, removed or compared."""

import logging
from collections import Counter
from collections.abc import Callable

from netloom.control.node.pods import PodPorts
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

    def __init__(self, pods: PodPorts, *, namespace: str, timeout: float, is_ready: Callable[[], bool]) -> None:
        """`namespace` has the attachments of pods; `timeout`: seconds that an ADD may take."""
        self.answered: Counter[str] = Counter()
        """The calls that were answered, by verb."""
        self.failed: Counter[int] = Counter()
        """Those that failed, by code."""
        self._pods = pods
        self._namespace = namespace
        self._timeout = timeout
        self._is_ready = is_ready

    async def answer(self, data: bytes) -> bytes:
        """Return the answer to a request."""
        version, command = LATEST, ""
        try:
            variables, stdin = split(data)
            version, command = version_of(stdin), variables.get("CNI_COMMAND", "")
            request = read(variables, stdin)
            self.answered[request.verb] += 1
            return results.succeeded(await self._run(request))
        except CniError as error:
            return self._failed(error, version, command)
        except NetloomError as error:
            return self._failed(cni_error(error), version, command)
        except Exception:  # The edge: a bug must not end the agent.
            log.exception("CNI %s failed", command)
            return self._failed(
                CniError(Code.INTERNAL, "internal error: see the log of netloom agent"), version, command
            )

    def _failed(self, error: CniError, version: str, command: str) -> bytes:
        self.failed[error.code] += 1
        log.info("CNI %s: %s", command, error.message, extra={"code": int(error.code)})
        return results.failed(error, version)

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
