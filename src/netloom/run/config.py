"""What a process is told: by flag, by environment and by file, in that order of precedence.

One frozen value per process. Its fields are the only list of settings there is: the flags of the command line
(`--log-level`), the variables (`NETLOOM_LOG_LEVEL`), the keys of the file (`logLevel`) and the help texts are all made
from it. Everything that is wrong is said at once, by key, with where it came from; an unknown key is refused with the
nearest known one, because a misspelt setting that is silently ignored costs an evening.
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
from netloom.model.cluster import SYSTEM_NAMESPACE

PREFIX = "NETLOOM_"
_SWITCH = {"yes": True, "on": True, "no": False, "off": False}

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "text"]
Housekeeping = Literal["auto", "on", "off"]
Quarantine = Annotated[
    float, Meta(ge=0, le=86400, description="Seconds before a freed address is given to somebody else; 0: at once.")
]
VniRange = Annotated[str, Meta(description="The VNIs given to Networks that name none, as FIRST-LAST.")]
VniRest = Annotated[
    float,
    Meta(
        ge=0, le=86400, description="Seconds before another namespace gets the VNI of a Network that is gone; 0: none."
    ),
]
OvnNb = Annotated[
    tuple[str, ...],
    Meta(description="OVN's northbound servers, as unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT; none: no OVN."),
]
OvnSb = Annotated[
    tuple[str, ...], Meta(description="OVN's southbound servers, for gateway nodes and the health of endpoints.")
]
OvnKey = Annotated[str, Meta(description="Our private key (PEM) for ssl: servers of OVN.")]
OvnCert = Annotated[str, Meta(description="Our certificate (PEM) for them.")]
OvnCa = Annotated[str, Meta(description="The CA (PEM) that signed theirs.")]
OvnServerNames = Annotated[
    tuple[str, ...],
    Meta(description="The names their certificates may be for; none: the host in each ssl:HOST:PORT."),
]
ProviderGrants = Annotated[
    tuple[str, ...],
    Meta(description="Physical networks and VLANs that Networks may join, as prod=physnet1:100-199; none: none."),
]
OWNER_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""What is ours is told by how a name begins, too: so an owner's has no slash, after which another's could go on."""
OvnOwner = Annotated[
    str,
    Meta(
        pattern=OWNER_PATTERN,
        description="Whose rows in OVN ours are: another Netloom there needs another owner.",
    ),
]


class Settings(Struct, frozen=True, kw_only=True, rename="camel"):
    """What every process is told."""

    log_level: Annotated[Level, Meta(description="How much to log: debug, info, warning or error.")] = "info"
    log_format: Annotated[Format, Meta(description="json, text, or auto: text on a terminal, json elsewhere.")] = "auto"


class ServeSettings(Settings, frozen=True, kw_only=True):
    """What `netloom serve` is told."""

    data: Annotated[str, Meta(description="The data directory; made on the first start.")] = ""
    listen: Annotated[str, Meta(description="The address and port to serve the API on.")] = "127.0.0.1:8480"
    hosts: Annotated[tuple[str, ...], Meta(description="More names the server certificate is to carry.")] = ()
    quarantine: Quarantine = 5.0
    vni_range: VniRange = "4096-16777215"
    vni_rest: VniRest = 30.0
    ovn_nb: OvnNb = ()
    ovn_sb: OvnSb = ()
    ovn_key: OvnKey = ""
    ovn_cert: OvnCert = ""
    ovn_ca: OvnCa = ""
    ovn_server_names: OvnServerNames = ()
    ovn_owner: OvnOwner = "netloom"
    provider_grants: ProviderGrants = ()


class ApiserverSettings(Settings, frozen=True, kw_only=True):
    """What `netloom apiserver` is told."""

    store: Annotated[str, Meta(description="Where objects are kept: sqlite:PATH or etcd:URL[,URL...].")] = ""
    listen: Annotated[str, Meta(description="The address and port to serve the API on.")] = "127.0.0.1:8480"
    data: Annotated[str, Meta(description="A directory for CA, certificates and tokens, made as by serve.")] = ""
    hosts: Annotated[tuple[str, ...], Meta(description="More names the certificate made in --data is to carry.")] = ()
    tls_cert: Annotated[str, Meta(description="The server certificate (PEM), instead of --data.")] = ""
    tls_key: Annotated[str, Meta(description="Its private key (PEM).")] = ""
    client_ca: Annotated[str, Meta(description="The CA that client certificates are signed by (PEM).")] = ""
    tokens: Annotated[str, Meta(description="The file of bearer tokens.")] = ""
    revoked: Annotated[str, Meta(description="The file of revoked client certificates; it need not exist.")] = ""
    aggregated: Annotated[
        bool, Meta(description="Be an aggregated API of a Kubernetes: it says who asks, and who may what.")
    ] = False
    kubeconfig: Annotated[
        str, Meta(description="With --aggregated: the kubeconfig of that Kubernetes; in a pod: the service account.")
    ] = ""
    context: Annotated[str, Meta(description="The context in it; the current one unless given.")] = ""
    agent_account: Annotated[
        str, Meta(description="With --aggregated: the service account of the nodes' agents, as NAMESPACE/NAME.")
    ] = f"{SYSTEM_NAMESPACE}/netloom-agent"
    requestheader_client_ca: Annotated[
        str,
        Meta(description="With --aggregated: the CA (PEM) of kube-apiserver's proxy; the cluster says it otherwise."),
    ] = ""
    requestheader_allowed_names: Annotated[
        tuple[str, ...], Meta(description="With that: the common names the proxy may have; none: any.")
    ] = ()


class ControllerSettings(Settings, frozen=True, kw_only=True):
    """What `netloom controller` is told."""

    kubeconfig: Annotated[str, Meta(description="The kubeconfig of the API to work on.")] = ""
    context: Annotated[str, Meta(description="The context in it; the current one unless given.")] = ""
    leader_elect: Annotated[bool, Meta(description="Work only while holding the Lease.")] = True
    identity: Annotated[str, Meta(description="Who holds the Lease; the host name unless given. Made unique.")] = ""
    lease_namespace: Annotated[
        str, Meta(min_length=1, description="The namespace of the Lease, where none but administrators write Leases.")
    ] = SYSTEM_NAMESPACE
    previous_lease_namespace: Annotated[
        str,
        Meta(description="Hold the Lease in this namespace as well: for an upgrade from a version that has it there."),
    ] = ""
    housekeeping: Annotated[
        Housekeeping, Meta(description="Collect owned objects and old Events: on, off, or auto: not on a Kubernetes.")
    ] = "auto"
    quarantine: Quarantine = 5.0
    vni_range: VniRange = "4096-16777215"
    vni_rest: VniRest = 30.0
    ovn_nb: OvnNb = ()
    ovn_sb: OvnSb = ()
    ovn_key: OvnKey = ""
    ovn_cert: OvnCert = ""
    ovn_ca: OvnCa = ""
    ovn_server_names: OvnServerNames = ()
    ovn_owner: OvnOwner = "netloom"
    provider_grants: ProviderGrants = ()
    health_listen: Annotated[str, Meta(description="A loopback address and port for /healthz, /readyz, /metrics.")] = ""


class AgentSettings(Settings, frozen=True, kw_only=True):
    """What `netloom agent` is told."""

    kubeconfig: Annotated[str, Meta(description="The kubeconfig of the API, with the node's credential.")] = ""
    context: Annotated[str, Meta(description="The context in it; the current one unless given.")] = ""
    node: Annotated[str, Meta(description="The name of this node.")] = ""
    ovs: Annotated[str, Meta(description="The node's Open vSwitch database.")] = "unix:/run/openvswitch/db.sock"
    ovn_owner: Annotated[str, Meta(pattern=OWNER_PATTERN, description="Whose name the ports made here carry.")] = (
        "netloom"
    )
    underlay_ip: Annotated[
        str, Meta(description="The address other nodes send to; absent: the ovn-encap-ip the switch has.")
    ] = ""
    bridge_mappings: Annotated[
        tuple[str, ...], Meta(description="The physical networks here and their bridges, as physnet1:br-ex.")
    ] = ()
    netns_folders: Annotated[
        tuple[str, ...],
        Meta(
            description="Folders of network namespaces and whose they are, as /run/netns/{namespace} or prod=/srv/ns."
        ),
    ] = ("/run/netns/{namespace}", "/var/run/netns/{namespace}")
    internal_routes: Annotated[
        tuple[str, ...],
        Meta(
            description="Blocks for addresses and routes of internal ports, as prod=10.10.0.0/16; none: no such port."
        ),
    ] = ()
    internal_names: Annotated[
        tuple[str, ...], Meta(description="Names that internal ports may choose, as prod=web*; none: generated names.")
    ] = ()
    existing_devices: Annotated[
        tuple[str, ...],
        Meta(description="Devices that existing ports may take, as prod=eth1 or prod=tap*; none: none."),
    ] = ()
    datapath: Annotated[
        Literal["auto", "netdev", "system"],
        Meta(description="Where new bridges forward: system, the kernel; netdev, userspace; auto: as the kernel can."),
    ] = "auto"
    openflow: Annotated[
        str, Meta(description="Where flows of vxlan Networks are written; absent: br-vxlan.mgmt beside the database.")
    ] = ""
    encap: Annotated[str, Meta(description="With --prepare: the protocol of OVN's tunnels.")] = "geneve"
    ovn_remote: Annotated[str, Meta(description="With --prepare: the southbound database, as ssl:192.0.2.1:6642.")] = ""
    prepare: Annotated[
        bool, Meta(description="Set up Open vSwitch for OVN: identity, tunnels, br-int; without any OVN: br-vxlan.")
    ] = False
    allowed_programs: Annotated[
        tuple[str, ...],
        Meta(description="The programs that attachments may have run here, by their absolute paths; none: none."),
    ] = ()
    exec_timeout: Annotated[
        float, Meta(gt=0, le=3600, description="Seconds after which such a program is ended, with all it started.")
    ] = 60.0
    health_listen: Annotated[str, Meta(description="A loopback address and port for /healthz, /readyz, /metrics.")] = ""


S = TypeVar("S", bound=Settings)


class Loaded(Struct, frozen=True):
    """The effective configuration: every key with its value and where that came from."""

    settings: Settings
    sources: dict[str, str]

    def text(self) -> str:
        """Return it as a configuration file, each line with its source."""
        values = msgspec.to_builtins(self.settings)
        lines = [f"{key}: {msgspec.json.encode(value).decode()}" for key, value in values.items()]
        width = max(map(len, lines))
        return "".join(f"{line:{width}}  # {self.sources[key]}\n" for line, key in zip(lines, values, strict=True))


def load(kind: type[S], *, flags: Mapping[str, object], environ: Mapping[str, str], file: str = "") -> tuple[S, Loaded]:
    """Return the settings of a process, or raise `Invalid` with everything that is wrong with them.

    `flags` by field name (log_level), None where not given.
    """
    keys = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    causes: list[Cause] = []
    in_file = _read(file, causes, keys) if file else {}
    causes += _misspelt(environ, keys)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key, field in keys.items():
        source, value = _pick(field.name, key, flags=flags, environ=environ, file=file, in_file=in_file)
        sources[key] = source
        if source == "default":
            continue
        try:
            values[field.name] = _convert(value, field)
        except msgspec.ValidationError as error:
            causes.append(Cause(key, f"{error} (from {source})"))
    if causes:
        raise Invalid("the configuration is not right", causes=causes)
    settings = kind(**values)
    return settings, Loaded(settings, sources)


def variable(name: str) -> str:
    """Return the environment variable of a field: log_level is NETLOOM_LOG_LEVEL."""
    return PREFIX + name.upper()


def address(text: str, key: str = "listen") -> tuple[str, int]:
    """Return host and port of `127.0.0.1:8480`, `[::1]:8480`, `:8480` (all addresses)."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
        raise Invalid(
            "the configuration is not right", causes=[Cause(key, f"{text!r} is not ADDRESS:PORT, as 127.0.0.1:8480")]
        )
    return bare, int(port)


def require(settings: Settings, *names: str) -> None:
    """Raise `Invalid` naming each of the fields that is not given."""
    missing = [name for name in names if not getattr(settings, name)]
    if missing:
        raise Invalid(
            "the configuration is not right",
            causes=[
                Cause(
                    _camel(n),
                    f"required: give --{n.replace('_', '-')}, {variable(n)} or {_camel(n)}: in the file",
                    "FieldValueRequired",
                )
                for n in missing
            ],
        )


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
    """Only near misses are refused: NETLOOM_ is also the prefix of variables for other programs of the family."""
    known = {variable(field.name) for field in keys.values()} | {PREFIX + "CONFIG"}
    everybodys = {variable(field.name) for kind in Settings.__subclasses__() for field in msgspec.structs.fields(kind)}
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


def _pick(
    name: str,
    key: str,
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: str,
    in_file: Mapping[str, Any],
) -> tuple[str, object]:
    if flags.get(name) is not None:
        return f"--{name.replace('_', '-')}", flags[name]
    if variable(name) in environ:
        return variable(name), environ[variable(name)]
    if key in in_file:
        return file, in_file[key]
    return "default", None


def listed(text: str) -> list[str]:
    """Return the parts of a list as flags and variables have it, parted by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _convert(value: object, field: FieldInfo) -> Any:  # noqa: ANN401  # whatever type the field has
    if isinstance(value, str) and isinstance(field.default, tuple):
        value = listed(value)
    if isinstance(value, str) and isinstance(field.default, bool):
        value = _SWITCH.get(value.lower(), value)
    return msgspec.convert(value, field.type, strict=False)
