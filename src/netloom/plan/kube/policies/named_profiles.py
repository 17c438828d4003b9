"""The SecurityProfiles that a pod names in its annotation `netloom.dev/security-profiles`.  Pure.

They are an administrator's, in the namespace of the objects that are made for the cluster, and say in an annotation of
their own which namespaces may name them: a profile that allows something is a right. A pod that names another one, or
one that does not exist, is closed rather than open: its attachment also names a profile that never exists.
"""

import re
from collections.abc import Callable, Iterator

from netloom.model.kinds.kubernetes import Pod
from netloom.model.kinds.policy import SecurityProfile
from netloom.model.schemas.rules import SUBDOMAIN_PATTERN
from netloom.plan.kube import names
from netloom.plan.problem import Problem

MOST = 63
"""How many profiles a pod may name."""
_NAME = re.compile(SUBDOMAIN_PATTERN)

FindProfile = Callable[[str], SecurityProfile | None]
"""Returns a profile of an administrator."""


def named(pod: Pod) -> tuple[str, ...]:
    """Return the profiles that a pod names, without repetitions."""
    parts = pod.metadata.read.security_profiles.split(",")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def granted(pod: Pod, namespace: str, find: FindProfile) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """Return the profiles that the attachment of a pod names, and why some of those that the pod names do not apply."""
    wanted = named(pod)
    problems = tuple(_problems(pod, wanted, namespace, find))
    fine = tuple(name for name in wanted[:MOST] if _may(find(name), pod.metadata.namespace))
    return ((*fine, names.NOT_GRANTED) if problems else fine), problems


def _problems(pod: Pod, wanted: tuple[str, ...], namespace: str, find: FindProfile) -> Iterator[Problem]:
    own, closed = pod.metadata.namespace, "the pod is closed until"
    if len(wanted) > MOST:
        said = f"annotation {names.PROFILES}: more than {MOST} profiles: {closed} it names fewer"
        yield Problem("TooManyProfiles", said)
    for name in wanted[:MOST]:
        if not _may(find(name), own):
            shown = name if len(name) <= 253 and _NAME.match(name) else repr(name[:64])
            said = f"does not exist in namespace {namespace}, or is not granted to namespace {own}: {closed} it is"
            yield Problem("ProfileNotGranted", f"annotation {names.PROFILES}: SecurityProfile {shown} {said}")


def _may(profile: SecurityProfile | None, namespace: str) -> bool:
    if profile is None or profile.metadata.name == names.NOT_GRANTED or profile.metadata.deletion_timestamp:
        return False
    to = {part.strip() for part in profile.metadata.annotations.get(names.GRANTED_TO, "").split(",")}
    return "*" in to or namespace in to
