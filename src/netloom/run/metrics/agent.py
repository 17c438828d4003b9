"""The metrics of a node's agent: how long attachments took, what is relevant to the node, and what was done."""

from collections import Counter as Tally
from collections.abc import Mapping

from netloom.control.node.local_ports.lifetimes import Lifetimes
from netloom.run.metrics import runtime
from netloom.run.metrics.exposition import Counter, Families, Gauge, counted, histogram, histograms
from netloom.run.node.agent import Agent

COUNTERS: Mapping[str, str] = {
    "looked": "Reconciles of attachments and Mirrors of this node.",
    "plugged": "Ports that became ready.",
    "unplugged": "Ports that were removed.",
    "statuses": "Statuses of attachments written.",
    "troubles": "Problems on this node that prevented a port.",
    "link_writes": "Changes made to devices, addresses and routes.",
    "switch_transactions": "Transactions on the switch's database.",
    "switch_changes": "Changes written in these transactions, several in each.",
    "switch_refused": "Transactions that the switch's database refused.",
    "documents_applied": "Comparisons of this node with HostDocuments.",
    "documents_changes": "Changes made to this node for HostDocuments.",
    "documents_failed": "HostDocuments that could not be applied or removed, each time.",
    "fabric_bundles": "Bundles of flows sent to the switch.",
    "fabric_puts": "Flows that the switch accepted, new or changed.",
    "fabric_drops": "Flows that the switch deleted.",
    "fabric_compared": "Comparisons of all flows with those read back.",
    "nft_transactions": "Transactions on the node's table of nftables.",
    "nft_elements": "Elements added and deleted in these.",
    "nft_refused": "Transactions that nft refused.",
    "nft_comparisons": "How often the table was read back and compared.",
}
GAUGES: Mapping[str, str] = {
    "fabric_connected": "Whether flows can be written to the switch.",
    "fabric_flows": "Flows of vxlan Networks that the switch has.",
    "fabric_flows_wanted": "Flows of vxlan Networks that it should have.",
    "fabric_flows_refused": "Flows of vxlan Networks that it refused.",
    "cni_open": "Calls of the CNI plugin that are being answered.",
    "remote_vteps": "RemoteVTEPs of vxlan Networks that flows follow from.",
}


def agent(one: Agent) -> Families:
    """Yield an agent's metrics."""
    numbers = one.numbers()
    for name, text in COUNTERS.items():
        yield Counter(f"netloom_agent_{name}", text, value=numbers.get(name, 0))
    for name, text in GAUGES.items():
        yield Gauge(f"netloom_agent_{name}", text, value=numbers.get(name, 0))
    yield from _lifetimes(one.lifetimes)
    yield from _around(one)
    if one.manager is not None:
        yield from runtime.manager(one.manager)


def _lifetimes(lifetimes: Lifetimes) -> Families:
    text = "From the creation of an attachment of this node to a port that works."
    yield histograms("netloom_agent_wish_to_interface_seconds", text, lifetimes.to_interface)
    text = "From the addresses of an attachment of this node to a port that works."
    yield histogram("netloom_agent_address_to_interface_seconds", text, lifetimes.from_address)
    text = "From the creation of an attachment of this node to a status that says that its port works."
    yield histograms("netloom_agent_wish_to_ready_seconds", text, lifetimes.to_ready)
    text = "From the creation of an attachment of another node to flows to it on this one."
    yield histograms("netloom_agent_wish_to_remote_interface_seconds", text, lifetimes.to_remote)
    text = "From the plugging of an attachment of another node to flows to it on this one."
    yield histogram("netloom_agent_interface_to_remote_interface_seconds", text, lifetimes.from_plugged)
    text = "From the time a Network became relevant to this node until all of it was known."
    yield histogram("netloom_agent_relevance_delay_seconds", text, lifetimes.relevance)
    text = "Duration of operations on the switch and on devices."
    yield histograms("netloom_agent_fabric_duration_seconds", text, lifetimes.fabric)
    text = "Duration of programs of attachments."
    yield histograms("netloom_agent_exec_duration_seconds", text, lifetimes.hooks)
    text = "Duration of calls of the CNI plugin, in the agent."
    yield histograms("netloom_agent_cni_duration_seconds", text, lifetimes.cni)


def _around(one: Agent) -> Families:
    """Yield the number of relevant objects."""
    networks = {"relevant": one.lifetimes.networks, "known": one.lifetimes.networks_known}
    yield counted(
        Gauge("netloom_agent_networks", "Networks that are relevant to this node.", labels=["state"]), networks
    )
    own = one.manager.informers if one.manager is not None else ()
    attachments = {"local": sum(len(informer.cache) for informer in own), "remote": one.lifetimes.remotes}
    text = "Attachments known to this agent, by location."
    yield counted(Gauge("netloom_agent_attachments", text, labels=["place"]), attachments)
    others = one.watches.informers() if one.watches is not None else ()
    watches = Tally(informer.kind.plural for informer in (*own, *others))
    yield counted(Gauge("netloom_agent_watches", "Open watches of this agent.", labels=["resource"]), watches)
