"""ValidatingAdmissionPolicies that limit agents to their own objects where a Kubernetes cluster stores these.

    netloom crds --with-roles            `objects` and `events`
    netloom crds --with-ovn              `requests`
   netloom apiserver --print-manifests  `events`: our API server limits agents to their objects itself

The rules are those of front/api/admission/node_writes.py, in CEL; change both together. A policy sees one object, and
its parameters, each of which must pass. The parameters of the policy that compares underlay addresses are the Nodes, so
that one applies only when an agent changes an underlay address, or creates a RemoteVTEP. Those of the policy for
BGPPeers and EVPNNetworks are the BGPSpeakers of their namespace, and those of the policy for new RemoteVTEPs its
EVPNNetworks.

No policy can express:

- which node the object of an Event is on, nor how many Events a node may write (kube-apiserver has EventRateLimit for
  that, and expires Events itself);
- whether a parameter exists: an agent can write the status of a BGPPeer or EVPNNetwork whose BGPSpeaker is missing, and
  create a RemoteVTEP whose EVPNNetwork is missing, which the controller deletes. Nor may the lack of parameters deny
  anything: kube-apiserver looks for them before it considers who writes, and would deny it to everybody;
- which node runs the BGPSpeaker of a RemoteVTEP's EVPNNetwork. The controller deletes others (control/evpn);
- how many RemoteVTEPs a node may have: a ResourceQuota can (`count/remotevteps.netloom.dev`).

The expressions work from Kubernetes 1.32 on.
"""

from collections.abc import Iterable, Mapping

from netloom.control.runtime.events import LONGEST_MESSAGE
from netloom.front.api.admission.node_writes import LONG_NAME, OWN_STATUS
from netloom.front.api.auth.delegated import NODE_NAME, NODE_PREFIX, NODES
from netloom.model.document import Document
from netloom.model.kind import Kind
from netloom.model.kinds.cluster import NODE_LABELS
from netloom.model.kinds.events import AGENT
from netloom.model.registry import (
    BGP_PEER,
    BGP_SPEAKER,
    EVENT,
    EVPN_NETWORK,
    GROUP,
    HOST_DOCUMENT,
    NETWORK_ATTACHMENT,
    NODE,
    REMOTE_VTEP,
)
from netloom.run.cluster.manifests import AGENT_USER, manifest

_API = "admissionregistration.k8s.io/v1"
_LONGEST_WORD = 253

# The identity of an agent and its node, as front/api/auth/delegated.py has it.
_WHO = "request.userInfo"
_IS_AGENT = f"{_WHO}.username == '{AGENT_USER}'"
_BOUND_TO = f"(has({_WHO}.extra) && '{NODE_NAME}' in {_WHO}.extra ? {_WHO}.extra['{NODE_NAME}'][0] : '')"
_NAMED_SO = f"{_WHO}.username.startsWith('{NODE_PREFIX}')"
_IS_NODE = f"(has({_WHO}.groups) && '{NODES}' in {_WHO}.groups)"
_NAMED = f"({_NAMED_SO} ? {_WHO}.username.substring({len(NODE_PREFIX)}) : '')"
_BY_AN_AGENT = {"name": "by-an-agent", "expression": f"{_IS_AGENT} || {_IS_NODE} || {_NAMED_SO}"}
_VARIABLES = {
    "node": f"{_IS_AGENT} ? {_BOUND_TO} : ({_IS_NODE} ? {_NAMED} : '')",
    "before": "oldObject == null ? dyn({}) : dyn(oldObject)",
    "after": "object == null ? dyn({}) : dyn(object)",
    "has": "variables.after.?metadata.orValue({})",
    "had": "variables.before.?metadata.orValue({})",
}
_WRITES = "variables.node != '' && request.operation in ['CREATE', 'UPDATE']"
_RESOURCE = "request.resource.resource"
_IS_NODES = f"{_RESOURCE} == '{NODE.plural}'"
_IS_VTEPS = f"{_RESOURCE} == '{REMOTE_VTEP.plural}'"
_IS_DELETE = "request.operation == 'DELETE'"
_OF_SPEAKERS = (BGP_PEER, EVPN_NETWORK)
"""The kinds whose objects name the BGPSpeaker that they belong to."""
_TOLD_OF = (NETWORK_ATTACHMENT.name, BGP_SPEAKER.name, BGP_PEER.name, EVPN_NETWORK.name)
"""The kinds that Events of an agent are about, besides its Node."""
_OF_AGENT = "'agent of ' + (variables.node == '' ? 'no node' : variables.node) + ' '"


def objects() -> list[Document]:
    """Return the policies that limit agents to their own Node, RemoteVTEPs, and parts of statuses."""
    on_it = _among(_RESOURCE, (NETWORK_ATTACHMENT.plural, BGP_SPEAKER.plural, HOST_DOCUMENT.plural))
    own = (
        f"{_IS_NODES} ? variables.has.?name.orValue('') == variables.node : {_IS_VTEPS}"
        " ? [variables.before, variables.after].all(one, one.?spec.?node.orValue(variables.node) == variables.node)"
        f" : request.subResource == 'status' && ({on_it} ? variables.before.spec.node == variables.node"
        f" : {_among(_RESOURCE, (kind.plural for kind in _OF_SPEAKERS))})"
    )
    labels = _unchanged("variables.hadLabels", "variables.hasLabels", f"{_IS_NODES} && key.startsWith('{NODE_LABELS}')")
    whole = _among(_RESOURCE, (NODE.plural, BGP_PEER.plural, HOST_DOCUMENT.plural))
    status = _unchanged("variables.hadStatus", "variables.hasStatus", "key in variables.ownStatus")
    errors = _unchanged("variables.hadErrors", "variables.hasErrors", "key == 'host'")
    own_condition = "one.type in variables.ownConditions"
    conditions = (
        f"variables.hadConditions.all(one, {own_condition} || one in variables.hasConditions)"
        f" && variables.hasConditions.all(one, {own_condition} || one in variables.hadConditions)"
    )
    creates_vtep = f"{_IS_VTEPS} && oldObject == null"
    owners = "variables.has.?ownerReferences.orValue([]) == variables.had.?ownerReferences.orValue([])"
    rules = {
        "may write only its own Node and RemoteVTEPs, and the status of attachments on it, of its HostDocuments and of "
        "BGPSpeakers that it runs": f"({_WRITES} || variables.node != '' && {_IS_VTEPS} && {_IS_DELETE}) && ({own})",
        "may not change annotations, finalizers or owners": (
            f"{_IS_DELETE} || {_metadata(('annotations', 'finalizers'))} && ({creates_vtep} || {owners})"
        ),
        "must give a RemoteVTEP its EVPNNetwork as only owner, and a name that begins with the name of that": (
            f"!({creates_vtep}) || {_belongs()}"
        ),
        f"may change only labels under {NODE_LABELS}, of its own Node": f"{_IS_DELETE} || {labels}",
        "may not change this field of the status": f"{whole} || {_IS_DELETE} || {status} && {errors}",
        "may not change this condition of the status": f"{whole} || {_IS_DELETE} || {conditions}",
    }
    variables = {
        **_VARIABLES,
        **{f"{moment}Labels": f"variables.{moment}.?labels.orValue({{}})" for moment in ("had", "has")},
        **{
            f"{moment}Status": f"variables.{where}.?status.orValue({{}})"
            for moment, where in (("had", "before"), ("has", "after"))
        },
        **{f"{moment}Errors": f"variables.{moment}Status.?errors.orValue({{}})" for moment in ("had", "has")},
        **{f"{moment}Conditions": f"variables.{moment}Status.?conditions.orValue([])" for moment in ("had", "has")},
        "ownStatus": _by_resource({kind: (*part.fields, "errors", "conditions") for kind, part in OWN_STATUS.items()}),
        "ownConditions": _by_resource({kind: part.conditions for kind, part in OWN_STATUS.items()}),
    }
    everything = _rule(GROUP, ["*"], ["*/*"])
    return [*_policy(f"nodes.{GROUP}", [everything], variables, rules), *_addresses(), *_speakers(), *_vteps()]


def _belongs() -> str:
    """Return an expression: a new RemoteVTEP has its EVPNNetwork as its owner, and is named after it."""
    evpn_network, name = "variables.after.spec.evpnNetwork", "variables.has.?name.orValue('')"
    owner = "variables.has.ownerReferences[0]"
    return (
        "variables.has.?generateName.orValue('') == '' && variables.has.?ownerReferences.orValue([]).size() == 1"
        f" && {owner}.apiVersion == '{EVPN_NETWORK.api_version}' && {owner}.kind == '{EVPN_NETWORK.name}'"
        f" && {owner}.name == {evpn_network}"
        f" && (size({evpn_network}) >= {LONG_NAME} || {name}.startsWith({evpn_network} + '.')"
        f" && {name}.substring(size({evpn_network}) + 1).split('.').size() == 3)"
    )


def events() -> list[Document]:
    """Return the policies that limit agents to their own Events."""
    subjects = {
        "subject": "variables.after.?involvedObject.orValue({})",
        "subjectBefore": "variables.before.?involvedObject.orValue({})",
    }
    identity = "variables.subject[?key].orValue('') == variables.subjectBefore[?key].orValue('')"
    same = f"(oldObject == null || ['apiVersion', 'kind', 'namespace', 'name', 'uid'].all(key, {identity}))"
    kind = "variables.subject.?kind.orValue('')"
    about = f"variables.subject.?apiVersion.orValue('') == '{NODE.api_version}' && "
    about += (
        f"({kind} == '{NODE.name}'"
        " ? variables.subject.?name.orValue('') == variables.node && variables.subject.?namespace.orValue('') == ''"
        f" : {_among(kind, _TOLD_OF)}"
        " && variables.subject.?namespace.orValue('') == request.namespace"
        " && variables.subject.?uid.orValue('') != '')"
    )
    words = ("reason", "action", "type")
    bounded = [f"size(variables.after.?message.orValue('')) <= {LONGEST_MESSAGE}"]
    bounded += [f"size(variables.after.?{word}.orValue('')) <= {_LONGEST_WORD}" for word in words]
    bounded += [f"variables.subject.all(key, size(string(variables.subject[key])) <= {_LONGEST_WORD})"]
    rules = {
        "may write only its own Events": (
            f"{_WRITES} && {_reported_by('after')} && (oldObject == null || {_reported_by('before')})"
        ),
        "may not give an Event labels, annotations, finalizers or owners": _metadata(
            ("labels", "annotations", "finalizers", "ownerReferences")
        ),
        "may write Events about its own Node, attachments and BGPSpeakers only": (
            f"{about} && {same} && !has(variables.after.related)"
        ),
        "writes an Event that is too large": " && ".join(bounded),
    }
    rule = _rule(EVENT.group, ["*"], [EVENT.plural])
    return list(_policy(f"node-events.{GROUP}", [rule], {**_VARIABLES, **subjects}, rules))


def requests(signer: str) -> list[Document]:
    """Return the policy that limits agents to requests for certificates of one signer."""
    rules = {f"may ask for certificates of {signer} only": f"object.spec.signerName == '{signer}'"}
    matched = _rule("certificates.k8s.io", ["CREATE"], ["certificatesigningrequests"])
    return list(_policy(f"node-requests.{GROUP}", [matched], _VARIABLES, rules))


def _addresses() -> list[Document]:
    """Return the policy that compares underlay addresses with those of all Nodes, which are its parameters."""
    claimed = "object.?status.?hostIP.orValue('')"
    changes = (
        f"{_IS_VTEPS} || ({_IS_NODES} ? oldObject == null || object.spec.underlayIP != oldObject.spec.underlayIP"
        f" : {claimed} != '' && {claimed} != oldObject.?status.?hostIP.orValue(''))"
    )
    name = "variables.has.?name.orValue('')"
    unique = f"params.metadata.name == {name} || ip(params.spec.underlayIP) != ip(object.spec.underlayIP)"
    own = "(params.metadata.name == variables.node) == (params.spec.underlayIP == object.status.hostIP)"
    rules = {
        "may not have the spec.underlayIP of another Node": f"!({_IS_NODES}) || {unique}",
        "may write only spec.underlayIP of its own Node into status.hostIP": f"{_IS_NODES} || {_IS_VTEPS} || {own}",
        "may not give a RemoteVTEP the spec.underlayIP of a Node": (
            f"!({_IS_VTEPS}) || ip(params.spec.underlayIP) != ip(object.spec.address)"
        ),
    }
    matched = [
        _rule(GROUP, ["CREATE", "UPDATE"], [NODE.plural]),
        _rule(GROUP, ["UPDATE"], [f"{NETWORK_ATTACHMENT.plural}/status"]),
        _rule(GROUP, ["CREATE"], [REMOTE_VTEP.plural]),
    ]
    policy, binding = _policy(f"node-addresses.{GROUP}", matched, _VARIABLES, rules)
    policy["spec"]["matchConditions"].append({"name": "changes-an-address", "expression": changes})
    return _with_parameters((policy, binding), NODE)


def _speakers() -> list[Document]:
    """Return the policy for statuses of what belongs to a BGPSpeaker; its parameters are those of the namespace."""
    runs = "params.metadata.name != oldObject.spec.speaker || params.spec.node == variables.node"
    matched = _rule(GROUP, ["UPDATE"], [f"{kind.plural}/status" for kind in _OF_SPEAKERS])
    rules = {"may write only the status of BGPPeers and EVPNNetworks of BGPSpeakers that it runs": runs}
    return _with_parameters(_policy(f"node-speakers.{GROUP}", [matched], _VARIABLES, rules), BGP_SPEAKER)


def _vteps() -> list[Document]:
    """Return the policy that compares a new RemoteVTEP with the EVPNNetworks of its namespace, its parameters."""
    same = (
        "params.metadata.name != object.spec.evpnNetwork || params.spec.network == object.spec.network"
        " && object.metadata.?ownerReferences.orValue([]).all(one, one.uid == params.metadata.uid)"
    )
    matched = _rule(GROUP, ["CREATE"], [REMOTE_VTEP.plural])
    rules = {"must give a RemoteVTEP the network and the uid of its EVPNNetwork": same}
    return _with_parameters(_policy(f"node-vteps.{GROUP}", [matched], _VARIABLES, rules), EVPN_NETWORK)


def _with_parameters(made: tuple[Document, Document], kind: Kind) -> list[Document]:
    """Return a policy whose parameters are all objects of a kind, of the namespace of the request if it has one."""
    policy, binding = made
    policy["spec"]["paramKind"] = {"apiVersion": kind.api_version, "kind": kind.name}
    binding["spec"]["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return [policy, binding]


def _by_resource(words: Mapping[Kind, Iterable[str]]) -> str:
    """Return an expression: the words of the requested kind, or none."""
    entries = (f"'{kind.plural}': {sorted(some)!r}" for kind, some in words.items())
    return f"{{{', '.join(entries)}}}[?{_RESOURCE}].orValue([])"


def _among(what: str, names: Iterable[str]) -> str:
    return f"{what} in [{', '.join(repr(name) for name in names)}]"


def _unchanged(before: str, after: str, own: str) -> str:
    """Return an expression: two maps have the same entries, except those whose `key` is the node's own."""
    return (
        f"{before}.all(key, {own} || key in {after} && {after}[key] == {before}[key])"
        f" && {after}.all(key, {own} || key in {before})"
    )


def _metadata(names: Iterable[str]) -> str:
    """Return an expression: these parts of the metadata, and generateName, are unchanged."""
    empty = {"labels": "{}", "annotations": "{}"}
    parts = [f"?{name}.orValue({empty.get(name, '[]')})" for name in names]
    unchanged = [f"variables.has.{part} == variables.had.{part}" for part in parts]
    generated = "?generateName.orValue('')"
    return " && ".join([*unchanged, f"(oldObject == null || variables.has.{generated} == variables.had.{generated})"])


def _reported_by(which: str) -> str:
    """Return an expression: an Event names the node's agent as its reporter."""
    event = f"variables.{which}"
    return (
        f"{event}.?reportingInstance.orValue('') == variables.node"
        f" && {event}.?source.?host.orValue('') == variables.node"
        f" && {event}.?reportingComponent.orValue('') == '{AGENT}'"
        f" && {event}.?source.?component.orValue('') == '{AGENT}'"
    )


def _rule(group: str, operations: list[str], resources: list[str]) -> Document:
    rule: Document = {"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources}
    return rule | {"scope": "*"}


def _policy(
    name: str, matched: list[Document], variables: dict[str, str], rules: dict[str, str]
) -> tuple[Document, Document]:
    """Return a policy for agents and its binding; `rules` maps the message of a violation to the expression."""
    policy = manifest(_API, "ValidatingAdmissionPolicy", name)
    policy["spec"] = {
        "failurePolicy": "Fail",
        # With its defaults, so that applying it again with another tool finds no difference.
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": matched,
        },
        "matchConditions": [_BY_AN_AGENT],
        "variables": [{"name": key, "expression": value} for key, value in variables.items()],
        "validations": [
            {"expression": expression, "messageExpression": f"{_OF_AGENT} + '{_quoted(said)}'", "reason": "Forbidden"}
            for said, expression in rules.items()
        ],
    }
    binding = manifest(_API, "ValidatingAdmissionPolicyBinding", name)
    binding["spec"] = {"policyName": name, "validationActions": ["Deny"]}
    return policy, binding


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")
