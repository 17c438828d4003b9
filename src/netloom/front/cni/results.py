"""Forms the answers of the plugin, as each version of the specification has them.  Pure.

Since 1.0.0 an address does not say its family; since 1.1.0 an interface says its MTU.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from netloom.front.cni.errors import CniError, Code
from netloom.front.cni.request import LATEST, VERSIONS
from netloom.model.values import addresses
from netloom.plan.node.ports import PortPlan

Json = dict[str, Any]


def succeeded(result: Json | None) -> bytes:
    """Return the answer of a verb that succeeded; None: it has no result."""
    return b"0\n" + (b"" if result is None else msgspec.json.encode(result) + b"\n")


def failed(error: CniError, version: str) -> bytes:
    """Return the answer of a verb that failed."""
    found = {"cniVersion": version, "code": int(error.code), "msg": error.message}
    return b"1\n" + msgspec.json.encode(found | ({"details": error.details} if error.details else {})) + b"\n"


def supported(version: str) -> Json:
    """Return the result of VERSION."""
    return {"cniVersion": version if version in VERSIONS else LATEST, "supportedVersions": list(VERSIONS)}


def added(plan: PortPlan, version: str, previous: Mapping[str, Any] | None) -> Json:
    """Return the result of ADD: the port of a pod, behind what a plugin before this one returned."""
    before = previous or {}
    interfaces = list(before.get("interfaces") or ())
    inner: Json = {"name": plan.inner, "mac": plan.mac, "sandbox": plan.netns}
    if version not in VERSIONS[:-1]:
        inner["mtu"] = plan.mtu
    at = len(interfaces) + 1
    via = {addresses.family(one.to): one.via for one in plan.routes if one.to in ("0.0.0.0/0", "::/0")}
    ips: list[Json] = []
    for text in plan.addresses:
        ip: Json = {"address": text, "interface": at}
        if (gateway := via.get(addresses.family(text))) is not None:
            ip["gateway"] = gateway
        if version in VERSIONS[:2]:
            ip["version"] = str(addresses.family(text))
        ips.append(ip)
    return {
        "cniVersion": version,
        "interfaces": [*interfaces, {"name": plan.device}, inner],
        "ips": [*(before.get("ips") or ()), *ips],
        "routes": [*(before.get("routes") or ()), *({"dst": one.to, "gw": one.via} for one in plan.routes)],
        "dns": before.get("dns") or {},
    }


def differences(plan: PortPlan, result: Mapping[str, Any]) -> list[str]:
    """Return what a result says otherwise of a port than its plan; later plugins may have added to it."""
    interfaces = list(result.get("interfaces") or ())
    mine = [
        at for at, one in enumerate(interfaces) if (one.get("name"), one.get("sandbox")) == (plan.inner, plan.netns)
    ]
    if not mine:
        return [f"prevResult has no interface {plan.inner} in {plan.netns}"]
    [at, *_] = mine
    found = []
    if str(interfaces[at].get("mac", "")).lower() != plan.mac:
        found.append(f"prevResult has another MAC address for {plan.inner} than {plan.mac}")
    ips = {_address(one.get("address")) for one in result.get("ips") or () if one.get("interface") == at}
    return found + [f"prevResult does not have {ip}" for ip in plan.addresses if ip not in ips]


def accept(ips: tuple[str, ...], mac: str, given: tuple[str, ...], has: str) -> None:
    """Raise `CniError` if an attachment, which has addresses and a MAC address, is not what a runtime asks for."""
    have = {str(addresses.interface(ip).ip) for ip in given}
    other = [ip for ip in ips if ip not in have]
    if other:
        text = f"runtimeConfig.ips: the pod's attachment has {', '.join(sorted(have))}, not {', '.join(other)}"
        raise CniError(Code.CONFIGURATION, text)
    if mac and mac != has:
        raise CniError(Code.CONFIGURATION, f"runtimeConfig.mac: the pod's attachment has {has}, not {mac}")


def _address(text: object) -> str:
    return str(addresses.interface(text)) if isinstance(text, str) and addresses.is_cidr(text) else ""
