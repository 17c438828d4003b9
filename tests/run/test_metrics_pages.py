"""What real processes say at /metrics is what docs/metrics.md says, and what the dashboard asks for is among it."""

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from netloom.run.metrics.agent import COUNTERS, GAUGES
from netloom.store.kube import kubeconfig as kubeconfigs
from tests.docs.console import ROOT
from tests.run.serving import NETLOOM, environment, netloom
from tests.run.test_apiserver import apiserver, controller
from tests.support.process import Program, free_port, wait_until

OPENMETRICS = "application/openmetrics-text; version=1.0.0, text/plain; version=0.0.4;q=0.5"
PAGE = ROOT / "docs" / "metrics.md"
FOLDER = ROOT / "deploy" / "grafana"
DASHBOARDS = {
    "netloom.json": [
        "From creation to Ready",
        "Addresses",
        "Agents and their Networks",
        "Fabric",
        "Queues",
        "API server",
        "Processes",
    ],
    "evpn.json": ["Sessions", "Routes", "Networks between sites", "Import"],
}
"""The dashboards, and the titles of their rows."""
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "info": ("_info",), "gauge": ("",)}
OBJECTS = """
apiVersion: netloom.dev/v1alpha1
kind: Network
metadata: {name: blue}
spec: {vni: 77}
---
apiVersion: netloom.dev/v1alpha1
kind: Subnet
metadata: {name: blue}
spec: {network: blue, cidr: 10.7.0.0/24}
---
apiVersion: netloom.dev/v1alpha1
kind: NetworkAttachment
metadata: {name: web}
spec: {node: n1, network: blue}
"""
EVPN = """
apiVersion: netloom.dev/v1alpha1
kind: Node
metadata: {name: gw}
spec: {underlayIP: 192.0.2.1}
---
apiVersion: netloom.dev/v1alpha1
kind: BGPSpeaker
metadata: {name: main}
spec: {asn: 65001, routerID: 192.0.2.1, node: gw}
---
apiVersion: netloom.dev/v1alpha1
kind: BGPPeer
metadata: {name: other}
spec: {speaker: main, address: 127.0.0.9, remoteASN: 65002, passive: true}
---
apiVersion: netloom.dev/v1alpha1
kind: EVPNNetwork
metadata: {name: blue}
spec: {network: blue, speaker: main, clients: [{mac: "02:00:00:00:00:01", ip: 10.7.0.99}]}
"""


@dataclass
class Row:
    """What the page says of a metric."""

    section: str
    type: str
    labels: set[str] = field(default_factory=set)


def described() -> dict[str, Row]:
    """Return what the page says, by names without the ending that a type has."""
    found: dict[str, Row] = {}
    section = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`netloom_"):
            name = cells[0].strip("`").removesuffix("_total").removesuffix("_info")
            assert name not in found, f"{name} is there twice"
            assert cells[3], f"{name} has no meaning"
            found[name] = Row(section, cells[1], set(re.findall(r"`(\w+)`", cells[2])))
    return found


def scraped(connection: http.client.HTTPConnection, headers: dict[str, str]) -> dict[str, Metric]:
    with closing(connection):
        connection.request("GET", "/metrics", headers={**headers, "Accept": OPENMETRICS})
        answer = connection.getresponse()
        assert answer.status == 200
        assert (answer.headers["Content-Type"] or "").startswith("application/openmetrics-text")
        families = openmetrics(answer.read().decode())  # type: ignore[no-untyped-call]
        return {family.name: family for family in families}


def of_health(port: int) -> dict[str, Metric]:
    return scraped(http.client.HTTPConnection("127.0.0.1", port, timeout=120), {})


def of_api(kubeconfig: Path) -> dict[str, Metric]:
    cluster = kubeconfigs.load(str(kubeconfig))
    url = urlsplit(cluster.server)
    assert url.hostname
    connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=120, context=cluster.tls())
    return scraped(connection, cluster.headers())


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    for family in families.values():
        for sample in family.samples:
            if sample.name == name and sample.labels.items() >= labels.items():
                return float(sample.value)
    return 0


@pytest.fixture(scope="module")
def scrapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Metric]]]:
    """What an API server, a controller and an agent say, of which the last two have neither OVN nor a switch."""
    folder = tmp_path_factory.mktemp("metrics")
    ports = {name: free_port() for name in ("controller", "agent", "speaker")}
    with ExitStack() as stack:
        kubeconfig = stack.enter_context(apiserver(folder, "--store", f"sqlite:{folder / 'db'}"))
        health = {name: ("--health-listen", f"127.0.0.1:{port}") for name, port in ports.items()}
        nowhere = f"unix:{folder / 'nowhere.sock'}"
        more = ("--no-leader-elect", "--ovn-nb", nowhere)
        stack.enter_context(controller(folder, kubeconfig, "one", *health["controller"], *more))
        argv = [*NETLOOM, "agent", "--kubeconfig", str(kubeconfig), "--node", "n1", "--ovs", nowhere]
        argv += ["--underlay-ip", "127.0.0.1", *health["agent"]]
        stack.enter_context(Program(argv, log=folder / "agent.log", env=environment()))
        argv = [*NETLOOM, "speaker", "--kubeconfig", str(kubeconfig), "--node", "gw", *health["speaker"]]
        argv += ["--speaker-socket", str(folder / "speaker.sock")]
        stack.enter_context(Program(argv, log=folder / "speaker.log", env=environment()))
        networks, attachment = OBJECTS.rsplit("---", 1)
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=networks)
        netloom("wait", "subnet/blue", kubeconfig=kubeconfig)
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=attachment)
        netloom("wait", "--for=condition=Addressed", "networkattachment/web", kubeconfig=kubeconfig)
        netloom("apply", "-f", "-", kubeconfig=kubeconfig, stdin=EVPN)
        wait_until(lambda: _answers(ports["agent"]), what="the agent")
        wait_until(lambda: _stretches(ports["speaker"]), what="the speaker")
        yield {"API": of_api(kubeconfig), **{name: of_health(port) for name, port in ports.items()}}


def _stretches(port: int) -> bool:
    return _answers(port) and value(of_health(port), "netloom_evpn_local_macs", evpn_network="default/blue") == 1


def _answers(port: int) -> bool:
    try:
        return bool(of_health(port))
    except OSError:
        return False


def test_the_page_and_the_processes_say_the_same(scrapes: dict[str, dict[str, Metric]]) -> None:
    page = described()
    there: dict[str, set[tuple[str, str]]] = {}
    for families in scrapes.values():
        for name, family in families.items():
            if not name.startswith("netloom_"):
                continue
            there.setdefault(name, set()).add((name, family.type))
            for sample in family.samples:
                assert name in page, f"{name} is not on the page"
                assert sample.labels.keys() - {"le"} == page[name].labels, f"the labels of {name}"
    assert {name: row.type for name, row in page.items()} == {name: kind for [(name, kind)] in there.values()}


def test_each_process_has_what_the_page_says_it_has(scrapes: dict[str, dict[str, Metric]]) -> None:
    sections = {
        "API": {"Every process", "The API"},
        "controller": {"Every process", "Controllers and agents", "Controllers"},
        "agent": {"Every process", "Agents", "Speakers"},
        "speaker": {"Every process", "Speakers"},
    }
    for process, theirs in sections.items():
        wanted = {name for name, row in described().items() if row.section in theirs}
        assert {name for name in scrapes[process] if name.startswith("netloom_")} == wanted
        assert "process_resident_memory_bytes" in scrapes[process]


def test_a_wish_is_measured_by_who_fulfils_it(scrapes: dict[str, dict[str, Metric]]) -> None:
    labels = {"since": "created", "delayed_by": "nothing"}
    ran = scrapes["controller"]
    assert value(ran, "netloom_ipam_wish_to_address_seconds_count", **labels) == 1
    assert 0 < value(ran, "netloom_ipam_wish_to_lock_seconds_sum", **labels) < 60
    assert value(ran, "netloom_subnet_wish_to_validated_seconds_count", since="created") == 1
    written = {"operation": "update", "resource": "networkattachments/status", "outcome": "ok"}
    assert value(ran, "netloom_store_operation_duration_seconds_count", **written) == 1
    assert value(scrapes["API"], "netloom_store_operation_duration_seconds_count", **written) == 1
    assert value(scrapes["API"], "netloom_api_watches", resource="iplocks", node="") == 1
    assert value(ran, "netloom_workers", controller="ipam") > 1


def test_the_names_of_an_agents_numbers_are_its_own() -> None:
    assert not COUNTERS.keys() & GAUGES.keys()
    assert {f"netloom_agent_{name}" for name in (*COUNTERS, *GAUGES)} <= described().keys()


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_a_dashboard_asks_for_what_there_is(dashboard: str) -> None:
    page = described()
    samples = {name + suffix: row for name, row in page.items() for suffix in SUFFIXES[row.type]}
    panels = json.loads((FOLDER / dashboard).read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    asked: set[str] = set()
    for panel in panels:
        if panel["type"] == "row":
            continue
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            text = target["expr"]
            assert [text.count(left) for left in "([{"] == [text.count(right) for right in ")]}"], text
            for name, labels in re.findall(r"\b(netloom_\w+)(?:\{([^}]*)\})?", text):
                assert name in samples, f"{panel['title']}: {name}"
                used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels)) | _grouped(text)
                assert used <= {*samples[name].labels, "le", "instance", "job"}, f"{panel['title']}: labels of {name}"
                asked.add(name)
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == DASHBOARDS[dashboard]
    if dashboard == "evpn.json":
        every = {name for name, row in samples.items() if row.section == "Speakers"}
        assert every - asked <= {name for name in every if name.endswith(("_count", "_sum"))}
    else:
        assert len(asked) > 30


def test_each_dashboard_is_tested_and_has_an_identity_of_its_own() -> None:
    found = {path.name: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
    assert found.keys() == DASHBOARDS.keys()
    assert len({one["uid"] for one in found.values()}) == len(found)


def _grouped(expression: str) -> set[str]:
    return {word.strip() for words in re.findall(r"by \(([^)]*)\)", expression) for word in words.split(",")}


def test_each_alert_is_about_metrics_that_there_are() -> None:
    page = described()
    groups = yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        for name in re.findall(r"netloom_\w+", rule["expr"]):
            assert name in page, f"{rule['alert']}: {name}"
        labels = set().union(*(page[name].labels for name in re.findall(r"netloom_\w+", rule["expr"])))
        named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert named <= labels | {"job", "instance"}


def test_the_configuration_of_prometheus_names_every_process() -> None:
    text = (ROOT / "deploy" / "prometheus" / "netloom.yaml").read_text()
    jobs = {job["job_name"]: job for job in yaml.safe_load(text)["scrape_configs"]}
    assert jobs.keys() == {"netloom-api", "netloom-controller", "netloom-agent", "netloom-speaker"}
    assert jobs["netloom-api"]["scheme"] == "https"
