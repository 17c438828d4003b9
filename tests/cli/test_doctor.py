"""`netloom doctor`: what it finds, what it mends, and what it leaves alone."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from netloom.client.http import Client
from netloom.client.session import Session
from netloom.diagnose.doctor.addresses import AddressSection
from netloom.diagnose.doctor.report import Report
from netloom.model.registry import KINDS
from netloom.plan.audit.addresses import MANAGED_BY, MANAGER
from netloom.plan.audit.finding import Check
from tests.front import serving as front
from tests.front.serving import attachment, document, make_credentials, network
from tests.run.serving import netloom
from tests.run.test_apiserver import apiserver

Json = dict[str, Any]
ADDRESSES = ("--chapter", "addresses")
SUBNET = document("Subnet", "v4", "default", {"network": "blue", "cidr": "10.10.0.0/24"})


@dataclass(slots=True)
class World:
    """An API without controllers, in which anything can be written."""

    server: front.Serving
    session: Session

    def make(self, made: Json, status: Json | None = None) -> Json:
        kind = KINDS.kind(made["apiVersion"], made["kind"])
        answer = self.server.post(kind.path(made["metadata"].get("namespace", "")), made)
        assert answer.code == 201, answer.body
        stored: Json = answer.json
        if status is not None:
            where = kind.path(made["metadata"].get("namespace", ""), made["metadata"]["name"], "status")
            answer = self.server.patch(where, {"status": status})
            assert answer.code == 200, answer.body
        return stored

    def delete(self, made: Json) -> None:
        kind = KINDS.kind(made["apiVersion"], made["kind"])
        metadata = made["metadata"]
        assert self.server.delete(kind.path(metadata.get("namespace", ""), metadata["name"])).code == 200

    def addressed(self, name: str, ip: str, *, mac: str = "", vni: int = 10) -> tuple[Json, Json]:
        """Make an attachment that has an address, as IPAM would: with a lock that it names."""
        made = self.make(attachment(name))
        locked = self.make(lock(made, ip, vni=vni))
        status: Json = {"ips": [f"{ip}/24"], "vni": vni, "locks": [{"ip": ip, "uid": locked["metadata"]["uid"]}]}
        status |= {"mac": mac} if mac else {}
        path = front.path("networkattachments", name=name, subresource="status")
        assert self.server.patch(path, {"status": status}).code == 200
        return made, locked

    def network(self) -> Json:
        """Make a Network with its VNI, and a Subnet."""
        blue = self.make(network(), {"vni": 10})
        self.make(vni_lock(blue, 10))
        self.make(SUBNET)
        return blue

    def examine(self, *, repair: bool = False, meanwhile: Callable[[], object] = lambda: None) -> Report:
        return AddressSection(self.session.client, settle=lambda _: meanwhile()).examine(repair=repair)

    def exists(self, made: Json) -> bool:
        kind = KINDS.kind(made["apiVersion"], made["kind"])
        metadata = made["metadata"]
        found = self.server.get(kind.path(metadata.get("namespace", ""), metadata["name"]))
        return bool(found.code == 200 and found.json["metadata"]["uid"] == metadata["uid"])


def lock(owner: Json, ip: str, *, vni: int = 10, name: str = "") -> Json:
    made = document("IPLock", name or f"v1-{vni}-" + ip.replace(".", "-"), "default", {"network": "blue", "vni": vni})
    made["spec"]["ip"] = ip
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    made["metadata"]["ownerReferences"] = [reference]
    return made


def vni_lock(holder: Json, vni: int) -> Json:
    network = {key: holder["metadata"][key] for key in ("namespace", "name", "uid")}
    made = document("VNILock", f"vni-{vni}", "", {"vni": vni, "network": network})
    made["metadata"]["labels"] = {MANAGED_BY: MANAGER}
    return made


def found(report: Report) -> list[tuple[str, str]]:
    return [(complaint.check, complaint.name) for complaint in report.complaints]


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("credentials")
    make_credentials(folder)
    return folder


@pytest.fixture
def world(credentials: Path) -> Iterator[World]:
    with front.serving(credentials) as server:
        headers = {"Authorization": "Bearer admin-token"}
        client = Client(f"https://127.0.0.1:{server.port}", server.tls(), lambda: headers)
        with closing(client):
            yield World(server, Session(client, "default"))


def test_a_healthy_system_has_no_problems(world: World) -> None:
    world.network()
    world.addressed("web", "10.10.0.7", mac="02:00:00:00:00:07")
    world.addressed("db", "10.10.0.8", mac="02:00:00:00:00:08")
    report = world.examine(meanwhile=lambda: pytest.fail("it need not look twice"))
    assert not report.complaints
    assert report.checked == {"Networks": 1, "Subnets": 1, "attachments": 2, "address locks": 2, "VNI locks": 1}


def test_an_empty_server_has_no_problems(world: World) -> None:
    assert not world.examine().complaints


def test_a_lock_whose_attachment_is_gone_is_found_and_deleted(world: World) -> None:
    world.network()
    web, locked = world.addressed("web", "10.10.0.7")
    world.delete(web)
    report = world.examine()
    assert found(report) == [(Check.ORPHANED_LOCK, "v1-10-10-10-0-7")]
    assert world.exists(locked)
    mended = world.examine(repair=True)
    assert not mended.complaints
    assert [complaint.repair for complaint in mended.repaired] == ["deleted; 10.10.0.7 is free after its quarantine"]
    assert not world.exists(locked)


def test_a_lock_that_waits_in_quarantine_is_left_alone(world: World) -> None:
    world.network()
    web = world.make(attachment("web"))
    made = lock(web, "10.10.0.7")
    made["metadata"]["finalizers"] = ["netloom.dev/quarantine"]
    locked = world.make(made)
    world.delete(web)
    world.delete(locked)
    assert not world.examine(repair=True).complaints
    assert world.exists(locked)


def test_what_is_untidy_for_a_moment_is_no_problem(world: World) -> None:
    world.network()
    web = world.make(attachment("web"))
    locked = world.make(lock(web, "10.10.0.7"))
    status = {"ips": ["10.10.0.7/24"], "vni": 10, "locks": [{"ip": "10.10.0.7", "uid": locked["metadata"]["uid"]}]}
    path = front.path("networkattachments", name="web", subresource="status")
    report = world.examine(repair=True, meanwhile=lambda: world.server.patch(path, {"status": status}))
    assert not report.complaints
    assert not report.repaired
    assert world.exists(locked)


def test_a_lock_whose_owner_lives_is_never_deleted(world: World) -> None:
    world.network()
    web = world.make(attachment("web"))
    locked = world.make(lock(web, "10.10.0.7"))
    report = world.examine(repair=True)
    assert found(report) == [(Check.SPARE_LOCK, "v1-10-10-10-0-7")]
    assert world.exists(locked)


def test_a_lock_is_judged_by_who_its_owner_is_and_not_by_the_owners_name(world: World) -> None:
    world.network()
    web, locked = world.addressed("web", "10.10.0.7")
    world.delete(web)
    world.make(attachment("web"))
    assert found(world.examine(repair=True)) == []
    assert not world.exists(locked)


def test_a_lock_that_changed_hands_meanwhile_is_left_alone(world: World) -> None:
    world.network()
    web, locked = world.addressed("web", "10.10.0.7")
    world.delete(web)

    def replaced() -> None:
        # After the first look: the lock is another's now, by the same name.
        world.delete(locked)
        other = world.make(attachment("other"))
        locks.append(world.make(lock(other, "10.10.0.7")))

    locks: list[Json] = []
    world.examine(repair=True, meanwhile=replaced)
    assert world.exists(locks[0])


def test_a_vni_without_its_lock_is_locked(world: World) -> None:
    blue = world.make(network(), {"vni": 10})
    assert found(world.examine()) == [(Check.UNHELD_VNI, "blue")]
    report = world.examine(repair=True)
    assert not report.complaints
    assert [complaint.repair for complaint in report.repaired] == ["created the lock of VNI 10"]
    locked = world.server.get(KINDS.named("vnilocks").path("", "vni-10")).json
    assert locked["spec"]["network"]["uid"] == blue["metadata"]["uid"]
    assert locked["metadata"]["labels"] == {MANAGED_BY: MANAGER}


def test_a_vni_that_another_holds_is_left_to_a_person(world: World) -> None:
    other = world.make(network("other"), {"vni": 11})
    world.make(vni_lock(other, 11))
    world.make(network(), {"vni": 11})
    report = world.examine(repair=True)
    assert (Check.UNHELD_VNI, "blue") in found(report)
    assert [name for check, name in found(report) if check is Check.DUPLICATE_VNI] == ["blue", "other"]
    (unheld,) = [complaint for complaint in report.complaints if complaint.check == Check.UNHELD_VNI]
    assert unheld.repair == "another Network has the lock"


def test_a_vni_lock_whose_network_is_gone_is_deleted(world: World) -> None:
    blue = world.make(network(), {"vni": 10})
    locked = world.make(vni_lock(blue, 10))
    world.delete(blue)
    world.make(network())
    report = world.examine(repair=True)
    assert [complaint.check for complaint in report.repaired] == [Check.ORPHANED_VNI]
    assert not report.complaints
    assert not world.exists(locked)


def test_an_address_of_a_vni_that_two_namespaces_lock_is_said_and_not_touched(world: World) -> None:
    world.network()
    _, here = world.addressed("web", "10.10.0.7")
    there = world.make(document("IPLock", "v1-10-10-10-0-7", "other", here["spec"]))
    report = world.examine(repair=True)
    assert found(report) == [(Check.DUPLICATE_LOCK, "v1-10-10-10-0-7")] * 2
    assert [complaint.namespace for complaint in report.complaints] == ["default", "other"]
    assert world.exists(here)
    assert world.exists(there)


def test_a_vni_lock_that_rests_is_left_alone(world: World) -> None:
    blue = world.make(network(), {"vni": 10})
    made = vni_lock(blue, 10)
    made["metadata"]["finalizers"] = ["netloom.dev/quarantine"]
    locked = world.make(made)
    world.delete(blue)
    mended = world.examine(repair=True).repaired
    assert [complaint.repair for complaint in mended] == ["deleted; VNI 10 is free after its quarantine"]
    report = world.examine(repair=True)
    assert not report.complaints
    assert not report.repaired
    assert world.exists(locked)


def test_a_vni_lock_waits_for_the_addresses_of_the_vni(world: World) -> None:
    blue = world.network()
    web, locked = world.addressed("web", "10.10.0.7")
    world.delete(web)
    world.delete(world.server.get(front.path("subnets", name="v4")).json)
    world.delete(blue)
    assert found(world.examine()) == [(Check.ORPHANED_LOCK, "v1-10-10-10-0-7")]
    report = world.examine(repair=True)
    assert [complaint.check for complaint in report.repaired] == [Check.ORPHANED_LOCK]
    assert found(report) == [(Check.ORPHANED_VNI, "vni-10")]
    assert not world.exists(locked)
    assert not world.examine(repair=True).complaints


def test_what_only_a_person_can_decide_is_said_and_not_touched(world: World) -> None:
    world.network()
    _, one = world.addressed("one", "10.10.0.7", mac="02:00:00:00:00:07")
    two = world.make(
        attachment("two"),
        {
            "ips": ["10.10.0.7/24"],
            "vni": 10,
            "mac": "02:00:00:00:00:07",
            "locks": [{"ip": "10.10.0.7", "uid": one["metadata"]["uid"]}],
        },
    )
    world.make(lock(two, "10.10.0.9", name="by-hand"))
    world.addressed("far", "10.99.0.7")
    report = world.examine(repair=True)
    assert {check for check, _ in found(report)} == {
        Check.DUPLICATE_ADDRESS,
        Check.DUPLICATE_MAC,
        Check.LOST_LOCK,
        Check.MISNAMED_LOCK,
        Check.SPARE_LOCK,
        Check.OUTSIDE,
    }
    assert not report.repaired
    words = {complaint.message for complaint in report.complaints if complaint.check == Check.DUPLICATE_ADDRESS}
    assert words == {
        "has 10.10.0.7 of VNI 10, and so has default/one",
        "has 10.10.0.7 of VNI 10, and so has default/two",
    }


@pytest.mark.slow
def test_the_command_says_it_in_words_or_as_json_and_by_its_exit_status(tmp_path: Path) -> None:
    with apiserver(tmp_path, "--store", f"sqlite:{tmp_path / 'db'}") as kubeconfig:
        healthy = netloom("doctor", *ADDRESSES, kubeconfig=kubeconfig)
        assert healthy.out.splitlines() == [
            "addresses: checked 0 Networks, 0 Subnets, 0 attachments, 0 address locks, 0 VNI locks.",
            "addresses: no problems found.",
        ]
        blue = {"metadata": {"namespace": "default", "name": "blue", "uid": "11111111-1111-4111-8111-111111111111"}}
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=json.dumps(vni_lock(blue, 10)))
        sick = netloom("doctor", *ADDRESSES, kubeconfig=kubeconfig, check=False)
        assert sick.rc == 1
        assert "  VNILock vni-10: its Network default/blue is deleted.  [orphaned-vni]\n" in sick.out
        assert sick.out.endswith("addresses: 1 problem found.\n")
        answer = netloom("doctor", *ADDRESSES, "-o", "json", kubeconfig=kubeconfig, check=False)
        assert answer.rc == 1
        report = json.loads(answer.out)
        assert report["healthy"] is False
        (chapter,) = report["chapters"]
        (complaint,) = chapter["complaints"]
        assert (complaint["check"], complaint["kind"], complaint["name"]) == ("orphaned-vni", "VNILock", "vni-10")
        assert complaint["advice"]
        mended = netloom("doctor", *ADDRESSES, "--repair", kubeconfig=kubeconfig)
        assert "    Repaired: deleted; VNI 10 is free.\n" in mended.out
        assert mended.out.endswith("addresses: no problems left.\n")
        assert json.loads(netloom("doctor", *ADDRESSES, "-o", "json", kubeconfig=kubeconfig).out)["healthy"] is True


def test_a_server_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    answer = netloom("--kubeconfig", tmp_path / "none", "doctor", check=False)
    assert answer.rc == 1
    assert answer.err.startswith("Error: ")


@pytest.mark.slow
def test_an_object_that_cannot_be_read_is_named_and_can_be_deleted(tmp_path: Path) -> None:
    """On a real server: lists of the kind work, the doctor says which object it is, and deleting it makes room."""
    database = tmp_path / "db"
    with apiserver(tmp_path, "--store", f"sqlite:{database}") as kubeconfig:
        for name in ("blue", "red"):
            netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=json.dumps(network(name)))
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=json.dumps(SUBNET))
        assert netloom("doctor", "--chapter", "store", kubeconfig=kubeconfig).out.endswith(
            "store: no problems found.\n"
        )
    whole = database.read_bytes()
    at = whole.index(b'"name":"blue"')
    database.write_bytes(whole[:at] + b"#" + whole[at + 1 :])
    with apiserver(tmp_path, "--store", f"sqlite:{database}") as kubeconfig:
        listed = json.loads(netloom("get", "networks", "-o", "json", kubeconfig=kubeconfig).out)
        assert [item["metadata"]["name"] for item in listed["items"]] == ["red"]
        sick = netloom("doctor", "--chapter", "store", kubeconfig=kubeconfig, check=False)
        assert sick.rc == 1
        assert re.search(
            r"^  Network default/blue: cannot be read from the store, at revision \d+: ", sick.out, re.MULTILINE
        )
        refused = netloom("get", "network", "blue", kubeconfig=kubeconfig, check=False)
        assert "delete it by its name, then create it again" in refused.err
        netloom("delete", "network", "blue", kubeconfig=kubeconfig)
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=json.dumps(network("blue")))
        assert netloom("doctor", "--chapter", "store", kubeconfig=kubeconfig).rc == 0
