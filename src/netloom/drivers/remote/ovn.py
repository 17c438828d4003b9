"""Install Open vSwitch and OVN on a host, and configure them with TLS: `main(argv, document)`.

    python3 ovn.py apply|plan|check|show ovn < document.json

It needs Python 3.9, root, and a Debian or Ubuntu. Every step is compared with what is there: a second run changes
nothing, and a run after a kill at any point completes what is missing. `plan` prints what `apply` would do. `check`
waits until ovn-controller is connected to the southbound.

A NIC that moves to a bridge of Open vSwitch is recorded before it leaves its own bridge, in NICS: so it can go back,
whatever happened in between. It goes back when the document lists it under `back`. The network configuration files of
the host are not changed.

The document has the private key of the host: nothing here prints it, and the file is readable by root alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TLS = "/etc/netloom/ovn"
NICS = "/var/lib/netloom/nics.json"
OVS_CTL = "/usr/share/openvswitch/scripts/ovs-ctl"
OVN_CTL = "/usr/share/ovn/scripts/ovn-ctl"
LOCK = "/run/netloom-ovn.lock"
LOCK_SECONDS = 60.0
CONNECT_SECONDS = 120.0
INTEGRATION = "br-int"
MADE = "netloom-made"
"""The external-id of a bridge that is here for NICs only."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")

Json = dict[str, Any]


class Failure(Exception):
    """Why it cannot be done, and what to do."""


class Step(NamedTuple):
    """A change, and whether it is there already."""

    text: str
    is_done: Callable[[], bool]
    do: Callable[[], None]


def emit(line: Json) -> None:
    """Print one line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def run(*argv: str, fails: str = "") -> str:
    """Run a program and return its output; a failure is explained by its last line."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", env=env, check=False)
    except FileNotFoundError:
        raise Failure(f"{argv[0]} is not installed") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Failure(f"{fails or ' '.join(argv)}: {said[-1]}")
    return done.stdout.strip()


def succeeds(*argv: str) -> bool:
    """Whether a program ends well."""
    try:
        run(*argv)
    except Failure:
        return False
    return True


def answer(*argv: str) -> str:
    """Return the output of a program; "" if it fails, as before the installation."""
    try:
        return run(*argv)
    except Failure:
        return ""


# Packages and services.


def packages(names: Sequence[str]) -> list[Step]:
    """Return the installation of packages."""
    missing = [
        one for one in names if not answer("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", one).startswith("ii")
    ]

    def install() -> None:
        if not {"debian", "ubuntu"} & _system():
            raise Failure("this is neither Debian nor Ubuntu: install Open vSwitch and OVN by hand, then run again")
        # An installation that was interrupted: what lacks other packages is completed with them, by `-f`.
        succeeds("dpkg", "--configure", "-a")
        wait = ("-o", "DPkg::Lock::Timeout=300", "-q", "-y")
        known = succeeds("apt-get", *wait, "update")
        options = ("--no-install-recommends", "-o", "Dpkg::Options::=--force-confold")
        hint = "" if known else " (and apt-get update failed)"
        run(
            "apt-get",
            *wait,
            "-f",
            "install",
            *options,
            *missing,
            fails=f"{' '.join(missing)} cannot be installed{hint}",
        )

    return [Step(f"{' '.join(missing)} installed", lambda: not missing, install)]


def _system() -> set[str]:
    with open("/etc/os-release", encoding="utf-8") as file:
        found = dict(line.strip().split("=", 1) for line in file if "=" in line)
    return {word for key in ("ID", "ID_LIKE") for word in found.get(key, "").strip('"').split()}


def service(unit: str, status: Sequence[str], start: Sequence[str]) -> Step:
    """Return the start of a service: by systemd, or by the script of the package where there is no systemd."""
    if os.path.isdir("/run/systemd/system"):
        return Step(
            f"{unit} started",
            lambda: succeeds("systemctl", "is-enabled", unit) and succeeds("systemctl", "is-active", unit),
            lambda: void(run("systemctl", "enable", "--now", unit)),
        )
    return Step(f"{unit} started", lambda: succeeds(*status), lambda: void(run(*start)))


def void(_: object) -> None:
    """Return nothing."""


# Files and databases.


def files(contents: dict[str, str]) -> list[Step]:
    """Return the writing of the key and the certificates."""
    steps = []
    for name in sorted(contents):
        if not _NAME.fullmatch(name):
            raise Failure(f"document.files: {name!r} is not a name")
        path = f"{TLS}/{name}"
        steps.append(Step(f"{path} written", _has(path, contents[name]), _writes(path, contents[name])))
    return steps


def _has(path: str, content: str) -> Callable[[], bool]:
    return lambda: read(path) == content


def _writes(path: str, content: str) -> Callable[[], None]:
    return lambda: write(path, content)


def read(path: str) -> str | None:
    """Return the content of a file; None: there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(path: str, content: str) -> None:
    """Replace a private file as a whole."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.part", path)


def tls(tool: str, ca: str) -> Step:
    """Return the TLS settings of a database, in it."""
    paths = [f"{TLS}/key.pem", f"{TLS}/cert.pem", f"{TLS}/{ca}"]
    command = (tool, "--timeout=30")

    def found() -> list[str]:
        lines = answer(*command, "get-ssl").splitlines()
        return [line.partition(":")[2].strip() for line in lines if line.startswith(("Private", "Certificate", "CA"))]

    def do() -> None:
        others = [path for path in found() if path and path not in paths]
        if others:
            raise Failure(
                f"{tool} get-ssl shows another key, {others[0]}: remove it by `{tool} del-ssl`, then run again"
            )
        run(*command, "set-ssl", *paths)

    return Step(f"{tool}: TLS set", lambda: found()[:3] == paths, do)


def listener(tool: str, target: str, role: str) -> Step:
    """Return the listener of a database for TLS."""
    command = (tool, "--timeout=30")

    def found() -> list[str]:
        return [line.split()[-1] for line in answer(*command, "get-connection").splitlines() if line.strip()]

    def do() -> None:
        others = [one for one in found() if one != target]
        if others:
            raise Failure(
                f"{tool} get-connection shows {others[0]}: remove it by `{tool} del-connection`, then run again"
            )
        run(*command, "set-connection", *([f"role={role}"] if role else []), target)

    return Step(f"{tool}: listens on {target}", lambda: found() == [target], do)


def external_id(key: str, value: str) -> Step:
    """Return a setting of the host's Open vSwitch."""
    quoted = json.dumps(value)
    return Step(
        f"external-ids:{key}={value}",
        lambda: (
            unquoted(
                answer("ovs-vsctl", "--timeout=30", "--if-exists", "get", "Open_vSwitch", ".", f"external_ids:{key}")
            )
            == value
        ),
        lambda: void(run("ovs-vsctl", "--timeout=30", "set", "Open_vSwitch", ".", f"external_ids:{key}={quoted}")),
    )


def unquoted(text: str) -> str:
    """Return a string as ovs-vsctl prints it, without its quotes."""
    return str(json.loads(text)) if text.startswith('"') else text


# NICs.


def recorded() -> Json:
    """Return where each NIC that moved came from."""
    found = read(NICS)
    return dict(json.loads(found)) if found else {}


def record(nic: str, origin: Json | None) -> None:
    """Write down where a NIC comes from; None: it is back."""
    known = recorded()
    known.pop(nic, None)
    if origin is not None:
        known[nic] = origin
    write(NICS, json.dumps(known))


def origin_of(nic: str) -> Json:
    """Return the bridge that a NIC is on, and what that bridge knows about it."""
    switch = answer("ovs-vsctl", "--timeout=30", "port-to-br", nic)
    if switch:
        kept = answer("ovs-vsctl", "--timeout=30", "get", "Interface", nic, "external_ids")
        return {"switch": switch, "external_ids": kept}
    return {"bridge": linux_bridge(nic)}


def linux_bridge(nic: str) -> str:
    """Return the Linux bridge that a NIC is on; "": none.  A kernel datapath of Open vSwitch is a master too."""
    master = f"/sys/class/net/{nic}/master"
    bridge = os.path.basename(os.readlink(master)) if os.path.islink(master) else ""
    return bridge if os.path.isdir(f"/sys/class/net/{bridge}/bridge") else ""


def move(nic: str, bridge: str, ids: dict[str, str], datapath: str) -> Step:
    """Return the move of a NIC to a bridge of Open vSwitch."""
    wanted = dict(ids)
    if bridge == INTEGRATION:
        wanted["attached-mac"] = (read(f"/sys/class/net/{nic}/address") or "").strip()

    def is_done() -> bool:
        if answer("ovs-vsctl", "--timeout=30", "port-to-br", nic) != bridge or nic not in recorded():
            return False
        if linux_bridge(nic):
            return False  # The host was started again, and its network configuration was faster.
        get = ("ovs-vsctl", "--timeout=30", "--if-exists", "get", "Interface", nic)
        return all(unquoted(answer(*get, f"external_ids:{key}")) == value for key, value in wanted.items())

    def do() -> None:
        if not os.path.isdir(f"/sys/class/net/{nic}"):
            raise Failure(f"there is no NIC {nic}: `ip link` lists those that there are")
        _refuse_the_way_here(nic)
        if nic not in recorded():
            record(nic, origin_of(nic))
        if linux_bridge(nic):
            run("ip", "link", "set", nic, "nomaster")
        old = answer("ovs-vsctl", "--timeout=30", "port-to-br", nic)
        gone = leaving(old, nic) if old not in ("", bridge) else []
        made = []
        if bridge != INTEGRATION and not succeeds("ovs-vsctl", "--timeout=30", "br-exists", bridge):
            made = ["--", "add-br", bridge, "--", "set", "Bridge", bridge, f"external_ids:{MADE}=true"]
            made += [f"datapath_type={datapath}"] if datapath else []
        settings = [f"external_ids:{key}={json.dumps(value)}" for key, value in wanted.items()]
        added = ["--", "--may-exist", "add-port", bridge, nic]
        added += ["--", "set", "Interface", nic, *settings] if settings else []
        run("ovs-vsctl", "--timeout=30", *[*gone, *made, *added][1:], fails=f"NIC {nic} cannot move to {bridge}")
        run("ip", "link", "set", nic, "up")

    return Step(f"NIC {nic} moved to {bridge}", is_done, do)


def move_back(nic: str) -> Step:
    """Return the way back of a NIC to where it came from."""

    def do() -> None:
        origin = recorded()[nic]
        now = answer("ovs-vsctl", "--timeout=30", "port-to-br", nic)
        if "switch" in origin:
            ids = origin["external_ids"]
            settings = ["--", "set", "Interface", nic, f"external_ids={ids}"] if ids else []
            gone = leaving(now, nic) if now not in ("", origin["switch"]) else []
            back = [*gone, "--", "--may-exist", "add-port", origin["switch"], nic, *settings][1:]
            run("ovs-vsctl", "--timeout=30", *back, fails=f"NIC {nic} cannot go back to {origin['switch']}")
        else:
            if now:
                run("ovs-vsctl", "--timeout=30", *leaving(now, nic)[1:])
            if origin["bridge"]:
                run("ip", "link", "set", nic, "master", origin["bridge"])
        record(nic, None)

    return Step(f"NIC {nic} moved back", lambda: nic not in recorded(), do)


def leaving(switch: str, nic: str) -> list[str]:
    """Return the words of ovs-vsctl that take a NIC from a bridge, which goes if we made it for such NICs alone."""
    words = ["--", "del-port", switch, nic]
    ours = answer("ovs-vsctl", "--timeout=30", "--if-exists", "get", "Bridge", switch, f"external_ids:{MADE}")
    others = [one for one in answer("ovs-vsctl", "--timeout=30", "list-ports", switch).split() if one != nic]
    return [*words, "--", "del-br", switch] if unquoted(ours) == "true" and not others else words


def carriers(nic: str) -> list[str]:
    """Return the devices whose packets a NIC carries: what is above it, and the internal ports of its switch.

    Above it are bridges, bonds, VLANs and devices such as macvlan, and what is above these. A switch may be connected
    to others by patch ports.
    """
    every = ("ovs-vsctl", "--timeout=30", "--bare", "--columns=name", "find", "Interface")
    internal, patches = (set(answer(*every, f"type={kind}").split()) for kind in ("internal", "patch"))
    found: list[str] = []
    waiting, switches = [nic], set()
    while waiting:
        one = waiting.pop(0)
        if one in found:
            continue
        found.append(one)
        folder = f"/sys/class/net/{one}"
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        waiting += [name[len("upper_") :] for name in names if name.startswith("upper_")]
        switch = answer("ovs-vsctl", "--timeout=30", "iface-to-br", one)
        if not switch or switch in switches:
            continue
        switches.add(switch)
        ports = set(answer("ovs-vsctl", "--timeout=30", "list-ifaces", switch).split())
        waiting += [switch, *sorted(ports & internal)]
        for port in sorted(ports & patches):
            peer = unquoted(
                answer("ovs-vsctl", "--timeout=30", "--if-exists", "get", "Interface", port, "options:peer")
            )
            waiting += [peer] if _NAME.fullmatch(peer) else []
    return found


def _refuse_the_way_here(nic: str) -> None:
    """Refuse a NIC with an address, and one that carries this connection."""
    client, _, here, *_ = [*os.environ.get("SSH_CONNECTION", "").split(), "", "", ""]
    listed = json.loads(answer("ip", "-j", "address", "show") or "[]")
    held = {
        link["ifname"]: [one["local"] for one in link.get("addr_info", ()) if one.get("scope") == "global"]
        for link in listed
        if "ifname" in link
    }
    if held.get(nic):
        raise Failure(f"NIC {nic} has the address {held[nic][0]}, which would stop working: remove it first")
    devices = carriers(nic)
    for holder in devices:
        if here and here in held.get(holder, ()):
            raise Failure(f"NIC {nic} carries this connection ({here} is on {holder}): choose another NIC")
    # The address may be on a device without a cable.
    way = json.loads(answer("ip", "-j", "route", "get", client) or "[]") if client else []
    out = next((one["dev"] for one in way if one.get("dev") in devices), "")
    if out:
        raise Failure(f"NIC {nic} carries this connection ({client} is reached by {out}): choose another NIC")


# All of it.


@contextmanager
def locked() -> Iterator[None]:
    """Exclude other runs on this host; one whose client was killed may need a moment to end."""
    file = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Failure(f"another run holds {LOCK}: wait until it ends") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(file)


def steps_of(document: Json) -> list[Step]:
    """Return all steps, in their order."""
    names = ["openvswitch-switch"]
    central, host = document.get("central"), document.get("host")
    names += ["ovn-central"] if central else []
    names += ["ovn-host"] if host else []
    steps = [*packages(names), *files(document["files"])]
    if host:
        identity = f"--system-id={host['system_id']}"
        # ovs-ctl sets the name again at each start, from this file.
        path = "/etc/openvswitch/system-id.conf"
        steps.append(
            Step(f"{path} written", _has(path, host["system_id"] + "\n"), _writes(path, host["system_id"] + "\n"))
        )
        steps.append(service("openvswitch-switch", (OVS_CTL, "status"), (OVS_CTL, "start", identity)))
        steps.append(tls("ovs-vsctl", "ca.pem"))
        wanted = {
            "system-id": host["system_id"], "ovn-remote": host["remote"], "ovn-encap-type": host["encap_type"],
            "ovn-encap-ip": host["encap_ip"], "hostname": host["system_id"],
        }  # fmt: skip
        if host["datapath"]:
            wanted["ovn-bridge-datapath-type"] = host["datapath"]
        steps += [external_id(key, value) for key, value in wanted.items()]
        steps.append(service("ovn-host", (OVN_CTL, "status_controller"), (OVN_CTL, "start_controller")))
    if central:
        steps.append(service("ovn-central", (OVN_CTL, "status_northd"), (OVN_CTL, "start_northd")))
        steps += [tls("ovn-nbctl", "central-ca.pem"), tls("ovn-sbctl", "both-ca.pem")]
        steps.append(listener("ovn-nbctl", central["northbound"], ""))
        steps.append(listener("ovn-sbctl", central["southbound"], "ovn-controller"))
    for one in document["nics"]:
        if not _NAME.fullmatch(one["nic"]) or not _NAME.fullmatch(one["bridge"]):
            raise Failure(f"document.nics: {one['nic']!r} or {one['bridge']!r} is not a name")
        steps.append(move(one["nic"], one["bridge"], one["external_ids"], one["datapath"]))
    steps += [move_back(nic) for nic in document["back"]]
    return steps


def check(document: Json) -> None:
    """Wait until ovn-controller is connected to the southbound."""
    if not document.get("host"):
        return
    until = time.monotonic() + CONNECT_SECONDS
    status = ""
    while status != "connected":
        if time.monotonic() > until:
            remote = document["host"]["remote"]
            raise Failure(f"ovn-controller is not connected to {remote}: see /var/log/ovn/ovn-controller.log")
        status = answer("ovn-appctl", "-t", "ovn-controller", "connection-status")
        time.sleep(0.2)


def main(argv: list[str], document: bytes) -> int:
    """Do what `argv`, a verb and an owner, asks for; print lines; return the exit status."""
    os.environ["PATH"] = f"/usr/sbin:/usr/bin:/sbin:/bin:{os.environ.get('PATH', '')}"
    changes, error = 0, ""
    try:
        verb, wanted = argv[0], json.loads(document)
        if os.geteuid() != 0:
            raise Failure("this needs root: run it with sudo")
        if verb == "check":
            check(wanted)
        with locked() if verb == "apply" else nullcontext():
            for step in steps_of(wanted) if verb in ("apply", "plan") else ():
                if step.is_done():
                    continue
                if verb == "apply":
                    step.do()
                changes += 1
                emit({"step": step.text})
    except (Failure, OSError) as failure:
        error = str(failure)
    except (KeyError, TypeError, ValueError) as failure:
        error = f"the document is not valid: {type(failure).__name__} {failure}"
    emit({"result": "failed" if error else "done", "changes": changes, "error": error})
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdin.buffer.read()))
