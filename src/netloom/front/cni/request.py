"""Reads the requests of container runtimes, and reports the first thing that is wrong with one.  Pure.

A request is the variables CNI_… of a call and its standard input, the network configuration. What a verb does not need
is not checked: a DEL must succeed with a configuration that is no longer valid, as long as it can be read.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from netloom.front.cni.errors import CniError, Code
from netloom.model.schemas.rules import LABEL_PATTERN, SUBDOMAIN_PATTERN
from netloom.model.values import addresses

VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
LATEST = VERSIONS[-1]
MOST_INPUT = 262144
"""Bytes of a network configuration."""
MOST_BYTES = 2 * MOST_INPUT
"""Bytes of a request."""
LONGEST_UID = 128
VALID_ATTACHMENTS = "cni.dev/valid-attachments"
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,252}")
_DEVICE = re.compile(r"(?!\.{1,2}$)[^\s/:\x00-\x20\x7f]{1,15}")
_NAMESPACE = re.compile(LABEL_PATTERN)
_POD = re.compile(SUBDOMAIN_PATTERN)


class Verb(StrEnum):
    """What a runtime can ask for."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    STATUS = "STATUS"
    GC = "GC"
    VERSION = "VERSION"


SINCE = {Verb.CHECK: "0.4.0", Verb.STATUS: "1.1.0", Verb.GC: "1.1.0"}
"""The version of the specification that a verb came with."""


class Request(Struct, frozen=True, kw_only=True):
    """One call of the plugin."""

    verb: Verb
    version: str = LATEST
    """The version of the configuration, which is that of the answer."""
    container: str = ""
    device: str = ""
    netns: str = ""
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    """The pod's; the runtime may not say it."""
    ips: tuple[str, ...] = ()
    """The addresses that the pod must have, without prefix lengths."""
    mac: str = ""
    """The MAC address that it must have."""
    previous: Mapping[str, Any] | None = None
    """The result of the plugin before this one in the list, or of the ADD that CHECK is about."""
    keep: tuple[tuple[str, str], ...] = ()
    """For GC: the containers and interfaces that exist."""


def split(data: bytes) -> tuple[dict[str, str], bytes]:
    """Return the variables and the standard input of a request as it arrives."""
    variables: dict[str, str] = {}
    while True:
        entry, found, data = data.partition(b"\0")
        if not found:
            raise CniError(Code.DECODE, "the request ends within its variables")
        if not entry:
            return variables, data
        name, _, value = entry.partition(b"=")
        variables[name.decode(errors="replace")] = value.decode(errors="replace")


def version_of(stdin: bytes) -> str:
    """Return the version in a configuration if it is one of ours, for the answer to a request with errors."""
    try:
        version = msgspec.json.decode(stdin, type=_Versioned).version
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return LATEST
    return version if version in VERSIONS else LATEST


def read(variables: Mapping[str, str], stdin: bytes) -> Request:
    """Return a request, or raise `CniError`."""
    command = variables.get("CNI_COMMAND", "")
    if command not in {*Verb}:
        known = ", ".join(Verb)
        text = f"CNI_COMMAND: {command[:80]!r} is none of {known}" if command else "CNI_COMMAND is missing"
        raise CniError(Code.ENVIRONMENT, text)
    verb = Verb(command)
    if len(stdin) > MOST_INPUT:
        raise CniError(Code.DECODE, f"the network configuration has more than {MOST_INPUT} bytes")
    if verb is Verb.VERSION:
        return Request(verb=verb, version=_configuration(stdin).get("cniVersion", LATEST) if stdin.strip() else LATEST)
    container, device, netns = _interface(verb, variables)
    configuration = _configuration(stdin)
    version = _version(verb, configuration)
    name = configuration.get("name")
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise CniError(Code.CONFIGURATION, f"name: {_shown(name)} is not the name of a network")
    made = Request(verb=verb, version=version, container=container, device=device, netns=netns)
    if verb is Verb.GC:
        return msgspec.structs.replace(made, keep=_kept(configuration))
    if verb is Verb.ADD:
        return _added(made, variables, configuration)
    if verb is Verb.CHECK:
        previous = _previous(configuration)
        if previous is None:
            raise CniError(Code.CONFIGURATION, "prevResult is missing: CHECK compares with the result of ADD")
        return msgspec.structs.replace(made, previous=previous)
    return made


class _Versioned(Struct, frozen=True):
    version: str = msgspec.field(name="cniVersion", default="")


def _interface(verb: Verb, variables: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the container, the interface and the path of the namespace that a call is about."""
    if verb in (Verb.STATUS, Verb.GC):
        return "", "", ""
    needed = ["CNI_CONTAINERID", "CNI_IFNAME"] + (["CNI_NETNS"] if verb is not Verb.DEL else [])
    missing = [name for name in needed if not variables.get(name)]
    if missing:
        raise CniError(Code.ENVIRONMENT, f"{', '.join(missing)}: required for {verb}")
    container, device = variables["CNI_CONTAINERID"], variables["CNI_IFNAME"]
    netns = variables.get("CNI_NETNS", "")
    if not _TOKEN.fullmatch(container):
        raise CniError(Code.ENVIRONMENT, f"CNI_CONTAINERID: {_shown(container)} is not the id of a container")
    if not _DEVICE.fullmatch(device):
        raise CniError(Code.ENVIRONMENT, f"CNI_IFNAME: {_shown(device)} is not the name of an interface")
    if verb is not Verb.DEL and (not netns.startswith("/") or len(netns) > 4096):
        raise CniError(Code.ENVIRONMENT, f"CNI_NETNS: {_shown(netns)} is not an absolute path")
    return container, device, netns


def _configuration(stdin: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(stdin)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CniError(Code.DECODE, f"the network configuration is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise CniError(Code.DECODE, "the network configuration is not a JSON object")
    return found


def _version(verb: Verb, configuration: Mapping[str, Any]) -> str:
    version = configuration.get("cniVersion")
    if version not in VERSIONS:
        raise CniError(Code.VERSION, f"cniVersion: {_shown(version)} is none of {', '.join(VERSIONS)}")
    since = SINCE.get(verb, VERSIONS[0])
    if VERSIONS.index(version) < VERSIONS.index(since):
        raise CniError(Code.VERSION, f"cniVersion: {verb} needs {since}, and the configuration has {version}")
    return str(version)


def _added(made: Request, variables: Mapping[str, str], configuration: Mapping[str, Any]) -> Request:
    pairs = [pair.partition("=") for pair in variables.get("CNI_ARGS", "").split(";") if pair]
    if any(not equals for _, equals, _ in pairs):
        raise CniError(Code.ENVIRONMENT, "CNI_ARGS: not of the form NAME=VALUE;NAME=VALUE")
    args = {name: value for name, _, value in pairs}
    namespace, pod = args.get("K8S_POD_NAMESPACE", ""), args.get("K8S_POD_NAME", "")
    if not _NAMESPACE.fullmatch(namespace) or len(namespace) > 63:
        raise CniError(Code.ENVIRONMENT, f"CNI_ARGS: K8S_POD_NAMESPACE is {_shown(namespace)}, not a namespace")
    if not _POD.fullmatch(pod) or len(pod) > 253:
        raise CniError(Code.ENVIRONMENT, f"CNI_ARGS: K8S_POD_NAME is {_shown(pod)}, not the name of a pod")
    uid = args.get("K8S_POD_UID", "")
    if len(uid) > LONGEST_UID:
        raise CniError(Code.ENVIRONMENT, f"CNI_ARGS: K8S_POD_UID has more than {LONGEST_UID} characters")
    if configuration.get("ipam"):
        raise CniError(Code.UNSUPPORTED, "ipam: not supported: addresses come from the Subnets of the Network")
    ips, mac = _capabilities(configuration)
    return msgspec.structs.replace(
        made,
        namespace=namespace,
        pod=pod,
        uid=uid,
        ips=ips,
        mac=mac,
        previous=_previous(configuration),
    )


def _capabilities(configuration: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return the addresses and the MAC address that are asked for."""
    asked = configuration.get("runtimeConfig") or {}
    if not isinstance(asked, dict):
        raise CniError(Code.CONFIGURATION, "runtimeConfig: must be an object")
    # A runtime may pass a capability without a use for it, such as no bandwidth. The ports of the node are in the pod's
    # attachment too (plan/kube/node/host_ports.py).
    for name, value in asked.items():
        used = any(value.values()) if isinstance(value, dict) else bool(value)
        if name not in ("ips", "mac", "portMappings") and used:
            raise CniError(Code.UNSUPPORTED, f"runtimeConfig.{name}: not supported", str(name))
    ips, mac = asked.get("ips") or [], asked.get("mac") or ""
    if not isinstance(ips, list) or not all(isinstance(ip, str) and _is_address(ip) for ip in ips):
        raise CniError(Code.CONFIGURATION, f"runtimeConfig.ips: {_shown(ips)} is not a list of addresses")
    if not isinstance(mac, str):
        raise CniError(Code.CONFIGURATION, f"runtimeConfig.mac: {_shown(mac)} is not a MAC address")
    return tuple(str(addresses.address(ip.partition("/")[0])) for ip in ips), mac.lower()


def _is_address(text: str) -> bool:
    return addresses.is_ip(text) or addresses.is_cidr(text)


def _previous(configuration: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = configuration.get("prevResult")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise CniError(Code.CONFIGURATION, "prevResult: must be an object")
    for name in ("interfaces", "ips", "routes"):
        items = found.get(name) or []
        if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
            raise CniError(Code.CONFIGURATION, f"prevResult.{name}: must be a list of objects")
    return found


def _kept(configuration: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found = configuration.get(VALID_ATTACHMENTS, "")
    if found is None:
        found = []  # As runtimes in Go write an empty list.
    if not isinstance(found, list):
        # Without the list, all interfaces would be removed: an empty one must be meant.
        raise CniError(Code.CONFIGURATION, f"{VALID_ATTACHMENTS}: must be a list")
    kept = []
    for one in found:
        pair = (one.get("containerID"), one.get("ifname")) if isinstance(one, dict) else (None, None)
        if not isinstance(pair[0], str) or not isinstance(pair[1], str):
            raise CniError(Code.CONFIGURATION, f"{VALID_ATTACHMENTS}: {_shown(one)} has no containerID and ifname")
        kept.append((pair[0], pair[1]))
    return tuple(kept)


def _shown(value: object) -> str:
    """Return a value of the caller's for a message."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
