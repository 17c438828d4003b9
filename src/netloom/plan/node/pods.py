"""The record of a pod's sandbox: what only the container runtime knows, and says once.  Pure.

A port of type `pod` is planned when its pod is scheduled; where its inner end belongs is known when the runtime calls
ADD. From then until DEL that is recorded in the switch's database, so that the agent knows it after any restart,
without the API server. The identity of the network namespace tells it from every other that may later have its path,
and from all of earlier boots: a record whose namespace is gone is dropped.
"""

import msgspec
from msgspec import Struct

from netloom.model.kinds.attachments import NetworkAttachment
from netloom.plan.kube.names import POD_UID


class PodSandbox(Struct, frozen=True, kw_only=True):
    """One interface of one pod, as a container runtime asked for it."""

    namespace: str
    name: str
    """The attachment."""
    uid: str
    """The uid of the pod; "": the runtime did not say it."""
    container: str
    device: str
    """The name of the interface in the pod."""
    netns: str
    """The path of the pod's network namespace."""
    identity: str
    """The identity of that namespace: boot and inode."""


def is_for(sandbox: PodSandbox, attachment: NetworkAttachment) -> bool:
    """Whether a sandbox is of the pod that an attachment was made for, and not of another of the same name."""
    return sandbox.uid in ("", attachment.metadata.labels.get(POD_UID, ""))


def written(sandbox: PodSandbox) -> str:
    """Return a record as text."""
    return msgspec.json.encode(sandbox).decode()


def read_sandbox(text: str) -> PodSandbox | None:
    """Return the record of a text; None: it is none."""
    try:
        return msgspec.json.decode(text, type=PodSandbox)
    except msgspec.MsgspecError:
        return None
