"""Errors as CNI has them: a code, a message, and details.  Pure."""

from enum import IntEnum

from netloom.errors import NetloomError
from netloom.plan.problem import ProblemError


class Code(IntEnum):
    """The error codes of the CNI specification, and ours from 100."""

    VERSION = 1
    """The version of the configuration is not supported."""
    UNSUPPORTED = 2
    """A field of the configuration is not supported."""
    UNKNOWN_CONTAINER = 3
    """The container does not exist; the runtime need not clean up."""
    ENVIRONMENT = 4
    """A variable is missing or invalid."""
    IO = 5
    """The node refuses."""
    DECODE = 6
    """The input cannot be decoded."""
    CONFIGURATION = 7
    """The configuration is invalid."""
    LATER = 11
    """The runtime should try again later."""
    NOT_AVAILABLE = 50
    """No pod can be added."""
    LIMITED = 51
    """No pod can be added, and those that exist may not be connected."""
    DIFFERENT = 100
    """CHECK found a difference."""
    INTERNAL = 101
    """A bug."""
    INCOMPLETE = 102
    """GC could not remove everything."""


class CniError(Exception):
    """A call that fails."""

    def __init__(self, code: Code, message: str, details: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


BY_PROBLEM = {
    "NamespaceMissing": Code.UNKNOWN_CONTAINER,
    "NotGranted": Code.ENVIRONMENT,
    "NameTaken": Code.ENVIRONMENT,
    "NotAPod": Code.CONFIGURATION,
    "RouteTaken": Code.IO,
    "QdiscTaken": Code.IO,
    "KernelRefused": Code.IO,
    "SwitchRefused": Code.IO,
    "FlowsRefused": Code.IO,
}
"""The code of a problem of a port, by its reason; the others may pass, and are `Code.LATER`."""


def cni_error(error: NetloomError) -> CniError:
    """Return the error of CNI for one of ours."""
    if isinstance(error, ProblemError):
        return CniError(BY_PROBLEM.get(error.problem.reason, Code.LATER), error.message, error.problem.reason)
    return CniError(Code.LATER if error.retry else Code.IO, error.message, error.reason)
