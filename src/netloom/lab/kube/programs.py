"""The processes of a lab's Kubernetes: for each its command, its place and how it becomes ready.

Pure, like `netloom.lab.daemons.programs`, which includes them. A kubelet would change the machine: it sets values of
the kernel, and makes folders with fixed names under /var/lib and /var/log. So it has a mount namespace in which those
are its own, and /proc/sys is read-only and shows it what it wants. All else there is the machine's; the folder with the
volumes of its pods is a mount that both share, because containerd, outside, must see what the kubelet mounts.
"""

from typing import TYPE_CHECKING

from netloom.front.api.auth.delegated import NODE_PREFIX, NODES
from netloom.lab.daemons.program import Program
from netloom.lab.kube import images, network, settings
from netloom.lab.kube.naming import READY
from netloom.lab.kube.places import PLACE, POD_CIDRS, PORT, SERVICE_CIDRS, Places
from netloom.model.registry import GROUP, KINDS

if TYPE_CHECKING:
    from netloom.lab.layout import Layout

API = "kube-apiserver"
DNS_SERVER = "coredns"
_ETCD = "http://127.0.0.1:2379"
_ETCD_PEERS = "http://127.0.0.1:2380"

# $1: the kubelet's folder, $2: where it is mounted, $3: the lab's folder, $4: that with kernel settings; the rest is
# the command. No value is interpolated into these texts.
_SHARED = (
    'own=$1 at=$2; shift 2; mkdir -p "$at" && { mountpoint -q "$at" || { mount --bind "$own" "$at" '
    '&& mount --make-private "$at" && mount --make-shared "$at"; }; } || exit; '
    'exec unshare --mount --propagation unchanged -- sh -c "$0" netloom-lab "$@"'
)
_HIDDEN = (
    'lab=$1 kernel=$2; shift 2; cd "$lab" || exit; for path in /var/lib /var/log /proc/sys; do '
    'mount --make-private "$(findmnt -n -o TARGET -T "$path" | tail -n 1)" || exit; done; '
    "for path in /var/lib /var/log; do mount -t tmpfs -o mode=755 netloom-lab $path || exit; done; "
    'test -e "$lab/lab.json" || { mkdir -p "$lab" && mount --rbind . "$lab"; } || exit; '
    "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys || exit; "
    'cd "$kernel" && for name in *; do mount --bind "$name" "/proc/sys/$(echo "$name" | tr . /)" || exit; done; '
    'cd / && exec "$@"'
)

# kube-apiserver looks for the kinds of an admission policy when the policy changes, and else twice a minute; until it
# finds them, it refuses what the policy is about. When it starts, it reads policies before kinds. $0: an object that an
# agent may create, $1: the options that say who it is; the rest is kubectl.
_REFRESH = (
    'who=$1; shift; "$@" annotate --overwrite validatingadmissionpolicies,validatingadmissionpolicybindings --all '
    '"netloom.dev/refreshed=$(date +%s%N)" && sleep 0.2 '
    '&& ! "$@" create --dry-run=server --validate=false $who "$0" 2>&1 | grep -q "failed to configure policy"'
)


def programs(layout: "Layout") -> list[Program]:
    """Return the processes of the cluster; none for a lab without one."""
    if not layout.state.kube:
        return []
    places = Places(layout)
    return [*_control_plane(places), *(program for node in layout.nodes for program in _node(places, node))]


def environment(layout: "Layout", place: str) -> dict[str, str]:
    """Return the environment in which ctr finds the containerd of a node."""
    if place not in layout.nodes:
        return {}
    return {"CONTAINERD_ADDRESS": Places(layout).containerd_socket(place), "CONTAINERD_NAMESPACE": "k8s.io"}


def _control_plane(places: Places) -> list[Program]:
    programs = places.programs
    own = places.pki
    etcd = Program(
        name="etcd",
        place=PLACE,
        argv=(
            "etcd",
            "--name=lab",
            f"--data-dir={places.etcd}",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={_ETCD_PEERS}",
            f"--initial-advertise-peer-urls={_ETCD_PEERS}",
            f"--initial-cluster=lab={_ETCD_PEERS}",
            "--logger=zap",
            "--log-level=warn",
        ),
        health=f"{_ETCD}/health",
    )
    api = Program(
        name=API,
        place=PLACE,
        argv=(
            str(programs / API),
            f"--etcd-servers={_ETCD}",
            f"--secure-port={PORT}",
            f"--service-cluster-ip-range={','.join(SERVICE_CIDRS)}",
            *settings.apiserver_flags(places),
        ),
        needs=("etcd",),
        health=f"https://127.0.0.1:{PORT}/readyz",
        after=_objects(places),
    )
    manager = Program(
        name="kube-controller-manager",
        place=PLACE,
        argv=(
            str(programs / "kube-controller-manager"),
            f"--kubeconfig={places.kubeconfig('kube-controller-manager')}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--allocate-node-cidrs",
            f"--cluster-cidr={','.join(POD_CIDRS)}",
            "--node-cidr-mask-size-ipv4=24",
            "--node-cidr-mask-size-ipv6=64",
            f"--service-cluster-ip-range={','.join(SERVICE_CIDRS)}",
            f"--root-ca-file={own / 'kube-ca.crt'}",
            f"--cluster-signing-cert-file={own / 'kube-ca.crt'}",
            f"--cluster-signing-key-file={own / 'kube-ca.key'}",
            f"--service-account-private-key-file={own / 'service-accounts.key'}",
            "--use-service-account-credentials",
        ),
        needs=(API,),
        health="https://127.0.0.1:10257/healthz",
    )
    dns = Program(
        name=DNS_SERVER,
        place=PLACE,
        argv=(str(programs / DNS_SERVER), "-conf", str(places.corefile)),
        needs=(API,),
        health=f"http://{READY}/ready",
    )
    scheduler = Program(
        name="kube-scheduler",
        place=PLACE,
        argv=(
            str(programs / "kube-scheduler"),
            f"--kubeconfig={places.kubeconfig('kube-scheduler')}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        ),
        needs=(API,),
        health="https://127.0.0.1:10259/healthz",
    )
    return [etcd, api, manager, scheduler, dns]


def _objects(places: Places) -> tuple[tuple[str, ...], ...]:
    """Return the commands that give the cluster its objects; running them again changes nothing."""
    kubectl = (
        str(places.programs / "kubectl"),
        f"--kubeconfig={places.layout.kubeconfig}",
        f"--cache-dir={places.folder / 'cache'}",
    )
    kinds = ",".join(f"{kind.plural}.{GROUP}" for kind in KINDS if kind.group == GROUP)
    # `create` fails when there is one already: then it is enough that there are all.
    create = ("sh", "-c", '"$@" create "$0" || "$@" get "$0"', f"--filename={places.nodes}", *kubectl)
    who = (f"--as={NODE_PREFIX}{places.layout.nodes[0]}", f"--as-group={NODES}")
    refresh = ("sh", "-c", _REFRESH, f"--filename={places.probe}", " ".join(who), *kubectl)
    apply = (*kubectl, "apply", "--server-side", "--force-conflicts")
    return (
        (*apply, f"--filename={places.crds}"),
        (*kubectl, "get", kinds, "--all-namespaces"),  # Fails until all are served.
        (*apply, f"--filename={places.objects}"),
        create,
        refresh,
    )


def _node(places: Places, node: str) -> list[Program]:
    layout = places.layout
    own = layout.node(node)
    socket = places.containerd_socket(node)
    ctr = ("ctr", f"--address={socket}", "--namespace=k8s.io", "images", "import", "--no-unpack")
    containerd = Program(
        name=f"containerd-{node}",
        place=node,
        argv=("containerd", "--config", str(own / "containerd.toml"), "--log-level=warn"),
        socket=socket,
        after=((*ctr, str(places.images / images.ARCHIVE)),),
    )
    kubelet = Program(
        name=f"kubelet-{node}",
        place=node,
        argv=(
            *("sh", "-c", _SHARED, _HIDDEN, str(places.kubelet(node))),
            *(str(places.kubelet_mount(node)), str(layout.folder.resolve()), str(places.kernel(node))),
            str(places.programs / "kubelet"),
            *settings.kubelet_flags(places, node),
        ),
        needs=(containerd.name, API, *network.needs(places, node)),
        health="http://127.0.0.1:10248/healthz",
    )
    return [containerd, kubelet]
