"""What the kernel of a node needs to forward packets between pods and everything outside.

A setting is read first and written only if it differs, so an administrator who has set it sees no change; none is ever
set back, because others may rely on it by then. Netloom changes, in the node's network namespace:

- `net.ipv4.ip_forward = 1`, if the cluster has IPv4. IPv4 has a switch of each device too, but a packet from outside
  may arrive at any of them.
- `net.ipv6.conf.all.forwarding = 1`, if it has IPv6: there is no switch of single devices. A kernel that forwards
  ignores router advertisements, and so may lose its default route, on devices with `accept_ra = 1`: these get 2 before.
- `forwarding = 1` for the node's own port in the Network of pods, in case it was set to 0 by default.

`rp_filter` may be anything: the routes of the node's port lead back to every source behind it.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

from netloom.plan.problem import ProblemError

SYSCTL = Path("/proc/sys/net")


def enable(device: str, families: Collection[int], *, root: Path = SYSCTL) -> list[str]:
    """Make the kernel forward packets of some address families; return the settings that were changed."""
    wanted: list[tuple[str, str]] = []
    if 4 in families:
        wanted += [("ipv4/ip_forward", "1"), (f"ipv4/conf/{device}/forwarding", "1")]
    if 6 in families:
        every = "ipv6/conf/all/forwarding"
        if not (root / every).exists():
            raise ProblemError("ForwardingDisabled", "the cluster has IPv6, and this node's kernel has it switched off")
        if _read(root / every) != "1":
            wanted += [(one, "2") for one in _advertised(root, device)]
        wanted += [(every, "1"), (f"ipv6/conf/{device}/forwarding", "1")]
    return [f"{_name(path)} = {value}" for path, value in wanted if _ensure(root, path, value)]


def _advertised(root: Path, device: str) -> Iterable[str]:
    """Return the settings of devices that would ignore router advertisements."""
    for path in sorted((root / "ipv6/conf").glob("*/accept_ra")):
        if path.parent.name not in ("all", device) and _read(path) == "1":
            yield str(path.relative_to(root))


def _ensure(root: Path, path: str, value: str) -> bool:
    """Write a setting if it differs; return whether it did."""
    before = _read(root / path)
    if before in (value, ""):
        return False  # "": the device does not exist now.
    try:
        (root / path).write_text(value)
    except OSError as error:
        said = f"{_name(path)} is {before} and cannot be set to {value} ({error.strerror}): set it on the node"
        raise ProblemError("ForwardingDisabled", said) from error
    return True


def _name(path: str) -> str:
    """Return the name of a setting as sysctl writes it: a dot in the name of a device becomes a slash."""
    return "net." + path.translate({ord("."): "/", ord("/"): "."})


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
