"""Events and effects of a gate."""

from enum import Enum

import msgspec

from agiledart_kernel.machine import Effect, Event
from agiledart_provisioning.gate.lease_entry import LeaseEntry


class CallFailure(Enum):
    """Kind of a failed call; the value is its written form."""

    LOST = "lost"
    QUOTA = "quota"
    PAYMENT = "payment refused"
    REFUSED = "refused"


class ProviderHost(msgspec.Struct, frozen=True, gc=False):
    """Host as its provider lists it.

    Args:
        host_id: the provider's id; host_name: the name that was asked for.
        created_ns: wall-clock nanoseconds.
    """

    host_id: str
    host_name: str
    created_ns: int


class NodeSeen(msgspec.Struct, frozen=True, gc=False):
    """A node of the ring, as an agent reports it.

    Args:
        node: name of the node.
        instances, capacity: that run there, and that it takes.
        lease_id: lease that the node shows; empty: it belongs to the user.
        token_lease: lease whose token it joined with.
        gate: gate that has renewed it last; renewed_ns: when.
        is_empty: drained: it runs nothing and accepts nothing.
        busy: shares of its processor time in use, the oldest sample first.
        host_id: id that its machine has at its provider; empty: unknown.
    """

    node: str
    instances: int = 0
    capacity: int = 8
    lease_id: str = ""
    token_lease: str = ""
    gate: str = ""
    renewed_ns: int = 0
    is_empty: bool = False
    busy: tuple[float, ...] = ()
    host_id: str = ""


class StageSeen(msgspec.Struct, frozen=True, gc=False):
    """A stage that may have several numbers of instances.

    Args:
        name: application and stage, `APP/STAGE`.
        slo_ms: time that a row may take in it. duration_ms: time that one takes now; None: not measured.
        durations_ms: the last ones, oldest first. queue: rows that wait for it.
        parallelism, low, high: its instances, and the limits of their number.
        instances: by name of their node.
        keeps_number: it does not scale by itself.
    """

    name: str
    slo_ms: float
    duration_ms: float | None
    durations_ms: tuple[float, ...]
    queue: float
    parallelism: int
    low: int
    high: int
    instances: dict[str, int]
    keeps_number: bool


class LedgerRead(Event, frozen=True, gc=False):
    """The gate starts, with the ledger of its disk."""

    entries: tuple[LeaseEntry, ...] = ()


class ViewSeen(Event, frozen=True, gc=False):
    """State of the network, as far as this gate sees it.

    Args:
        nodes: that answer.
        waiting: reasons why work waits for capacity.
        leads: this gate holds the scheduler slot `provisioner`, so it may open leases.
        live_gates: gates that answer.
        records: leases of other gates, from the ring.
        stages: that the policy scales; empty for `hosts`.
    """

    nodes: tuple[NodeSeen, ...]
    waiting: tuple[str, ...] = ()
    leads: bool = True
    live_gates: frozenset[str] = frozenset()
    records: tuple[LeaseEntry, ...] = ()
    stages: tuple[StageSeen, ...] = ()


class LeaseAnswered(Event, frozen=True, gc=False):
    """The provider has made the host."""

    lease_id: str
    host: ProviderHost


class LeaseCallFailed(Event, frozen=True, gc=False):
    """The call has failed, or its answer is lost."""

    lease_id: str
    failure: CallFailure
    reason: str


class ReleaseAnswered(Event, frozen=True, gc=False):
    """The provider has ended a host."""

    host_id: str


class HostsListed(Event, frozen=True, gc=False):
    """Answer to `ListHosts`: hosts whose name begins with the network's prefix."""

    asked_ns: int
    hosts: tuple[ProviderHost, ...]


class ListFailed(Event, frozen=True, gc=False):
    """The list could not be had."""

    reason: str


class DrainRefused(Event, frozen=True, gc=False):
    """A node can't be emptied now."""

    lease_id: str
    reason: str


class HostAdopted(Event, frozen=True, gc=False):
    """A host accepts this gate; from now on it refuses the gate of before.

    Args:
        entry: the lease as the host knows it.
    """

    entry: LeaseEntry


class SetPaused(Event, frozen=True, gc=False):
    """An admin pauses or resumes: a paused gate opens no lease, and goes on with the others."""

    is_paused: bool


class ReleaseWanted(Event, frozen=True, gc=False):
    """An admin wants a host released; empty: all of them. They are drained at once, outside of the window too."""

    lease_id: str = ""


class WriteEntry(Effect, frozen=True, gc=False):
    """Write an entry durably. Then `Completed(request)`, or `Failed`.

    Args:
        is_public: the entry is also the lease's record on the ring. The entry of a lease that another gate has adopted is not:
            it would end that gate's record, and the host could not be adopted a second time.
    """

    request: int
    entry: LeaseEntry
    is_public: bool = True


class LeaseHost(Effect, frozen=True, gc=False):
    """Ask the provider for a host. The driver makes the lease's one-use token, once for all calls of the lease."""

    lease_id: str
    host_name: str
    offer: str


class ListHosts(Effect, frozen=True, gc=False):
    """Ask the provider for its hosts."""

    asked_ns: int


class ReleaseHost(Effect, frozen=True, gc=False):
    """Ask the provider to end a host. The list says whether it has ended."""

    lease_id: str
    host_id: str


class DrainLeased(Effect, frozen=True, gc=False):
    """Empty a node, by the admin's command; `undo`: it accepts work again."""

    lease_id: str
    node: str
    undo: bool = False


class RenewHost(Effect, frozen=True, gc=False):
    """Renew a host's lease; without it the host ends itself. A host takes no work before its gate has renewed it first.

    So a host that joins out of its gate's sight stays empty, and its gate may end it.
    """

    lease_id: str
    node: str


class BanNode(Effect, frozen=True, gc=False):
    """Ban a node that used a lease's token and shows another lease."""

    node: str
    reason: str


class AdoptHost(Effect, frozen=True, gc=False):
    """Ask a host whose gate is gone whether it accepts this gate."""

    lease_id: str
    node: str


class ScaleStageTo(Effect, frozen=True, gc=False):
    """Give a stage, `APP/STAGE`, a number of instances. `is_first`: it has this number, and no longer scales by itself."""

    name: str
    number: int
    why: str
    is_first: bool = False


class Decision(Effect, frozen=True, gc=False):
    """Record a decision and its reason, for the audit and for users."""

    action: str
    lease_id: str
    why: str
