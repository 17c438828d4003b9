"""The settings of a process: from flags, environment variables and a file, in that order of precedence.

One frozen value per process. Its fields are the only list of settings: the command-line flags (`--log-level`), the
environment variables (`NETLOOM_LOG_LEVEL`), the keys of the file (`logLevel`) and the help texts are all derived from
it. All errors are reported at once, each with its key and its source. An unknown key is refused, and the nearest known
key is suggested: silently ignoring a misspelt setting costs hours of debugging.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo

from netloom.errors import Cause, Invalid
from netloom.model import codec
from netloom.model.kinds.cluster import SYSTEM_NAMESPACE, SYSTEM_NAMESPACES

PREFIX = "NETLOOM_"
_SWITCH = {"yes": True, "on": True, "no": False, "off": False}

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "text"]
Housekeeping = Literal["auto", "on", "off"]
OWNER_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""Names of our objects begin with the owner. An owner contains no slash: one owner must not be a prefix of another."""
KUBE_NAMESPACE = "netloom-pods"
KubeconfigContext = Annotated[str, Meta(description="Context in the kubeconfig; default: the current context.")]
HealthListen = Annotated[str, Meta(description="Loopback address and port for /healthz, /readyz, /metrics.")]
SpeakerNamespaces = Annotated[
    tuple[str, ...], Meta(description="Namespaces whose BGPSpeakers may run on this node, as default or team-*.")
]
SpeakerPasswords = Annotated[
    str, Meta(description="Folder of files with passwords of BGPPeers; files elsewhere are not read.")
]
PASSWORD_FOLDER = "/etc/netloom"  # noqa: S105 - Not a password.


class Settings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings of every process."""

    log_level: Annotated[Level, Meta(description="Log level: debug, info, warning or error.")] = "info"
    log_format: Annotated[Format, Meta(description="Log format: json, text, or auto: text on a terminal.")] = "auto"


class ControlSettings(Settings, frozen=True, kw_only=True):
    """The settings of the controllers, in `netloom serve` and in `netloom controller`."""

    quarantine: Annotated[
        float,
        Meta(ge=0, le=86400, description="Seconds before a released address may be allocated again; 0 means at once."),
    ] = 5.0
    vni_range: Annotated[str, Meta(description="VNIs to allocate to Networks that request none, as FIRST-LAST.")] = (
        "4096-16777215"
    )
    vni_rest: Annotated[
        float,
        Meta(
            ge=0,
            le=86400,
            description="Seconds before another namespace may get the VNI of a deleted Network; 0 means at once.",
        ),
    ] = 30.0
    ovn_nb: Annotated[
        tuple[str, ...],
        Meta(
            description="OVN northbound servers, as unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT; empty: run without OVN."
        ),
    ] = ()
    ovn_sb: Annotated[
        tuple[str, ...], Meta(description="OVN southbound servers, for gateway nodes and the health of endpoints.")
    ] = ()
    ovn_key: Annotated[str, Meta(description="Private key (PEM) of this client for ssl: servers of OVN.")] = ""
    ovn_cert: Annotated[str, Meta(description="Certificate (PEM) of this client for ssl: servers of OVN.")] = ""
    ovn_ca: Annotated[str, Meta(description="CA (PEM) that signed the certificates of the OVN servers.")] = ""
    ovn_server_names: Annotated[
        tuple[str, ...],
        Meta(description="Names accepted in the OVN servers' certificates; empty: the host in each ssl:HOST:PORT."),
    ] = ()
    ovn_owner: Annotated[
        str,
        Meta(
            pattern=OWNER_PATTERN,
            description="Owner name of our rows in OVN; a second Netloom on the same OVN needs another one.",
        ),
    ] = "netloom"
    provider_grants: Annotated[
        tuple[str, ...],
        Meta(description="Physical networks and VLANs that Networks may use, as prod=physnet1:100-199; empty: none."),
    ] = ()
    kube: Annotated[bool, Meta(description="Be the network of a Kubernetes cluster.")] = False
    kube_cluster: Annotated[
        str, Meta(description="With --kube: kubeconfig of the cluster; default: the API of Netloom's own objects.")
    ] = ""
    kube_namespace: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            description="Namespace of the objects made for the cluster; no tenant may write in it.",
        ),
    ] = KUBE_NAMESPACE
    kube_pod_cidrs: Annotated[
        tuple[str, ...], Meta(description="Blocks of the cluster's pods: --cluster-cidr of kube-controller-manager.")
    ] = ()
    kube_service_cidrs: Annotated[
        tuple[str, ...], Meta(description="Blocks of its Services: --service-cluster-ip-range of kube-apiserver.")
    ] = ()
    kube_load_balancer_pools: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses for Services of type LoadBalancer: blocks or ranges, as 192.0.2.0/28; for one"
            " namespace as shop=192.0.2.16/28."
        ),
    ] = ()
    kube_mtu: Annotated[
        int, Meta(ge=0, le=65535, description="MTU of pods; 0: that of the underlay less the encapsulation.")
    ] = 0
    kube_pool_size: Annotated[
        int, Meta(ge=0, le=4096, description="Ports that each node keeps ready for pods to come; 0: none.")
    ] = 0
    kube_pool_max_size: Annotated[
        int,
        Meta(ge=0, le=4096, description="Most of these ports, when many pods come; 0: no more than kubePoolSize."),
    ] = 0


class ServeSettings(ControlSettings, frozen=True, kw_only=True):
    """The settings of `netloom serve`."""

    data: Annotated[str, Meta(description="Data directory; created on the first start.")] = ""
    listen: Annotated[str, Meta(description="Address and port of the API.")] = "127.0.0.1:8480"
    hosts: Annotated[tuple[str, ...], Meta(description="Additional names for the server certificate.")] = ()
    vtep_listen: Annotated[
        str, Meta(description="Address and port of the VTEP API of rest_vtep and evpn-for-ovn; empty: not served.")
    ] = ""
    speaker_node: Annotated[
        str, Meta(description="Node whose BGPSpeakers run in this process; empty: none, its agent runs them.")
    ] = ""
    speaker_namespaces: SpeakerNamespaces = SYSTEM_NAMESPACES
    speaker_socket: Annotated[
        str, Meta(description="Control socket of the speakers; default: speaker.sock in the data directory.")
    ] = ""
    speaker_passwords: SpeakerPasswords = PASSWORD_FOLDER


class TlsSettings(Settings, frozen=True, kw_only=True):
    """Settings of servers whose clients authenticate: files, or a data directory that has them all."""

    data: Annotated[str, Meta(description="Directory for CA, certificates and tokens, created as by serve.")] = ""
    hosts: Annotated[tuple[str, ...], Meta(description="Additional names for the certificate made in --data.")] = ()
    tls_cert: Annotated[str, Meta(description="Server certificate (PEM), instead of --data.")] = ""
    tls_key: Annotated[str, Meta(description="Private key (PEM) of --tls-cert.")] = ""
    client_ca: Annotated[str, Meta(description="CA (PEM) that signs client certificates.")] = ""
    tokens: Annotated[str, Meta(description="File of bearer tokens.")] = ""
    revoked: Annotated[str, Meta(description="File of revoked client certificates; it may be absent.")] = ""


class ApiserverSettings(TlsSettings, frozen=True, kw_only=True):
    """The settings of `netloom apiserver`."""

    store: Annotated[str, Meta(description="Where to store objects: sqlite:PATH or etcd:URL[,URL...].")] = ""
    listen: Annotated[str, Meta(description="Address and port of the API.")] = "127.0.0.1:8480"
    aggregated: Annotated[
        bool, Meta(description="Run as an aggregated API of a Kubernetes cluster, which authenticates and authorizes.")
    ] = False
    kubeconfig: Annotated[
        str, Meta(description="With --aggregated: kubeconfig of that cluster; default in a pod: its service account.")
    ] = ""
    context: KubeconfigContext = ""
    agent_account: Annotated[
        str, Meta(description="With --aggregated: service account of the nodes' agents, as NAMESPACE/NAME.")
    ] = f"{SYSTEM_NAMESPACE}/netloom-agent"
    requestheader_client_ca: Annotated[
        str,
        Meta(description="With --aggregated: CA (PEM) of kube-apiserver's proxy; default: read from the cluster."),
    ] = ""
    requestheader_allowed_names: Annotated[
        tuple[str, ...], Meta(description="With it: common names that the proxy's certificate may have; empty: any.")
    ] = ()


class ControllerSettings(ControlSettings, frozen=True, kw_only=True):
    """The settings of `netloom controller`."""

    kubeconfig: Annotated[str, Meta(description="Kubeconfig of the API to work on.")] = ""
    context: KubeconfigContext = ""
    leader_elect: Annotated[bool, Meta(description="Work only while holding the Lease.")] = True
    identity: Annotated[
        str, Meta(description="Holder name in the Lease; default: the host name; a unique suffix is added.")
    ] = ""
    lease_namespace: Annotated[
        str, Meta(min_length=1, description="Namespace of the Lease, in which only administrators may write Leases.")
    ] = SYSTEM_NAMESPACE
    previous_lease_namespace: Annotated[
        str,
        Meta(description="Hold the Lease in this namespace too, while upgrading from a version that has it there."),
    ] = ""
    housekeeping: Annotated[
        Housekeeping, Meta(description="Collect owned objects and old Events: on, off, or auto: not on Kubernetes.")
    ] = "auto"
    health_listen: HealthListen = ""


class NodeSettings(Settings, frozen=True, kw_only=True):
    """The settings of all processes of a node."""

    kubeconfig: Annotated[str, Meta(description="Kubeconfig of the API, with the node's credential.")] = ""
    context: KubeconfigContext = ""
    node: Annotated[str, Meta(description="Name of this node.")] = ""
    health_listen: HealthListen = ""
    speaker_namespaces: SpeakerNamespaces = SYSTEM_NAMESPACES
    speaker_socket: Annotated[
        str, Meta(description="Control socket of this node's speakers; default: beside that of Open vSwitch.")
    ] = ""
    speaker_passwords: SpeakerPasswords = PASSWORD_FOLDER


class SpeakerSettings(NodeSettings, frozen=True, kw_only=True):
    """The settings of `netloom speaker`."""


class AgentSettings(NodeSettings, frozen=True, kw_only=True):
    """The settings of `netloom agent`."""

    speaker: Annotated[
        bool, Meta(description="Run the BGPSpeakers of this node; off where `netloom speaker` runs them.")
    ] = True
    ovs: Annotated[str, Meta(description="Open vSwitch database of the node.")] = "unix:/run/openvswitch/db.sock"
    ovn_owner: Annotated[str, Meta(pattern=OWNER_PATTERN, description="Owner name of the ports made here.")] = "netloom"
    underlay_ip: Annotated[
        str, Meta(description="Address that other nodes send to; default: the ovn-encap-ip in Open vSwitch.")
    ] = ""
    bridge_mappings: Annotated[
        tuple[str, ...], Meta(description="Physical networks of this node and their bridges, as physnet1:br-ex.")
    ] = ()
    netns_folders: Annotated[
        tuple[str, ...],
        Meta(description="Folders of network namespaces by owner, as /run/netns/{namespace} or prod=/srv/ns."),
    ] = ("/run/netns/{namespace}", "/var/run/netns/{namespace}")
    internal_routes: Annotated[
        tuple[str, ...],
        Meta(
            description="CIDRs for addresses and routes of internal ports, as prod=10.10.0.0/16; empty: no such ports."
        ),
    ] = ()
    internal_names: Annotated[
        tuple[str, ...], Meta(description="Names that internal ports may have, as prod=web*; empty: generated names.")
    ] = ()
    existing_devices: Annotated[
        tuple[str, ...],
        Meta(description="Devices that existing ports may use, as prod=eth1 or prod=tap*; empty: none."),
    ] = ()
    sandbox_state: Annotated[
        str, Meta(pattern="^/", description="Folder of the state of Sandboxes with the backend linux on this node.")
    ] = "/run/netloom/sandboxes"
    kube_namespace: Annotated[
        str,
        Meta(
            description="Namespace of a Kubernetes cluster's objects, as netloom-pods: run nftables for it; empty: no."
        ),
    ] = ""
    datapath: Annotated[
        Literal["auto", "netdev", "system"],
        Meta(description="Datapath of new bridges: system (kernel), netdev (userspace), or auto: by kernel support."),
    ] = "auto"
    openflow: Annotated[
        str, Meta(description="OpenFlow socket for flows of vxlan Networks; default: br-vxlan.mgmt beside --ovs.")
    ] = ""
    encap: Annotated[str, Meta(description="With --prepare: tunnel protocol of OVN.")] = "geneve"
    ovn_remote: Annotated[str, Meta(description="With --prepare: southbound database, as ssl:192.0.2.1:6642.")] = ""
    prepare: Annotated[
        bool, Meta(description="Set up Open vSwitch: for OVN its identity, tunnels and br-int; without OVN br-vxlan.")
    ] = False
    allowed_programs: Annotated[
        tuple[str, ...],
        Meta(description="Programs that attachments may run on this node, as absolute paths; empty: none."),
    ] = ()
    exec_timeout: Annotated[
        float, Meta(gt=0, le=3600, description="Seconds after which such a program and its children are killed.")
    ] = 60.0
    cni: Annotated[
        str, Meta(description="Socket for the CNI plugin netloom-cni, as /run/netloom/cni.sock; empty: none.")
    ] = ""
    cni_namespace: Annotated[
        str, Meta(min_length=1, description="Namespace with the attachments of pods, to which nobody else may write.")
    ] = "netloom-pods"
    cni_timeout: Annotated[
        float,
        Meta(gt=0, le=3600, description="Seconds for adding a pod; less than the container runtime waits for it."),
    ] = 110.0


class VtepSettings(TlsSettings, frozen=True, kw_only=True):
    """The settings of `netloom vtep`."""

    kubeconfig: Annotated[str, Meta(description="Kubeconfig of the API to work on.")] = ""
    context: KubeconfigContext = ""
    namespace: Annotated[str, Meta(min_length=1, description="Namespace of the objects.")] = "default"
    node: Annotated[
        str, Meta(description="Node of a new speaker; default: the one whose underlay address is its router_id.")
    ] = ""
    ovs: Annotated[
        str, Meta(description="Open vSwitch database, to show port numbers to clients with a dpid; empty: show names.")
    ] = ""
    bgp_port: Annotated[int, Meta(ge=1, le=65535, description="TCP port that a new speaker listens on.")] = 179
    listen: Annotated[str, Meta(description="Address and port of the VTEP API.")] = "127.0.0.1:5000"
    insecure: Annotated[
        bool, Meta(description="Serve plain HTTP without authentication, on a loopback address only.")
    ] = False
    rabbit: Annotated[
        str, Meta(description="RabbitMQ server to serve RPC on, as rabbit://USER@HOST:PORT/VHOST; empty: none.")
    ] = ""
    rabbit_password_file: Annotated[str, Meta(description="File with the password of the user in --rabbit.")] = ""
    rabbit_ca: Annotated[
        str, Meta(description="CA (PEM) of the RabbitMQ server: use TLS. Required unless it has a loopback address.")
    ] = ""


S = TypeVar("S", bound=Settings)


class Loaded(Struct, frozen=True):
    """The effective configuration: every key with its value and its source."""

    settings: Settings
    sources: dict[str, str]

    def text(self) -> str:
        """Return the configuration as a file, each line with its source."""
        values = msgspec.to_builtins(self.settings)
        lines = [f"{key}: {msgspec.json.encode(values[key]).decode()}" for key in self.sources]
        width = max(map(len, lines))
        sourced = zip(lines, self.sources.values(), strict=True)
        return "".join(f"{line:{width}}  # {source}\n" for line, source in sourced)


def fields(kind: type[Settings]) -> list[FieldInfo]:
    """Return the settings of a process, its own before those of the controllers."""
    shared = set(ControlSettings.__struct_fields__) - set(Settings.__struct_fields__)
    return sorted(msgspec.structs.fields(kind), key=lambda field: field.name in shared)


def load(kind: type[S], *, flags: Mapping[str, object], environ: Mapping[str, str], file: str = "") -> tuple[S, Loaded]:
    """Return the settings of a process; raise `Invalid` with all errors if they are not valid.

    `flags` are by field name (log_level); None means that the flag is not given.
    """
    keys = {field.encode_name: field for field in fields(kind)}
    causes: list[Cause] = []
    in_file = _read(file, causes, keys) if file else {}
    causes += _misspelt(environ, keys)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key, field in keys.items():
        if flags.get(field.name) is not None:
            source, value = flag(field.name), flags[field.name]
        elif variable(field.name) in environ:
            source, value = variable(field.name), environ[variable(field.name)]
        else:
            source, value = (file, in_file[key]) if key in in_file else ("default", None)
        sources[key] = source
        if source == "default":
            continue
        try:
            values[field.name] = _convert(value, field)
        except msgspec.ValidationError as error:
            causes.append(Cause(key, f"{error} (from {source})"))
    if causes:
        raise Invalid("invalid configuration", causes=causes)
    settings = kind(**values)
    return settings, Loaded(settings, sources)


def variable(name: str) -> str:
    """Return the environment variable of a field: NETLOOM_LOG_LEVEL for log_level."""
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """Return the flag of a field: --log-level for log_level."""
    return f"--{name.replace('_', '-')}"


def invalid(key: str, message: str) -> Invalid:
    """Return the error of one setting."""
    return Invalid("invalid configuration", causes=[Cause(key, message)])


def address(text: str, key: str = "listen") -> tuple[str, int]:
    """Return host and port of `127.0.0.1:8480`, `[::1]:8480`, `:8480` (all addresses)."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
        raise invalid(key, f"{text!r} is not ADDRESS:PORT, as 127.0.0.1:8480")
    return bare, int(port)


def require(settings: Settings, *names: str) -> None:
    """Raise `Invalid` naming each of these fields that has no value."""
    causes = [
        Cause(_camel(n), f"required: use {flag(n)}, {variable(n)} or {_camel(n)}: in the file", "FieldValueRequired")
        for n in names
        if not getattr(settings, n)
    ]
    if causes:
        raise Invalid("invalid configuration", causes=causes)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _read(file: str, causes: list[Cause], keys: Mapping[str, object]) -> dict[str, Any]:
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise Invalid(f"cannot read the configuration file {file}: {error.strerror}") from None
    content = codec.decode(data, "application/yaml") if data.strip() else {}
    causes += [Cause(key, f"unknown key in {file}{_nearest(key, keys)}") for key in content if key not in keys]
    return content


def _misspelt(environ: Mapping[str, str], keys: Mapping[str, FieldInfo]) -> list[Cause]:
    """Return causes for near misses only: NETLOOM_ is also the prefix of variables for related programs."""
    known = {variable(field.name) for field in keys.values()} | {PREFIX + "CONFIG"}
    kinds = (ServeSettings, ApiserverSettings, ControllerSettings, AgentSettings, VtepSettings)
    everybodys = {variable(field.name) for kind in kinds for field in fields(kind)}
    return [
        Cause(name, f"unknown variable{_nearest(name, known)}")
        for name in environ
        if name.startswith(PREFIX)
        and name not in known | everybodys
        and difflib.get_close_matches(name, known, cutoff=0.88)
    ]


def _nearest(word: str, known: Mapping[str, object] | set[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known))}"


def listed(text: str) -> list[str]:
    """Return the parts of a comma-separated list, as flags and variables have it."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _convert(value: object, field: FieldInfo) -> Any:  # noqa: ANN401  # the type of the field
    if isinstance(value, str) and isinstance(field.default, tuple):
        value = listed(value)
    if isinstance(value, str) and isinstance(field.default, bool):
        value = _SWITCH.get(value.lower(), value)
    return msgspec.convert(value, field.type, strict=False)
