"""The other data centre: FRR with zebra and bgpd, kernel VXLAN devices and bridges, and hosts behind them.

    with underlay() as fabric, data_centre("10.9.0.1/24", asn=65001, peers={"10.9.0.2": 65002}) as centre:
        centre.connect(fabric, bridge="underlay")
        host = centre.add_host("web", ["10.10.0.21/24", "fd10::21/64"])
        centre.macs(10)                              the MAC addresses that zebra knows, local and remote
        probes.ping(host.netns, "10.10.0.22")

A lab's place `underlay` has a bridge of that name. To be a site of a lab with several, connect to its router:
`centre.connect(router, gateway="172.31.9.254/24")` for a centre with the address 172.31.9.1/24.

`centre.device` of `centre.netns` is the cable: what passes it can be captured there. All namespaces begin with
`netloom-dc`, and are removed at the end, including those of a killed test.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netloom.lab.daemons.entering import entered, mountpoints
from tests.support import frr
from tests.support.ovn import namespace, own, remove_namespace, run, within
from tests.support.process import Program, fail_missing, scratch, wait_until

PREFIX = "netloom-dc"
GENEVE_MTU = 1442
"""The MTU of a Network of fabric ovn: frames that fit there too."""


@dataclass(frozen=True)
class Host:
    """A machine of the data centre."""

    name: str
    netns: str
    mac: str
    addresses: tuple[str, ...]
    """With the length of the prefix."""
    vni: int

    @property
    def ips(self) -> list[str]:
        """Its addresses alone."""
        return [address.partition("/")[0] for address in self.addresses]


class DataCentre:
    """FRR as the VTEP of a data centre, with an address in the underlay."""

    device = "eth0"

    def __init__(
        self,
        netns: str,
        folder: Path,
        address: str,
        *,
        asn: int,
        peers: Mapping[str, int],
        vnis: Sequence[int],
        lines: Sequence[str],
        mtu: int,
        root: str,
    ) -> None:
        self.netns, self.folder, self.root = netns, folder, root
        self.address = address.partition("/")[0]
        self.asn = asn
        self.hosts: dict[str, Host] = {}
        self._prefixed, self._mtu = address, mtu
        self._programs: dict[str, Program] = {}
        self._number = 0
        os.chown(folder, _frr_user(root), -1)  # FRR gives up being root.
        (folder / "zebra.conf").write_text("ip nht resolve-via-default\n")  # Next hops are behind the gateway.
        (folder / "bgpd.conf").write_text(_configuration(self.address, asn, peers, lines))
        run("ip", "-n", netns, "link", "set", "lo", "up")
        for name in ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.disable_ipv6=0"):
            run(*within(netns, "sysctl", "-q", "-w", name))
        self._vnis = tuple(vnis)

    def connect(self, netns: str, *, bridge: str = "", gateway: str = "", speaks: bool = True) -> None:
        """Lay the cable to a namespace: to a bridge in it, or to a router, which gets an address and is the way out.

        FRR is started with it: zebra takes up the networks that are there. Unless it `speaks`, another daemon does, and
        `send_to` says where frames go.
        """
        far = f"dc{os.getpid() % 10000}-{self._index()}"
        run("ip", "link", "add", self.device, "netns", self.netns, "type", "veth", "peer", "name", far, "netns", netns)
        run("ip", "-n", self.netns, "address", "add", self._prefixed, "dev", self.device)
        if bridge:
            run("ip", "-n", netns, "link", "set", far, "master", bridge)
        if gateway:
            run("ip", "-n", netns, "address", "add", gateway, "dev", far)
        for where, device in ((self.netns, self.device), (netns, far)):
            # A userspace switch forwards packets as they are: without their checksums TCP stalls.
            run(*within(where, "ethtool", "-K", device, "tx", "off"))
            run("ip", "-n", where, "link", "set", device, "up")
        if gateway:
            run("ip", "-n", self.netns, "route", "add", "default", "via", gateway.partition("/")[0])
        for vni in self._vnis:
            self.add_network(vni)
        if speaks:
            self.start("zebra")
            self.start("bgpd")

    def _index(self) -> str:
        return self.netns.rpartition("-")[2]

    def add_network(self, vni: int) -> None:
        """Create the VXLAN device and the bridge of a VNI."""
        bridge, vxlan = f"br{vni}", f"vxlan{vni}"
        ip = ("ip", "-n", self.netns, "link")
        run(*ip, "add", bridge, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0", "ageing_time", "360000")
        run(*ip, "add", vxlan, "type", "vxlan", "id", str(vni), "local", self.address, "dstport", "4789", "nolearning")
        run(*ip, "set", vxlan, "master", bridge, "addrgenmode", "none")
        run(*ip, "set", vxlan, "type", "bridge_slave", "neigh_suppress", "on", "learning", "off")
        run(*within(self.netns, "ethtool", "-K", bridge, "tx", "off"))
        for device in (bridge, vxlan):
            run(*ip, "set", device, "up")

    def send_to(self, vtep: str, vni: int) -> None:
        """Send frames of a VNI for which nothing else is known to a VTEP."""
        everything = ("00:00:00:00:00:00", "dev", f"vxlan{vni}", "dst", vtep)
        run("bridge", "-n", self.netns, "fdb", "append", *everything)

    def remove_network(self, vni: int) -> None:
        """Remove the VXLAN device and the bridge of a VNI; its hosts must be gone."""
        for device in (f"vxlan{vni}", f"br{vni}"):
            run("ip", "-n", self.netns, "link", "delete", device)

    def add_host(
        self, name: str, addresses: Sequence[str], *, mac: str = "", vni: int = 0, announce: bool = True
    ) -> Host:
        """Create a machine with addresses such as 10.10.0.21/24; with `announce` it is known before it says a word."""
        self._number += 1
        vni = vni or self._vnis[0]
        number = int(self._index()) % 256
        mac = mac or f"02:dc:00:{number:02x}:{self._number // 256:02x}:{self._number % 256:02x}"
        host = Host(name, f"{self.netns}-{name}", mac, tuple(addresses), vni)
        port, ip = f"h{self._number}", ("ip", "-n", host.netns)
        run("ip", "netns", "add", host.netns)
        self.hosts[name] = host
        run("ip", "link", "add", "eth0", "netns", host.netns, "type", "veth", "peer", "name", port, "netns", self.netns)
        run(*ip, "link", "set", "lo", "up")
        run(*ip, "link", "set", "eth0", "address", mac, "mtu", str(self._mtu), "addrgenmode", "none")
        run(*within(host.netns, "ethtool", "-K", "eth0", "tx", "off"))
        run(*within(self.netns, "ethtool", "-K", port, "tx", "off"))
        run("ip", "-n", self.netns, "link", "set", port, "master", f"br{vni}", "addrgenmode", "none", "up")
        run(*ip, "link", "set", "eth0", "up")
        for address in addresses:
            run(*ip, "address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
        if announce:
            # As if it had sent something: neither static, which would be a MAC that never moves, nor forgotten soon.
            run("bridge", "-n", self.netns, "fdb", "replace", mac, "dev", port, "master", "dynamic")
            for one in host.ips:
                self._neighbour("replace", one, mac, vni)
        return host

    def _neighbour(self, verb: str, address: str, mac: str, vni: int) -> None:
        state = ["lladdr", mac, "nud", "stale"] if verb == "replace" else []
        run("ip", "-n", self.netns, "neighbour", verb, address, "dev", f"br{vni}", *state, check=verb == "replace")

    def remove_host(self, name: str) -> None:
        """Remove a machine: its routes are withdrawn."""
        host = self.hosts.pop(name)
        for one in host.ips:
            self._neighbour("delete", one, host.mac, host.vni)
        remove_namespace(host.netns)

    # FRR

    def start(self, daemon: str = "bgpd") -> None:
        """Start a daemon of FRR."""
        folder = self.folder
        files: list[str | Path] = ["-f", folder / f"{daemon}.conf", "-i", folder / f"{daemon}.pid"]
        files += ["--vty_socket", folder, "-z", folder / "zserv.api", "--log", "stdout"]
        argv = [f"/usr/lib/frr/{daemon}", "-P", "0", *map(str, files)]
        command = entered(argv, netns=self.netns, root=self.root, folder=folder)
        program = self._programs[daemon] = Program(command, log=folder / f"{daemon}.log")
        program.wait_ready((folder / f"{daemon}.vty").exists)

    def kill(self, daemon: str = "bgpd") -> None:
        """End a daemon like a crash."""
        self._programs[daemon].kill()
        (self.folder / f"{daemon}.vty").unlink()

    def stop(self, daemon: str = "bgpd") -> None:
        """End a daemon in order: bgpd tells its peers."""
        self._programs[daemon].stop()
        (self.folder / f"{daemon}.vty").unlink(missing_ok=True)

    def vty(self, *commands: str, daemon: str = "bgpd") -> str:
        """Run commands at the terminal of a daemon, each in its first mode, and return what the last one prints."""
        return frr.vty(self.folder / f"{daemon}.vty", *commands)

    def configure(self, *lines: str) -> None:
        """Change the configuration of bgpd, by lines below `router bgp`."""
        self.vty("configure terminal", f"router bgp {self.asn}", *lines, "end")

    def version(self) -> str:
        """Return FRR's version, as 8.4.4."""
        return self.vty("show version").split()[1]

    def is_established(self, peer: str) -> bool:
        """Whether the session with a peer is up."""
        peers = json.loads(self.vty("show bgp l2vpn evpn summary json")).get("peers", {})
        return bool(peers.get(peer, {}).get("state") == "Established")

    def wait_established(self, peer: str) -> None:
        """Wait until the session with a peer is up."""
        wait_until(lambda: self.is_established(peer), what=f"the session of {self.address} with {peer}")

    def routes(self) -> dict[str, dict[str, Any]]:
        """Return the EVPN routes that bgpd has, its own and others': NLRI as FRR writes it -> path."""
        found: dict[str, dict[str, Any]] = {}
        for distinguisher in json.loads(self.vty("show bgp l2vpn evpn route json")).values():
            if isinstance(distinguisher, dict):
                found |= {
                    f"{distinguisher['rd']} {prefix}": _first(value["paths"])
                    for prefix, value in distinguisher.items()
                    if isinstance(value, dict) and value.get("paths")
                }
        return found

    def macs(self, vni: int) -> dict[str, dict[str, Any]]:
        """Return the MAC addresses of a VNI that zebra knows; `type` is local or remote."""
        return dict(json.loads(self.vty(f"show evpn mac vni {vni} json", daemon="zebra") or "{}").get("macs", {}))

    def remote_macs(self, vni: int) -> set[str]:
        """Return the MAC addresses of a VNI that are at other sites."""
        return {mac for mac, found in self.macs(vni).items() if found["type"] == "remote"}

    def vteps(self, vni: int) -> set[str]:
        """Return the VTEPs of other sites that get broadcasts of a VNI."""
        found = json.loads(self.vty(f"show evpn vni {vni} json", daemon="zebra") or "{}")
        # The older versions have the list under the name of the number.
        listed = found.get("remoteVteps") or found.get("numRemoteVteps") or ()
        return {vtep if isinstance(vtep, str) else str(vtep["ip"]) for vtep in listed}

    def close(self) -> None:
        """Stop everything."""
        for program in reversed(self._programs.values()):
            program.stop()
        for name in list(self.hosts):
            remove_namespace(self.hosts.pop(name).netns)


def _frr_user(root: str) -> int:
    """Return the number of FRR's user, which another root has its own of."""
    lines = (line.split(":") for line in Path(f"{root}/etc/passwd").read_text().splitlines())
    return next(int(line[2]) for line in lines if line[0] == "frr")


def _first(paths: list[Any]) -> dict[str, Any]:
    """Return the first path: newer versions have a list of paths where older ones have a list of lists."""
    first = paths[0]
    return dict(first[0] if isinstance(first, list) else first)


def _configuration(address: str, asn: int, peers: Mapping[str, int], lines: Sequence[str]) -> str:
    """Return the configuration of bgpd: `lines` follow below `router bgp`."""
    return "\n".join(
        [
            f"router bgp {asn}",
            f" bgp router-id {address}",
            " no bgp default ipv4-unicast",
            " no bgp ebgp-requires-policy",
            " bgp graceful-restart",
            *(f" neighbor {peer} remote-as {remote}" for peer, remote in peers.items()),
            *(f" neighbor {peer} update-source {address}" for peer in peers),
            *(f" neighbor {peer} ebgp-multihop" for peer, remote in peers.items() if remote != asn),
            *(f" neighbor {peer} timers connect 1" for peer in peers),
            *(f" {line}" for line in lines),
            " address-family l2vpn evpn",
            *(f"  neighbor {peer} activate" for peer in peers),
            "  advertise-all-vni",
            " exit-address-family",
            "",
        ]
    )


@contextlib.contextmanager
def underlay() -> Iterator[str]:
    """Yield a namespace with a bridge `underlay`."""
    with namespace(own(PREFIX)) as path:
        run("ip", "-n", path.name, "link", "add", "underlay", "type", "bridge", "forward_delay", "0")
        run("ip", "-n", path.name, "link", "set", "underlay", "addrgenmode", "none", "up")
        yield path.name


@contextlib.contextmanager
def data_centre(
    address: str,
    *,
    asn: int,
    peers: Mapping[str, int],
    vnis: Sequence[int] = (10,),
    lines: Sequence[str] = (),
    mtu: int = GENEVE_MTU,
    root: str | None = None,
) -> Iterator[DataCentre]:
    """Yield a data centre without a cable.

    FRR is that of the folder `root`, by default $NETLOOM_TEST_FRR_ROOT; "" is this machine's own.
    """
    root = os.environ.get("NETLOOM_TEST_FRR_ROOT", "") if root is None else root
    if not Path(f"{root}/usr/lib/frr/zebra").exists():
        fail_missing(f"{root}/usr/lib/frr/zebra", "tools/ovn-root VERSION" if root else "tools/system-packages test")
    with scratch("dc") as folder, namespace(own(PREFIX)) as path:
        made = mountpoints(folder, [root] if root else [])
        options = {"vnis": vnis, "lines": lines, "mtu": mtu, "root": root}
        centre = DataCentre(path.name, folder, address, asn=asn, peers=peers, **options)  # type: ignore[arg-type]
        try:
            yield centre
        finally:
            centre.close()
            for one in made:
                shutil.rmtree(one, ignore_errors=True)
