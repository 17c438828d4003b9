"""The doctor's section on EVPN: speakers, sessions and EVPNNetworks that do not work.

The checks are in plan/audit/evpn.py, over the objects of all namespaces. A session that does not come up passes through
several states: a finding counts if a second check makes it for the same object, whatever the state is then. Nothing is
repaired: the cause is at the other end of a session, or in a spec.
"""

import time

from netloom.client.http import Client
from netloom.diagnose import snapshot
from netloom.diagnose.doctor.report import SETTLE_SECONDS, Report, Settle, complaint
from netloom.model.kinds.bgp import BGPPeer, BGPSpeaker, EVPNNetwork
from netloom.plan.audit import evpn
from netloom.plan.audit.finding import Check, Finding

ADVICE = {
    Check.SPEAKER_NOT_READY: (
        "Check that `netloom agent` or `netloom speaker` runs on the node that spec.node names, and read its log."
    ),
    Check.PEER_NOT_ESTABLISHED: (
        "Check that the peer answers at spec.address and spec.port from the speaker's node, and that spec.remoteASN,"
        " spec.passwordFrom and spec.ttlSecurity agree with its configuration. On that node, `netloom evpn summary`"
        " shows the session."
    ),
    Check.EVPN_NOT_READY: "Correct the field that it names; `netloom explain evpnnetwork/NAME` shows each condition.",
    Check.DUPLICATE_EVPN_MAC: (
        "Detach the machine at one of the two sites; `netloom evpn explain MAC` on the speaker's node shows both."
    ),
    Check.ORPHANED_VTEP: (
        "The controller and the garbage collector delete it: check that a controller runs (`netloom get leases -A`)."
    ),
}


class EvpnSection:
    """The section."""

    def __init__(self, client: Client, *, settle: Settle = time.sleep) -> None:
        self._client = client
        self._settle = settle
        self._counts: dict[str, int] = {}

    def examine(self) -> Report:
        """Check twice."""
        findings = self._check()
        if findings:
            before = {(one.check, one.unit) for one in findings}
            self._settle(SETTLE_SECONDS)
            findings = [one for one in self._check() if (one.check, one.unit) in before]
        complaints = tuple(complaint(one, ADVICE[one.check]) for one in findings)
        return Report(section="evpn", checked=self._counts, complaints=complaints)

    def _check(self) -> list[Finding]:
        found = snapshot.load(self._client, evpn.KINDS[::-1])  # Owners after what they own.
        self._counts = {
            "speakers": len(snapshot.of_type(found, BGPSpeaker)),
            "peers": len(snapshot.of_type(found, BGPPeer)),
            "EVPNNetworks": len(snapshot.of_type(found, EVPNNetwork)),
        }
        return evpn.audit(found)
