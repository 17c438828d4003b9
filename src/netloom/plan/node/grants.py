"""What namespaces are granted: by the operator of a node, and for physical networks by an administrator. Pure.

    NodeGrants       which network namespaces, `internal` ports and devices of a node a namespace may use
    ProviderGrants   which physical networks, and which VLANs of them, a namespace's Networks may join

A grant is text, `NAMESPACE=VALUE`; `*` stands for every namespace. A namespace is compared as a whole and a path
component by component, so `a` never matches `a-b`. What no grant allows is refused, with the setting and the value to
add: the refusal becomes a condition with the reason `NotGranted`.

An `internal` port is a device in the node's own network namespace. Each of its addresses adds a route to its block, so
addresses are compared with the granted blocks as routes are.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

from msgspec import Struct

from netloom.errors import Cause, Invalid
from netloom.model.kinds.networks import Network, Provider
from netloom.model.schemas.rules import DEVICE_PATTERN, LABEL_PATTERN
from netloom.model.values import addresses
from netloom.plan.problem import Problem

NOT_GRANTED = "NotGranted"
EVERY = "*"
PLACEHOLDER = "{namespace}"
USED = ":used"
UNTAGGED = "untagged"
NETNS_FOLDERS, INTERNAL_ROUTES, INTERNAL_NAMES, EXISTING_DEVICES, PROVIDER_GRANTS = (
    "netnsFolders",
    "internalRoutes",
    "internalNames",
    "existingDevices",
    "providerGrants",
)
LAST_VLAN = 4094
LONGEST = 200
"""Characters of a path that a refusal repeats: the setting must fit into the rest of the condition's message."""
_NAMESPACE = re.compile(LABEL_PATTERN)
_DEVICE = re.compile(DEVICE_PATTERN)
_DEVICE_GLOB = re.compile(r"[-0-9A-Za-z_.*?\[\]!]{1,64}")
_VLANS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")

T = TypeVar("T")
ProviderRefusal = Callable[[Network], str]
"""Returns why a Network's namespace may not join its physical network; "": it may, or there is none."""


class Folder(NamedTuple):
    """One grant of a folder of network namespaces, by its components."""

    namespace: str
    parts: tuple[str, ...]

    def written(self, namespace: str) -> str:
        """Return the folder that this grants to a namespace."""
        return "/" + "/".join(self._of(namespace))

    def split(self, namespace: str, path: Sequence[str]) -> str | None:
        """Return the part of a path that the operator set, if this grants the path to a namespace; None: it does not.

        The rest may belong to the tenant, and no symbolic link is followed there. The rest begins at the placeholder,
        if there is one. The result is "" if everything is granted: then a link leads to nothing that could not be
        named.
        """
        if self.namespace not in (EVERY, namespace) or len(path) <= len(self.parts):
            return None
        if self._of(namespace) != tuple(path[: len(self.parts)]):
            return None
        if not self.parts:
            return ""
        literal = self.parts.index(PLACEHOLDER) if PLACEHOLDER in self.parts else len(self.parts)
        return "/" + "/".join(self.parts[:literal])

    def _of(self, namespace: str) -> tuple[str, ...]:
        return tuple(namespace if part == PLACEHOLDER else part for part in self.parts)


class DeviceGrant(NamedTuple):
    """One grant of devices of a node."""

    namespace: str
    pattern: str
    used: bool
    """Also a device that another program uses: a port of a bridge or of Open vSwitch, a veth."""


class NodeGrants(Struct, frozen=True, kw_only=True):
    """What a node's operator grants."""

    folders: tuple[Folder, ...] = ()
    routes: tuple[tuple[str, addresses.Block], ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    devices: tuple[DeviceGrant, ...] = ()

    def folder(self, namespace: str, path: str) -> str | Problem:
        """Return the part of a network namespace's path that may be trusted, or why the path is refused."""
        parts = _components(path)
        if parts is not None:
            for grant in self.folders:
                root = grant.split(namespace, parts)
                if root is not None:
                    return root
        mine = [one.written(namespace) for one in self.folders if one.namespace in (EVERY, namespace)]
        known = f"granted: {short(', '.join(mine))}" if mine else "none is granted"
        return _refused(
            f"spec.port.netns: {short(path)} is in no folder that this node grants to namespace {namespace} ({known})",
            NETNS_FOLDERS,
            f"{namespace}=FOLDER",
        )

    def internal(
        self, namespace: str, name: str, ips: Iterable[str], routes: Iterable[str], *, generated: bool
    ) -> Problem | None:
        """Return why a namespace may not have such a device in the node's own network namespace; None: it may.

        `routes` are destinations; `generated`: the name is derived from the MAC, and so is unique.
        """
        blocks = [block for granted, block in self.routes if granted in (EVERY, namespace)]
        if not blocks:
            return _refused(
                f"spec.port.type: namespace {namespace} may not have internal ports on this node",
                INTERNAL_ROUTES,
                f"{namespace}=CIDR for the blocks of their addresses and routes",
            )
        if not generated and not any(
            granted in (EVERY, namespace) and fnmatchcase(name, pattern) for granted, pattern in self.names
        ):
            return _refused(
                f"spec.port.name: namespace {namespace} may not name a device of this node {name}: leave the name out",
                INTERNAL_NAMES,
                f"{namespace}={name}",
            )
        wanted = [("the address", ip) for ip in ips] + [("a route to", to) for to in routes]
        for what, text in wanted:
            block = addresses.interface(text).network
            if not any(_inside(block, one) for one in blocks):
                return _refused(
                    f"{what} {text} is outside the blocks that this node grants internal ports of namespace"
                    f" {namespace} ({', '.join(map(str, blocks))})",
                    INTERNAL_ROUTES,
                    f"{namespace}={block}",
                )
        return None

    def device(self, namespace: str, name: str) -> DeviceGrant | Problem:
        """Return the widest grant by which a namespace may take a device, or why it may not."""
        mine = [one for one in self.devices if one.namespace in (EVERY, namespace) and fnmatchcase(name, one.pattern)]
        if mine:
            return max(mine, key=lambda one: one.used)
        return _refused(
            f"spec.port.device: namespace {namespace} may not take device {name} of this node",
            EXISTING_DEVICES,
            f"{namespace}={name}",
        )


def in_use(namespace: str, device: str, use: str) -> Problem:
    """Return the refusal of a device that a pattern grants, and that another program uses."""
    return _refused(
        f"spec.port.device: device {device} {use}, and a pattern does not grant such a device",
        EXISTING_DEVICES,
        f"{namespace}={device}, its exact name",
    )


def own_namespace(path: str, why: str) -> Problem:
    """Return the refusal of a veth whose network namespace is the node's own."""
    return Problem(NOT_GRANTED, f"spec.port.netns: {short(path)} is the node's own network namespace, and there: {why}")


def symbolic_link(path: str, part: str) -> Problem:
    """Return the refusal of a path that leads out of a granted folder, or could."""
    return Problem(
        NOT_GRANTED,
        f"spec.port.netns: {short(part)} in {short(path)} is a symbolic link, and none is followed in a folder of the"
        f" setting {NETNS_FOLDERS}: mount the namespace there, as `ip netns attach` does",
    )


class ProviderGrant(NamedTuple):
    """One grant of a physical network."""

    namespace: str
    physical_network: str
    first: int
    last: int
    """The VLANs; untagged is 0."""

    def allows(self, namespace: str, provider: Provider) -> bool:
        """Whether this lets a namespace join a physical network."""
        return (
            self.namespace in (EVERY, namespace)
            and self.physical_network in (EVERY, provider.physical_network)
            and self.first <= (provider.vlan or 0) <= self.last
        )


def needed(namespace: str, provider: Provider) -> str:
    """Return the least grant that lets a namespace join a physical network."""
    return f"{namespace}={provider.physical_network}:{provider.vlan or UNTAGGED}"


class ProviderGrants(Struct, frozen=True):
    """Which physical networks an administrator grants to which namespaces."""

    grants: tuple[ProviderGrant, ...] = ()

    def refusal(self, network: Network) -> str:
        """Return why a Network may not join its physical network; "": it may, or it joins none."""
        provider, namespace = network.spec.provider, network.metadata.namespace
        if provider is None or any(one.allows(namespace, provider) for one in self.grants):
            return ""
        physical = provider.physical_network
        where = f"VLAN {provider.vlan} of physical network {physical}" if provider.vlan else f"{physical} untagged"
        return _refused(
            f"spec.provider: namespace {namespace} may not join {where}",
            PROVIDER_GRANTS,
            needed(namespace, provider),
            by="an administrator grants it to the controllers",
        ).message


def node_grants(
    *,
    netns_folders: Iterable[str] = (),
    internal_routes: Iterable[str] = (),
    internal_names: Iterable[str] = (),
    existing_devices: Iterable[str] = (),
) -> NodeGrants:
    """Return what these settings of an agent grant, or raise `Invalid` with all errors."""
    causes: list[Cause] = []
    made = NodeGrants(
        folders=_read(NETNS_FOLDERS, netns_folders, _folder, causes),
        routes=_read(INTERNAL_ROUTES, internal_routes, _route, causes),
        names=_read(INTERNAL_NAMES, internal_names, _name, causes),
        devices=_read(EXISTING_DEVICES, existing_devices, _device, causes),
    )
    _raise(causes)
    return made


def provider_grants(texts: Iterable[str]) -> ProviderGrants:
    """Return what the setting of the controllers grants, or raise `Invalid` with all errors."""
    causes: list[Cause] = []
    made = ProviderGrants(_read(PROVIDER_GRANTS, texts, _provider, causes))
    _raise(causes)
    return made


def short(text: str) -> str:
    """Return the beginning of a text that a tenant wrote, for a message."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _refused(message: str, setting: str, value: str, *, by: str = "the operator of the node grants it") -> Problem:
    return Problem(NOT_GRANTED, f"{message}; {by} by the setting {setting}: {value}")


def _inside(inner: addresses.Block, outer: addresses.Block) -> bool:
    return (
        inner.version == outer.version
        and int(outer.network_address) <= int(inner.network_address)
        and (int(inner.broadcast_address) <= int(outer.broadcast_address))
    )


def _components(path: str) -> list[str] | None:
    """Return a path's components; None if the path is relative or has `.`, `..` or empty components."""
    if not path.startswith("/") or "\0" in path:
        return None
    parts = path[1:].split("/")
    return None if any(part in ("", ".", "..") for part in parts) else parts


def _read(key: str, texts: Iterable[str], parse: Callable[[str], T], causes: list[Cause]) -> tuple[T, ...]:
    found = []
    for text in texts:
        try:
            found.append(parse(text))
        except ValueError as error:
            causes.append(Cause(key, f"{text!r}: {error}"))
    return tuple(found)


def _raise(causes: list[Cause]) -> None:
    if causes:
        raise Invalid("invalid configuration", causes=causes)


def _granted(text: str, form: str) -> tuple[str, str]:
    """Return the namespace and its grant."""
    namespace, equals, value = text.partition("=")
    if not equals or not value or (namespace != EVERY and not _NAMESPACE.fullmatch(namespace)):
        raise ValueError(f"write NAMESPACE={form}, or *={form} for every namespace")
    return namespace, value


def _folder(text: str) -> Folder:
    namespace, path = (EVERY, text) if text.startswith("/") else _granted(text, "FOLDER")
    parts = [] if path == "/" else _components(path.rstrip("/"))
    if parts is None:
        raise ValueError("the folder must be an absolute path without . and ..")
    if any("{" in part and part != PLACEHOLDER for part in parts):
        raise ValueError(f"{PLACEHOLDER} must be a whole component of the path")
    if text.startswith("/") and PLACEHOLDER not in parts:
        remedy = f"{path.rstrip('/')}/{PLACEHOLDER} for a folder of each, or *={path} for all namespaces alike"
        raise ValueError(f"it does not say which namespace has it: write {remedy}")
    return Folder(namespace, tuple(parts))


def _route(text: str) -> tuple[str, addresses.Block]:
    namespace, block = _granted(text, "CIDR")
    if not addresses.is_block(block):
        raise ValueError("write NAMESPACE=CIDR with an address block, such as prod=10.10.0.0/16")
    return namespace, addresses.block(block)


def _name(text: str) -> tuple[str, str]:
    namespace, pattern = _granted(text, "NAME")
    if not _DEVICE_GLOB.fullmatch(pattern):
        raise ValueError("write NAMESPACE=NAME with the name of a device; * and ? are wildcards: prod=web*")
    return namespace, pattern


def _device(text: str) -> DeviceGrant:
    namespace, value = _granted(text, "DEVICE")
    pattern = value.removesuffix(USED)
    if not _DEVICE_GLOB.fullmatch(pattern):
        raise ValueError("write NAMESPACE=DEVICE with the name of a device; * and ? are wildcards: prod=eth1")
    return DeviceGrant(namespace, pattern, used=pattern != value or bool(_DEVICE.fullmatch(pattern)))


def _provider(text: str) -> ProviderGrant:
    namespace, value = _granted(text, "PHYSICALNETWORK:VLANS")
    physical, colon, vlans = value.partition(":")
    numbers = _VLANS.fullmatch(vlans)
    if physical != EVERY and not _NAMESPACE.fullmatch(physical):
        raise ValueError(f"{physical!r} is not the name of a physical network")
    if not colon:
        return ProviderGrant(namespace, physical, 0, LAST_VLAN)
    if vlans == UNTAGGED:
        return ProviderGrant(namespace, physical, 0, 0)
    first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (0, 0)
    if not 1 <= first <= last <= LAST_VLAN:
        raise ValueError(f"{vlans!r} is not a VLAN, FIRST-LAST from 1 to {LAST_VLAN}, or {UNTAGGED}")
    return ProviderGrant(namespace, physical, first, last)


EVERYTHING = node_grants(
    netns_folders=("*=/",),
    internal_routes=("*=0.0.0.0/0", "*=::/0"),
    internal_names=("*=*",),
    existing_devices=("*=*:used",),
)
"""Everything on a node, to every namespace: for plans that are made without knowing the node."""
NO_PROVIDERS = ProviderGrants()
ALL_PROVIDERS = provider_grants(("*=*",))
"""Every physical network to every namespace."""
