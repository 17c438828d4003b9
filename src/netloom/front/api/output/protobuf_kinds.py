"""The kinds that are served in Protobuf, and the envelope of Kubernetes for an object of any kind.

The numbers are those of `generated.proto` in k8s.io/api and k8s.io/apimachinery. To serve another kind of Kubernetes in
Protobuf, add its messages to `MESSAGES` and its name to `_KINDS`. Kinds of netloom.dev have no messages, like those of
a CustomResourceDefinition; only their metadata is available in Protobuf (PartialObjectMetadata).

    envelope    `k8s\\0` and a runtime.Unknown: 1 typeMeta {1 apiVersion, 2 kind}   2 raw   3 contentEncoding
                4 contentType
    list        1 metadata (ListMeta)   2 items
    watch       for each event four bytes of length, most significant first, and a WatchEvent: 1 type   2 object
                {1 raw}; raw is an envelope
"""

from functools import cache, lru_cache

from netloom.errors import BadRequest
from netloom.front.api.output.protobuf import FIELD_LIMIT, MessageType, broken, tables
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.protobuf import BYTES, Body, Malformed, bytes_field, read_extent, varint

MEDIA = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
END = bytes_field(3, b"") + bytes_field(4, b"")
"""The bytes after the object in an envelope."""

MESSAGES = tables("""
ObjectMeta               1 name string  2 generateName string  3 namespace string  4 selfLink string  5 uid string
                         6 resourceVersion string  7 generation int64  8 creationTimestamp Time
                         9 deletionTimestamp Time?  10 deletionGracePeriodSeconds int64?  11 labels map
                         12 annotations map  13 ownerReferences OwnerReference*  14 finalizers string*
                         17 managedFields ManagedFieldsEntry*
OwnerReference           1 kind string!  3 name string!  4 uid string!  5 apiVersion string!  6 controller bool?
                         7 blockOwnerDeletion bool?
ManagedFieldsEntry       1 manager string  2 operation string  3 apiVersion string  4 time Time?  6 fieldsType string
                         7 fieldsV1 FieldsV1?  8 subresource string
ListMeta                 1 selfLink string  2 resourceVersion string  3 continue string  4 remainingItemCount int64?
PartialObjectMetadata    1 metadata ObjectMeta
Status                   1 metadata ListMeta  2 status string  3 message string  4 reason string
                         5 details StatusDetails?  6 code int32
StatusDetails            1 name string  2 group string  3 kind string  4 causes StatusCause*
                         5 retryAfterSeconds int32  6 uid string
StatusCause              1 reason string  2 message string  3 field string
DeleteOptions            1 gracePeriodSeconds int64?  2 preconditions Preconditions?  3 orphanDependents bool?
                         4 propagationPolicy string?  5 dryRun string*
                         6 ignoreStoreReadErrorWithClusterBreakingPotential bool?
Preconditions            1 uid string?  2 resourceVersion string?
Event                    1 metadata ObjectMeta  2 involvedObject ObjectReference  3 reason string  4 message string
                         5 source EventSource  6 firstTimestamp Time  7 lastTimestamp Time  8 count int32
                         9 type string  10 eventTime MicroTime  11 series EventSeries?  12 action string
                         13 related ObjectReference?  14 reportingComponent string  15 reportingInstance string
EventsEvent              1 metadata ObjectMeta  2 eventTime MicroTime  3 series EventSeries?
                         4 reportingController string  5 reportingInstance string  6 action string  7 reason string
                         8 regarding ObjectReference  9 related ObjectReference?  10 note string  11 type string
                         12 deprecatedSource EventSource  13 deprecatedFirstTimestamp Time
                         14 deprecatedLastTimestamp Time  15 deprecatedCount int32
EventSource              1 component string  2 host string
EventSeries              1 count int32  2 lastObservedTime MicroTime
ObjectReference          1 kind string  2 namespace string  3 name string  4 uid string  5 apiVersion string
                         6 resourceVersion string  7 fieldPath string
Namespace                1 metadata ObjectMeta  2 spec NamespaceSpec  3 status NamespaceStatus
NamespaceSpec            1 finalizers string*
NamespaceStatus          1 phase string  2 conditions NamespaceCondition*
NamespaceCondition       1 type string!  2 status string!  4 lastTransitionTime Time  5 reason string  6 message string
Lease                    1 metadata ObjectMeta  2 spec LeaseSpec
LeaseSpec                1 holderIdentity string?  2 leaseDurationSeconds int32?  3 acquireTime MicroTime?
                         4 renewTime MicroTime?  5 leaseTransitions int32?  6 strategy string?
                         7 preferredHolder string?
SelfSubjectAccessReview  1 metadata ObjectMeta  2 spec AccessReviewSpec  3 status AccessReviewStatus
AccessReviewSpec         1 resourceAttributes ResourceAttributes?  2 nonResourceAttributes NonResourceAttributes?
ResourceAttributes       1 namespace string  2 verb string  3 group string  4 version string  5 resource string
                         6 subresource string  7 name string  8 fieldSelector SelectorAttributes?
                         9 labelSelector SelectorAttributes?
NonResourceAttributes    1 path string  2 verb string
SelectorAttributes       1 rawSelector string  2 requirements SelectorRequirement*
SelectorRequirement      1 key string!  2 operator string!  3 values string*
AccessReviewStatus       1 allowed bool!  2 reason string  3 evaluationError string  4 denied bool
SelfSubjectRulesReview   1 metadata ObjectMeta  2 spec RulesReviewSpec  3 status RulesReviewStatus
RulesReviewSpec          1 namespace string
RulesReviewStatus        1 resourceRules ResourceRule*  2 nonResourceRules NonResourceRule*  3 incomplete bool!
                         4 evaluationError string
ResourceRule             1 verbs string*  2 apiGroups string*  3 resources string*  4 resourceNames string*
NonResourceRule          1 verbs string*  2 nonResourceURLs string*
SelfSubjectReview        1 metadata ObjectMeta  2 status SelfSubjectReviewStatus
SelfSubjectReviewStatus  1 userInfo UserInfo
UserInfo                 1 username string  2 uid string  3 groups string*
""")
LIST_META, PARTIAL, DELETE_OPTIONS = (MESSAGES[name] for name in ("ListMeta", "PartialObjectMetadata", "DeleteOptions"))
_KINDS = {
    "v1": ("Event", "Namespace", "Status"),
    "coordination.k8s.io/v1": ("Lease",),
    "authorization.k8s.io/v1": ("SelfSubjectAccessReview", "SelfSubjectRulesReview"),
    "authentication.k8s.io/v1": ("SelfSubjectReview",),
}
_BY_KIND = {(version, name): MESSAGES[name] for version, names in _KINDS.items() for name in names}
_BY_KIND["events.k8s.io/v1", "Event"] = MESSAGES["EventsEvent"]


@cache
def message_of(kind: Kind, api_version: str = "") -> MessageType | None:
    """Return the message of a kind, or of another version of it; None if it has none."""
    return _BY_KIND.get((api_version or kind.api_version, kind.name))


def encode(document: Document) -> bytes:
    """Return a document, which has apiVersion and kind, in its envelope."""
    named = document["apiVersion"], document["kind"]
    return envelope(*named, _BY_KIND[named].encode(document))


def decode(data: bytes, api_version: str, kind: str) -> Document:
    """Return the object in an envelope, which must be of the expected kind or name none."""
    given, raw = _opened(data)
    version, name = given.get("apiVersion") or api_version, given.get("kind") or kind
    found: Document = {"apiVersion": version, "kind": name}
    if (version, name) != (api_version, kind):
        raise BadRequest(
            f"the body is {name[:64]!r} in {version[:64]!r} and does not match the expected {kind!r} in {api_version!r}"
        )
    _BY_KIND[api_version, kind].read_whole(raw, found)
    return found


def delete_options(data: bytes) -> Document:
    """Return the DeleteOptions in an envelope; their apiVersion may be that of any group."""
    given, raw = _opened(data)
    if given.get("kind") not in (None, "DeleteOptions"):
        raise BadRequest(f"the body of a deletion must be DeleteOptions, not {given['kind'][:64]!r}")
    return DELETE_OPTIONS.decode(raw)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return an object in its envelope."""
    return b"".join((opening(api_version, kind, len(raw)), raw, END))


def opening(api_version: str, kind: str, size: int) -> bytes:
    """Return the bytes before an object of `size` bytes in its envelope; `END` comes after it."""
    return _type(api_version, kind) + varint(size)


def event(type_: str, envelope: bytes) -> bytes:
    """Return one event of a watch, with its length before it."""
    message = bytes_field(1, type_.encode()) + bytes_field(2, bytes_field(1, envelope))
    return len(message).to_bytes(4, "big") + message


@lru_cache(maxsize=64)
def _type(api_version: str, kind: str) -> bytes:
    named = bytes_field(1, api_version.encode()) + bytes_field(2, kind.encode())
    return MAGIC + bytes_field(1, named) + varint(2 << 3 | BYTES)


def _opened(data: bytes) -> tuple[Document, bytes]:
    """Return the type in an envelope, and its contents."""
    if not data.startswith(MAGIC):
        raise BadRequest("the body is not Kubernetes' Protobuf, which begins with k8s and a zero byte")
    try:
        return _read_envelope(data)
    except Malformed as error:
        raise broken(error) from None


def _read_envelope(data: bytes) -> tuple[Document, bytes]:
    body = Body(data, FIELD_LIMIT)
    at, end = len(MAGIC), len(data)
    named: Document = {}
    raw = b""
    while at < end:
        number, wire, at = body.tag(at, end)
        if number not in (1, 2):
            at = body.skip(wire, at, end)
            continue
        if wire != BYTES:
            raise Malformed(f"field {number} has the wrong wire type {wire}")
        start, at = read_extent(data, at, end)
        if number == 1:
            _TYPE_META.read(body, start, at, named)
        else:
            raw = data[start:at]
    return named, raw


_TYPE_META = tables("TypeMeta  1 apiVersion string  2 kind string")["TypeMeta"]
