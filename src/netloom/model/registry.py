"""The registry of all kinds, `KINDS`, and a constant for each kind (`NETWORK`, `SUBNET`, …).

Routes, discovery, tables, selectors, OpenAPI, CRDs and the names in the CLI are derived from it. A new kind needs its
types and one entry here.
"""

from netloom.model.document import Resource
from netloom.model.kind import READ_VERBS, VERBS, Column, Kind, Plan, Registry
from netloom.model.kinds import attachments, bgp, cluster, events, networks, paths, policy, sandbox

GROUP = "netloom.dev"
VERSION = "v1alpha1"

READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status', description="Whether the object is ready.")
WHY = Column(
    "Reason",
    '.status.conditions[?(@.type=="Ready")].reason',
    wide=True,
    description="The reason of the Ready condition.",
)
AGE = Column("Age", ".metadata.creationTimestamp", "date", description="The time since the object was created.")


def _kind(
    resource: type[Resource],
    short_name: str,
    columns: tuple[Column, ...],
    *,
    plural: str = "",
    namespaced: bool = True,
    has_status: bool = True,
    selectable: tuple[str, ...] = (),
    plan: Plan = Plan.NONE,
    needs_ovn: bool = False,
    refers_to_attachments: bool = False,
    read_by_nodes: bool = False,
    controllers_only: bool = False,
) -> Kind:
    """Return a kind of Netloom; the columns Reason, beside Ready, and Age are added."""
    name = resource.__name__
    return Kind(
        group=GROUP,
        version=VERSION,
        name=name,
        plural=plural or name.lower() + "s",
        singular=name.lower(),
        type=resource,
        short_names=(short_name,),
        categories=("netloom",),
        namespaced=namespaced,
        has_status=has_status,
        columns=(*columns, WHY, AGE) if READY in columns else (*columns, AGE),
        selectable=selectable,
        description=(resource.__doc__ or "").partition("\n")[0],
        plan=plan,
        needs_ovn=needs_ovn,
        refers_to_attachments=refers_to_attachments,
        read_by_nodes=read_by_nodes,
        controllers_only=controllers_only,
    )


NODE = _kind(
    cluster.Node,
    "nln",
    plan=Plan.INPUT,
    namespaced=False,
    columns=(
        Column("Underlay", ".spec.underlayIP"),
        Column("Datapath", ".status.datapath"),
        READY,
        Column("Version", ".status.agentVersion"),
        Column("Heartbeat", ".status.lastHeartbeat", "date", wide=True),
    ),
)
NETWORK = _kind(
    networks.Network,
    "net",
    plan=Plan.ASIDE,
    read_by_nodes=True,
    columns=(
        Column("Fabric", ".spec.fabric"),
        Column("VNI", ".status.vni", "integer"),
        READY,
        Column("MTU", ".spec.mtu", "integer", wide=True),
        Column("Physical", ".spec.provider.physicalNetwork", wide=True),
        Column("VLAN", ".spec.provider.vlan", "integer", wide=True),
    ),
    selectable=("spec.vni",),
)
SUBNET = _kind(
    networks.Subnet,
    "sn",
    plan=Plan.ASIDE,
    read_by_nodes=True,
    columns=(
        Column("Network", ".spec.network"),
        Column("CIDR", ".spec.cidr"),
        Column("Validated", ".status.validated", "boolean"),
        Column("Used", ".status.used", "integer"),
        Column("Capacity", ".status.capacity", "integer"),
        Column("Gateway", ".spec.gateway", wide=True),
        Column("Errors", ".status.errors", wide=True),
    ),
    selectable=("spec.network",),
)
NETWORK_ATTACHMENT = _kind(
    attachments.NetworkAttachment,
    "na",
    plan=Plan.ASIDE,
    read_by_nodes=True,
    columns=(
        Column("Node", ".spec.node"),
        Column("Network", ".spec.network"),
        Column("IPs", ".status.ips"),
        READY,
        Column(
            "Addressed",
            '.status.conditions[?(@.type=="Addressed")].status',
            wide=True,
            description="Whether addresses are allocated.",
        ),
        Column("MAC", ".status.mac", wide=True),
        Column("Device", ".status.ifcName", wide=True),
        Column("Host", ".status.hostIP", wide=True),
    ),
    selectable=("spec.node", "spec.network", "status.hostIP"),
)
IP_LOCK = _kind(
    networks.IPLock,
    "ipl",
    columns=(
        Column("Network", ".spec.network"),
        Column("VNI", ".spec.vni", "integer"),
        Column("IP", ".spec.ip"),
        Column("Owner", ".metadata.ownerReferences[0].name"),
        Column("Freed", ".metadata.deletionTimestamp", "date", description="Since when the address is in quarantine."),
    ),
    selectable=("spec.network", "spec.vni"),
)
VNI_LOCK = _kind(
    networks.VNILock,
    "vl",
    namespaced=False,
    has_status=False,
    columns=(
        Column("VNI", ".spec.vni", "integer"),
        Column("Namespace", ".spec.network.namespace"),
        Column("Network", ".spec.network.name"),
        Column("Freed", ".metadata.deletionTimestamp", "date", description="Since when the VNI is in quarantine."),
    ),
)
ROUTER = _kind(
    networks.Router,
    "rtr",
    plan=Plan.READY,
    needs_ovn=True,
    columns=(
        Column("Networks", ".spec.networks[*].network"),
        Column("Gateway", ".status.gatewayNode"),
        READY,
        Column("Outside", ".spec.gateway.network", wide=True),
    ),
)
SECURITY_PROFILE = _kind(
    policy.SecurityProfile,
    "sp",
    plan=Plan.READY,
    refers_to_attachments=True,
    read_by_nodes=True,
    columns=(Column("Ports", ".status.ports", "integer"), READY),
)
LOAD_BALANCER = _kind(
    policy.LoadBalancer,
    "lb",
    selectable=("spec.externalTrafficPolicy",),
    plan=Plan.READY,
    needs_ovn=True,
    refers_to_attachments=True,
    read_by_nodes=True,
    columns=(
        Column("VIPs", ".spec.vips[*].ip"),
        Column("Up", ".status.endpointsUp", "integer"),
        Column("Down", ".status.endpointsDown", "integer"),
        READY,
        Column("Networks", ".spec.networks", wide=True),
        Column("Routers", ".spec.routers", wide=True),
    ),
)
SHAPING = _kind(
    paths.Shaping,
    "shp",
    plan=Plan.READY,
    refers_to_attachments=True,
    read_by_nodes=True,
    columns=(
        Column("Rate", ".spec.rate"),
        Column("Delay", ".spec.delay"),
        Column("Loss", ".spec.loss"),
        READY,
        Column("Direction", ".spec.direction", wide=True),
        Column("Unsupported", ".status.unsupported[*].field", wide=True),
    ),
)
MIRROR = _kind(
    paths.Mirror,
    "mir",
    plan=Plan.READY,
    needs_ovn=True,
    refers_to_attachments=True,
    read_by_nodes=True,
    columns=(
        Column("Source", ".spec.source.attachment"),
        Column("Destination", ".spec.destination.attachment"),
        Column("Direction", ".spec.direction"),
        READY,
    ),
)
SERVICE_CHAIN = _kind(
    paths.ServiceChain,
    "chain",
    columns=(
        Column("Left", ".spec.left[*].network"),
        Column("Right", ".spec.right[*].network"),
        Column("Hops", ".status.readyHops", "integer"),
        READY,
    ),
)
PORT_POOL = _kind(
    attachments.PortPool,
    "pp",
    columns=(
        Column("Node", ".spec.node"),
        Column("Network", ".spec.network"),
        Column("Size", ".spec.size", "integer"),
        Column("Free", ".status.free", "integer"),
        Column("Used", ".status.used", "integer"),
        READY,
    ),
    selectable=("spec.node",),
)
SANDBOX = _kind(
    sandbox.Sandbox,
    "sbx",
    plural="sandboxes",
    columns=(
        Column("Backend", ".spec.backend"),
        Column("Topology", ".spec.topology.name"),
        Column("Hosts", ".status.hosts", "integer"),
        READY,
        Column("Faults", ".spec.faults[*].name", wide=True),
    ),
)
HOST_DOCUMENT = _kind(
    sandbox.HostDocument,
    "hdoc",
    read_by_nodes=True,
    controllers_only=True,
    columns=(
        Column("Node", ".spec.node"),
        Column("Namespaces", ".status.namespaces", "integer"),
        Column("Networks", ".status.networks", "integer"),
        READY,
        Column("Problems", ".status.problems", wide=True),
    ),
    selectable=("spec.node",),
)
BGP_SPEAKER = _kind(
    bgp.BGPSpeaker,
    "bgps",
    plan=Plan.INPUT,
    read_by_nodes=True,
    columns=(
        Column("ASN", ".spec.asn", "integer"),
        Column("Router-ID", ".spec.routerID"),
        Column("Node", ".spec.node"),
        Column("Established", ".status.established", "integer"),
        READY,
    ),
    selectable=("spec.node",),
)
BGP_PEER = _kind(
    bgp.BGPPeer,
    "bgpp",
    read_by_nodes=True,
    columns=(
        Column("Speaker", ".spec.speaker"),
        Column("Address", ".spec.address"),
        Column("ASN", ".spec.remoteASN", "integer"),
        Column("State", ".status.state"),
        Column("Received", ".status.received", "integer"),
        Column("Sent", ".status.sent", "integer"),
        Column("Since", ".status.since", "date", description="The time since the session last came up or went down."),
        Column("Error", ".status.lastError", wide=True),
    ),
    selectable=("spec.speaker",),
)
EVPN_NETWORK = _kind(
    bgp.EVPNNetwork,
    "evpn",
    plan=Plan.ASIDE,
    read_by_nodes=True,
    columns=(
        Column("Network", ".spec.network"),
        Column("Speaker", ".spec.speaker"),
        Column("VNI", ".status.vni", "integer"),
        Column("Remote", ".status.remoteMACs", "integer"),
        Column("Local", ".status.localMACs", "integer"),
        READY,
        Column("Forwarding", ".status.forwarding", "boolean", wide=True),
    ),
    selectable=("spec.speaker", "spec.network"),
)
REMOTE_VTEP = _kind(
    bgp.RemoteVTEP,
    "rvtep",
    plan=Plan.ASIDE,
    read_by_nodes=True,
    has_status=False,
    columns=(
        Column("Network", ".spec.network"),
        Column("Address", ".spec.address"),
        Column("VNI", ".spec.vni", "integer"),
        Column("Node", ".spec.node"),
        Column("Flood", ".spec.flood", "boolean"),
        Column("EVPNNetwork", ".spec.evpnNetwork", wide=True),
    ),
    selectable=("spec.node", "spec.network", "spec.evpnNetwork"),
)
EVENT = Kind(
    group="",
    version="v1",
    name="Event",
    plural="events",
    singular="event",
    type=events.Event,
    short_names=("ev",),
    has_status=False,
    columns=(
        Column("Last Seen", ".lastTimestamp", "date"),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Object", "{.involvedObject.kind}/{.involvedObject.name}"),
        Column("Subobject", ".involvedObject.fieldPath", wide=True),
        Column("Source", ".source.component", wide=True),
        Column("Message", ".message"),
        Column("First Seen", ".firstTimestamp", "date", wide=True),
        Column("Count", ".count", "integer", wide=True),
        Column("Name", ".metadata.name", wide=True),
    ),
    selectable=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ),
    description="A report of something that happened to an object.",
)
LEASE = Kind(
    group="coordination.k8s.io",
    version="v1",
    name="Lease",
    plural="leases",
    singular="lease",
    type=cluster.Lease,
    has_status=False,
    columns=(Column("Holder", ".spec.holderIdentity"), AGE),
    description="A lease, used for leader election.",
)
NAMESPACE = Kind(
    group="",
    version="v1",
    name="Namespace",
    plural="namespaces",
    singular="namespace",
    type=cluster.Namespace,
    short_names=("ns",),
    namespaced=False,
    holds_objects=True,
    verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
    columns=(Column("Status", ".status.phase"), AGE),
    selectable=("status.phase",),
    description="A scope for names and for access control.",
)
CUSTOM_RESOURCE_DEFINITION = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    name="CustomResourceDefinition",
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    type=cluster.CustomResourceDefinition,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    namespaced=False,
    has_status=False,
    verbs=READ_VERBS,
    columns=(Column("Created At", ".metadata.creationTimestamp"),),
    description="The definition of a kind.",
)

KINDS = Registry(kind for kind in tuple(vars().values()) if isinstance(kind, Kind))
"""All of the above."""

NOT_IMPLEMENTED = (SERVICE_CHAIN,)
"""The kinds without a controller.  Their objects are validated and stored, their status says that the kind is not
implemented, and they do not count as users of the objects they name.  Remove a kind here when it is implemented."""

PLANNED = tuple(kind for kind in KINDS if kind.plan is not Plan.NONE)
"""The kinds that plans are made from."""
