"""The objects by which OVN's connections in a cluster get their certificates: `netloom crds --with-ovn`.

The Secrets and the ConfigMap have no data: `netloom ovn authority` fills them, and may do that with these only. An
agent may create requests for the authority of nodes, and no other requests: a policy says so, because RBAC cannot. Of a
request, kube-apiserver records who made it, so a node gets a certificate for its own name alone (run/identities).
"""

from netloom.front.api.auth.delegated import AGENT
from netloom.model.document import Document
from netloom.run.cluster import manifests, node_policies
from netloom.run.cluster.manifests import NAMESPACE
from netloom.run.identities.names import AUTHORITIES, CLIENT, PUBLISHED, SIGNER

OVN = "netloom-ovn"
"""The service account of what runs OVN's databases."""
_GROUP = "certificates.k8s.io"
_REQUESTS = "certificatesigningrequests"


def objects() -> list[Document]:
    """Return the accounts, roles, empty Secrets and the policy."""
    authority, node = "netloom:ovn-authority", "netloom:ovn-node"
    keep = ["get", "update"]
    owned = [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [AUTHORITIES, CLIENT], "verbs": keep},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [PUBLISHED], "verbs": keep},
    ]
    signs: list[Document] = [
        {"apiGroups": [_GROUP], "resources": [_REQUESTS], "verbs": manifests.READS},
        {"apiGroups": [_GROUP], "resources": [f"{_REQUESTS}/approval", f"{_REQUESTS}/status"], "verbs": ["update"]},
        {"apiGroups": [_GROUP], "resources": ["signers"], "resourceNames": [SIGNER], "verbs": ["approve", "sign"]},
    ]
    asks = [{"apiGroups": [_GROUP], "resources": [_REQUESTS], "verbs": ["create", "get"]}]
    own = [manifests.account_subject(OVN)]
    return [
        manifests.account(OVN),
        *(manifests.manifest("v1", "Secret", name, NAMESPACE) | {"type": "Opaque"} for name in (AUTHORITIES, CLIENT)),
        manifests.manifest("v1", "ConfigMap", PUBLISHED, NAMESPACE),
        manifests.manifest(f"{manifests.RBAC}/v1", "Role", authority, NAMESPACE) | {"rules": owned},
        manifests.binding(authority, authority, own, namespace=NAMESPACE),
        manifests.role(authority, signs),
        manifests.binding(authority, authority, own),
        manifests.role(node, asks),
        manifests.binding(node, node, [manifests.account_subject(AGENT)]),
        *node_policies.requests(SIGNER),
    ]
