"""Whether a node may have the certificate that it asks for.

kube-apiserver writes into each CertificateSigningRequest who created it, and nobody can change that. The token of an
agent is bound to its Node, so `spec.extra` says which node asks. The certificate is made from that name alone: of the
request only its key is used.
"""

import base64
import binascii
from datetime import datetime
from typing import Any

from netloom.errors import Invalid
from netloom.front.api.auth.delegated import NODE_NAME
from netloom.run.access import certificates
from netloom.run.access.certificates import Pair
from netloom.run.cluster.manifests import AGENT_USER
from netloom.run.identities.names import SIGNER

LONGEST = 8192
"""Of a request; one with a P-256 key has about 500 bytes."""
USAGES = {"client auth", "digital signature"}


def document(key: bytes, node: str) -> dict[str, Any]:
    """Return the request of a node for a certificate of its key."""
    request = certificates.make_request(key, name=node)
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "netloom-ovn-", "labels": {"app.kubernetes.io/part-of": "netloom"}},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": SIGNER,
            "usages": sorted(USAGES),
        },
    }


def is_open(request: dict[str, Any]) -> bool:
    """Whether a request waits for a decision, or for its certificate."""
    status = request.get("status") or {}
    refused = {one.get("type") for one in status.get("conditions") or ()} & {"Denied", "Failed"}
    return not refused and not status.get("certificate")


def sign(request: dict[str, Any], ca: Pair, *, now: datetime) -> bytes:
    """Return the certificate (PEM) for a request; raise `Invalid` with the reason for which it gets none."""
    spec = request["spec"]
    if spec.get("signerName") != SIGNER:
        raise Invalid(f"the signer is not {SIGNER}")
    if spec.get("username") != AGENT_USER:
        raise Invalid(f"only {AGENT_USER} may ask for a certificate of a node")
    nodes = (spec.get("extra") or {}).get(NODE_NAME) or []
    if len(nodes) != 1 or not nodes[0]:
        raise Invalid("the token of the request is bound to no node")
    if set(spec.get("usages") or ()) - USAGES:
        raise Invalid(f"the usages may be {', '.join(sorted(USAGES))} only")
    if len(spec.get("request") or "") > LONGEST:
        raise Invalid(f"spec.request has more than {LONGEST} characters")
    try:
        asked = base64.b64decode(spec["request"], validate=True)
    except (KeyError, binascii.Error):
        raise Invalid("spec.request is not base64") from None
    return certificates.sign_request(ca, asked, name=nodes[0], now=now)
