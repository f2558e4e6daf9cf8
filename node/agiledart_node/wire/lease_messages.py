"""Commands and messages about leased machines: a host's lease, reports of gates, orders of admins to gates. Tags 500 to 509.

A gate is a process beside an agent (`agiledart provision run`); it leases machines. Its reports and a lease's entry are documents
of their own (`agiledart_provisioning.gate`), which nodes store and pass on unread.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Message
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES

MAX_ENTRY_BYTES = 4_096
MAX_REPORT_BYTES = 48_000
MAX_ORDERS = 32

LeaseName = Annotated[str, msgspec.Meta(max_length=128)]
_Text = Annotated[str, msgspec.Meta(max_length=1_024)]
_Signed = Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)]
_Entry = Annotated[bytes, msgspec.Meta(max_length=MAX_ENTRY_BYTES)]


class HostLease(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Lease of a leased node, as this node knows it.

    Args:
        lease_id: lease that its start data named; host_id: of its machine at the provider; empty: unknown.
        gate: gate that it accepts; silent_ms: time since that gate renewed the lease.
        entry: ledger entry that the gate has sent with the last renewal.
        is_empty: it runs nothing and takes no work.
        is_accepted: a gate has renewed it; before that it takes no work.
    """

    lease_id: LeaseName
    host_id: LeaseName = ""
    gate: LeaseName = ""
    silent_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    entry: _Entry = b""
    is_empty: bool = False
    is_accepted: bool = False


class LeaseTerms(msgspec.Struct, frozen=True):
    """Terms of a leased node, from its start data.

    Args:
        unit_ns: billing time unit; grace_ns: a node that no gate has renewed for a unit and this time ends itself.
        silence_ns: silence of its gate after which it accepts another one.
    """

    lease_id: str
    gate: str
    host_id: str = ""
    unit_ns: int = 3_600 * SECOND
    grace_ns: int = 900 * SECOND
    silence_ns: int = 300 * SECOND


class RenewHostLease(Message, frozen=True, gc=False, tag=240):
    """Renew the lease of a leased node, for which its gate asks; another gate adopts the node so when that gate is silent.

    Args:
        node: id of the node; gate: name of the requesting gate; entry: the lease in its ledger.
    """

    node: Annotated[str, msgspec.Meta(max_length=64)]
    lease_id: LeaseName
    gate: LeaseName
    entry: _Entry


class ReportGate(Message, frozen=True, gc=False, tag=241):
    """Report of a gate to the agent beside it: its name, figures and last decisions.

    Args:
        zone: whose leases it opens; report: JSON.
        places: instance places that it may still lease, or has leased and not got yet.
    """

    gate: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    zone: Annotated[str, msgspec.Meta(max_length=64)]
    report: Annotated[bytes, msgspec.Meta(max_length=MAX_REPORT_BYTES)]
    places: Count = 0


class OrderGate(Message, frozen=True, gc=False, tag=242):
    """Order of an admin to gates.

    Args:
        order: pause, resume or release.
        host: lease or node to release; empty: of all gates.
    """

    order: Annotated[str, msgspec.Meta(max_length=16)]
    host: LeaseName = ""


class ShowProvisioning(Message, frozen=True, gc=False, tag=243):
    """Show all gates, their leases and decisions."""


class NoteLease(Message, frozen=True, gc=False, tag=245):
    """Note a decision of a gate in the audit; it changes nothing. `action`: lease, release, adopt or another word of the gate."""

    gate: Annotated[str, msgspec.Meta(max_length=64)]
    action: Annotated[str, msgspec.Meta(max_length=32)]
    lease_id: LeaseName
    why: _Text


class RequestLease(Message, frozen=True, gc=False, tag=500):
    """Agent → leased node: a gate's command to renew its lease. Answered by `LeaseStatus`."""

    request: int
    command: RenewHostLease
    signed_command: _Signed = b""


class LeaseStatus(Message, frozen=True, gc=False, tag=501):
    """Answer to `RequestLease`. `refusal`: why the lease was not renewed; `reason`: a missing permission."""

    request: int
    lease: HostLease | None = None
    refusal: _Text = ""
    reason: Annotated[str, msgspec.Meta(max_length=16)] = ""


class GateReport(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Last report of a gate; `age_ms`: time since; `places`: as in `ReportGate`."""

    gate: LeaseName
    zone: LeaseName
    age_ms: Annotated[int, msgspec.Meta(ge=0)]
    report: Annotated[bytes, msgspec.Meta(max_length=MAX_REPORT_BYTES)]
    places: Count = 0


class QueryGates(Message, frozen=True, gc=False, tag=502):
    """Request for the gates beside an agent. `orders`: an admin's signed order that the receiver passes on to them."""

    request: int
    order: OrderGate | None = None
    signed_command: _Signed = b""


class GateList(Message, frozen=True, gc=False, tag=503):
    """Answer to `QueryGates`.

    Args:
        taken: gates that will get the order. refusal, reason: why it was refused.
        known: other nodes that the answering node knows.
    """

    request: int
    reports: Annotated[tuple[GateReport, ...], msgspec.Meta(max_length=4)] = ()
    taken: Annotated[tuple[LeaseName, ...], msgspec.Meta(max_length=4)] = ()
    refusal: _Text = ""
    reason: Annotated[str, msgspec.Meta(max_length=16)] = ""
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


LeaseMessage = RequestLease | LeaseStatus | QueryGates | GateList
