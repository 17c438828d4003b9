"""The objects that a lab's cluster gets from the lab: Netloom's kinds, roles and policies, the Service of
the DNS, and the Nodes.

The Nodes are made ahead of their kubelets, with the addresses of their pods: so these, and the routes of the control
plane to them, follow from the number of the node.
"""

import json

from netloom.lab.kube import naming
from netloom.lab.kube.places import Places, pod_cidrs
from netloom.lab.layout import Layout
from netloom.model.document import Document
from netloom.model.registry import GROUP, NODE, VERSION
from netloom.model.schemas.crds import crds
from netloom.run import files
from netloom.run.cluster import manifests, node_policies


def prepare(places: Places) -> None:
    """Write the objects, as files for kubectl."""
    nodes = places.layout.nodes
    netloom = [*manifests.common(nodes), *node_policies.objects(), *node_policies.events(), *manifests.pod_network()]
    netloom += naming.objects(places)
    made = {places.crds: crds(), places.objects: netloom, places.nodes: [_node(name) for name in nodes]}
    made[places.probe] = [_agents_node(places.layout, nodes[0])]
    for path, items in made.items():
        files.write_whole(path, json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode())


def _agents_node(layout: Layout, name: str) -> Document:
    """Return the object that an agent makes of its node."""
    return manifests.manifest(f"{GROUP}/{VERSION}", NODE.name, name) | {
        "spec": {"underlayIP": layout.underlay_ip(name)}
    }


def _node(name: str) -> Document:
    cidrs = list(pod_cidrs(name))
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}}  # fmt: skip
