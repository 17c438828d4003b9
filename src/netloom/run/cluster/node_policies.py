"""ValidatingAdmissionPolicies that limit agents to their own objects where a Kubernetes cluster stores these.

    netloom crds --with-roles            `objects` and `events`
   netloom apiserver --print-manifests  `events`: our API server limits agents to their objects itself

The rules are those of front/api/admission/node_writes.py, in CEL; change both together. A policy sees one object, and
its parameters. The parameters of the policy that compares underlay addresses are the Nodes, so that one applies only
when an agent changes an underlay address. No policy can express which node the attachment of an Event is on, nor how
many Events a node may write (kube-apiserver has EventRateLimit for that, and expires Events itself).

The expressions work from Kubernetes 1.32 on.
"""

from collections.abc import Iterable

from netloom.control.runtime.events import LONGEST_MESSAGE
from netloom.front.api.auth.delegated import NODE_NAME, NODE_PREFIX, NODES
from netloom.model.document import Document
from netloom.model.kinds.cluster import NODE_LABELS
from netloom.model.kinds.events import AGENT
from netloom.model.registry import EVENT, GROUP, NETWORK_ATTACHMENT, NODE
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
_IS_NODES = f"request.resource.resource == '{NODE.plural}'"
_IS_STATUS = f"request.resource.resource == '{NETWORK_ATTACHMENT.plural}' && request.subResource == 'status'"
_OF_AGENT = "'agent of ' + (variables.node == '' ? 'no node' : variables.node) + ' '"


def objects() -> list[Document]:
    """Return the policies that limit agents to their own Node and the status of attachments on it."""
    own = (
        f"{_IS_NODES} ? variables.has.?name.orValue('') == variables.node"
        f" : {_IS_STATUS} && variables.before.spec.node == variables.node"
    )
    labels = _unchanged("variables.hadLabels", "variables.hasLabels", f"key.startsWith('{NODE_LABELS}')")
    status = _unchanged("variables.hadStatus", "variables.hasStatus", _among("key", _OWN_STATUS))
    errors = _unchanged("variables.hadErrors", "variables.hasErrors", "key == 'host'")
    own_condition = _among("one.type", ("Plugged", "Ready"))
    conditions = (
        f"variables.hadConditions.all(one, {own_condition} || one in variables.hasConditions)"
        f" && variables.hasConditions.all(one, {own_condition} || one in variables.hadConditions)"
    )
    rules = {
        "may write only its own Node and the status of attachments on it": f"{_WRITES} && ({own})",
        "may not change annotations, finalizers or owners": _metadata(("annotations", "finalizers", "ownerReferences")),
        f"may change only labels under {NODE_LABELS}": labels,
        "may not change this field of the status": f"{_IS_NODES} || {status} && {errors}",
        "may change only the conditions Plugged and Ready": f"{_IS_NODES} || {conditions}",
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
    }
    everything = _rule(GROUP, ["*"], ["*/*"])
    return [*_policy(f"nodes.{GROUP}", [everything], variables, rules), *_addresses()]


def events() -> list[Document]:
    """Return the policies that limit agents to their own Events."""
    subjects = {
        "subject": "variables.after.?involvedObject.orValue({})",
        "subjectBefore": "variables.before.?involvedObject.orValue({})",
    }
    identity = "variables.subject[?key].orValue('') == variables.subjectBefore[?key].orValue('')"
    same = f"(oldObject == null || ['apiVersion', 'kind', 'namespace', 'name', 'uid'].all(key, {identity}))"
    about = f"variables.subject.?apiVersion.orValue('') == '{NODE.api_version}' && "
    about += (
        f"(variables.subject.?kind.orValue('') == '{NODE.name}'"
        " ? variables.subject.?name.orValue('') == variables.node && variables.subject.?namespace.orValue('') == ''"
        f" : variables.subject.?kind.orValue('') == '{NETWORK_ATTACHMENT.name}'"
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
        "may write Events about its own Node and attachments only": (
            f"{about} && {same} && !has(variables.after.related)"
        ),
        "writes an Event that is too large": " && ".join(bounded),
    }
    rule = _rule(EVENT.group, ["*"], [EVENT.plural])
    return list(_policy(f"node-events.{GROUP}", [rule], {**_VARIABLES, **subjects}, rules))


def _addresses() -> list[Document]:
    """Return the policy that compares underlay addresses with those of all Nodes, which are its parameters."""
    claimed = "object.?status.?hostIP.orValue('')"
    changes = (
        f"{_IS_NODES} ? oldObject == null || object.spec.underlayIP != oldObject.spec.underlayIP"
        f" : {claimed} != '' && {claimed} != oldObject.?status.?hostIP.orValue('')"
    )
    name = "variables.has.?name.orValue('')"
    unique = f"params.metadata.name == {name} || ip(params.spec.underlayIP) != ip(object.spec.underlayIP)"
    own = "(params.metadata.name == variables.node) == (params.spec.underlayIP == object.status.hostIP)"
    rules = {
        "may not have the spec.underlayIP of another Node": f"!({_IS_NODES}) || {unique}",
        "may write only spec.underlayIP of its own Node into status.hostIP": f"{_IS_NODES} || {own}",
    }
    matched = [
        _rule(GROUP, ["CREATE", "UPDATE"], [NODE.plural]),
        _rule(GROUP, ["UPDATE"], [f"{NETWORK_ATTACHMENT.plural}/status"]),
    ]
    policy, binding = _policy(f"node-addresses.{GROUP}", matched, _VARIABLES, rules)
    policy["spec"]["paramKind"] = {"apiVersion": NODE.api_version, "kind": NODE.name}
    policy["spec"]["matchConditions"].append({"name": "changes-an-address", "expression": changes})
    binding["spec"]["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return [policy, binding]


_OWN_STATUS = ("ifcName", "hostIP", "postCreateExecReport", "errors", "conditions")
"""The fields of an attachment's status that a node may write, or that have a rule of their own."""


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
