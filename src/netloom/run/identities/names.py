"""The names of what the authority keeps in the cluster, which others refer to."""

from netloom.model.kinds.cluster import SYSTEM_NAMESPACE
from netloom.model.registry import GROUP

NAMESPACE = SYSTEM_NAMESPACE
SIGNER = f"{GROUP}/ovn-node"
"""The signer of requests of nodes."""
AUTHORITIES = "netloom-ovn-authorities"
"""The Secret with both CAs and their keys, which only the authority reads."""
CLIENT = "netloom-ovn"
"""The Secret with the certificate of Netloom's controller: tls.crt, tls.key, ca.crt."""
PUBLISHED = "netloom-ovn-ca"
"""The ConfigMap with the certificates of the CAs: central.crt, nodes.crt."""
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
