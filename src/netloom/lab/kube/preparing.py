"""Writes everything that the programs of a lab's Kubernetes read, before they are started."""

from datetime import datetime

from netloom.lab.kube import binaries, cgroups, images, naming, network, objects, pki, settings
from netloom.lab.kube.places import Places
from netloom.lab.layout import Layout


def prepare(layout: Layout, *, now: datetime) -> None:
    """Write certificates, kubeconfigs, images and the configuration of every node."""
    places = Places(layout)
    places.folder.mkdir(mode=0o700, exist_ok=True)
    binaries.link(places.version, places.programs)
    pki.prepare(layout, now=now)
    objects.prepare(places)
    images.prepare(places.images)
    naming.prepare(places)
    snapshotter = settings.snapshotter(layout.folder)
    for node in layout.nodes:
        settings.prepare(places, node, snapshotter=snapshotter)
        cgroups.make(layout.id, node)
        network.install(places, node)
