"""Times finer than seconds, on any API: kept as they were written, read by old and new clients, shown as a timeline."""

import json
import re

from tests.e2e.joined import Joined
from tests.run.serving import netloom
from tests.support.kubectl import Kubectl

OBJECTS = """
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: blue}
spec: {}
---
apiVersion: netloom.dev/v1alpha1
kind: Subnet
metadata: {name: blue}
spec: {network: blue, cidr: 10.10.0.0/24}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: web}
spec: {node: nowhere, network: blue}
"""
MICROSECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def times_are_kept(joined: Joined, old: Kubectl, *, exact: bool) -> None:
    """Wish for an attachment and look at when it got its address; `exact`: uids say when they were made."""
    namespace = joined.namespace()
    kubeconfig = joined.cluster.kubeconfig
    joined.admin("-n", namespace, "apply", "-f", "-", stdin=OBJECTS)
    joined.admin("-n", namespace, "wait", "--for=condition=Addressed", "na/web", "--timeout=120s")
    old.until_known(kubeconfig=kubeconfig)
    for kubectl in (joined.kubectl, old):
        found = json.loads(kubectl.run("-n", namespace, "get", "na", "web", "-o", "json", kubeconfig=kubeconfig).out)
        times = [one["lastTransitionTime"] for one in found["status"]["conditions"]]
        assert times
        assert all(MICROSECONDS.fullmatch(time) for time in times), times
        described = kubectl.run("-n", namespace, "describe", "na", "web", kubeconfig=kubeconfig).out
        assert times[0] in described
        assert "web" in kubectl.run("-n", namespace, "get", "na", "-o", "wide", kubeconfig=kubeconfig).out
    shown = netloom("-n", namespace, "explain", "na/web", "--timeline", "-o", "json", kubeconfig=kubeconfig)
    timeline = json.loads(shown.out)
    assert timeline["exact"] == exact
    assert {"created", "lock", "address"} <= {one["step"] for one in timeline["moments"]}
    assert timeline["waiting"][0]["what"].startswith("the agent of node nowhere")
    text = netloom("-n", namespace, "explain", "na/web", "--timeline", kubeconfig=kubeconfig).out
    assert ("or up to a second later" in text) != exact
