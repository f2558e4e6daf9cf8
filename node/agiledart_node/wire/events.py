"""What a driver tells a `Node`, beside the kernel's and the overlay's events."""

from typing import Any

import msgspec

from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.permissions import Principal
from agiledart_node.wire.commands import Command
from agiledart_recovery.wire.effects import FragmentKey


class ClockRead(Event, frozen=True, gc=False):
    """Wall time at this step, milliseconds since 1970-01-01 UTC. Tell it at the start and about every minute.

    Wall times stand only in what users read; no decision depends on them. A node that was never told leaves them
    out (0).
    """

    wall_ms: int


class BansFound(Event, frozen=True, gc=False):
    """Signed bans that lay on this node's disk."""

    signed_commands: tuple[bytes, ...]


class KeyPresented(Event, frozen=True, gc=False):
    """Somebody with a good chain shows a key that this node does not know. Answered by one `KeyDecision` with the same number.

    Args:
        token: the hash of the invitation's link; `key`: who redeemed it; `role`, `scope`: of the grant.
        allowed, join_before: as the token's maker has signed; 0 where the key does not show that.
        counted_at: wall time of a receipt by somebody who is known here; 0: it has none.
        known: (key, wall time) of those that this node knows to have come by this token: the ring may have forgotten.
    """

    request: int
    token: bytes
    key: bytes
    role: str = "agent"
    scope: str = ""
    allowed: int = 0
    join_before: int = 0
    counted_at: int = 0
    known: tuple[tuple[bytes, int], ...] = ()


class EnableRenewalService(Event, frozen=True, gc=False):
    """This node holds the authority's key, or an admin's, and renews the memberships of others."""


class RenewMembership(Event, frozen=True, gc=False):
    """Have this node's membership renewed; answered by one `MembershipRenewed`. `token`: the record of its token."""

    chain: tuple[bytes, ...]
    token: bytes = b""


class TokenKnown(Event, frozen=True, gc=False):
    """A token was made here: it belongs into the list of all, before anybody has used it."""

    token: bytes
    join_before: int
    allowed: int = 0
    role: str = ""
    scope: str = ""


class UserRequest(Event, frozen=True, gc=False):
    """A control request of a user.

    Answered by any number of `Progressed` and exactly one `Replied` or `RefusedRequest` with the same number.

    Args:
        request: the driver's own number, unique among open requests.
        submitter: who asks, for people.
        asker: what its grant says; nobody, who may nothing, unless told.
        order: the command as its user has signed it.
    """

    request: int
    command: Command
    submitter: str = ""
    principal: Principal = Principal()
    signed_command: bytes = b""


class InstanceReported(Event, frozen=True, gc=False):
    """Figures of a local instance, plain data; replaces the last one. About once a second."""

    application: str
    version: int
    stage: int
    index: int
    report: dict[str, Any]


class InstanceFinished(Event, frozen=True, gc=False):
    """A local instance took END_OF_INPUT on all inputs and passed it on; its last figures."""

    application: str
    version: int
    stage: int
    index: int
    report: dict[str, Any]


class InstanceFailed(Event, frozen=True, gc=False):
    """A local instance can't go on: user code raised, its executor died, its file is gone.

    Args:
        message: for the user, naming step and node.
        is_consequence: only a link to another instance broke; the node waits some seconds for the cause (a dead peer,
            an error elsewhere) before it reports this message.
        is_crash: its executor died; another one may go on.
    """

    application: str
    version: int
    stage: int
    index: int
    message: str
    is_consequence: bool = False
    is_crash: bool = False


class InstancePrepared(Event, frozen=True, gc=False):
    """What a local instance was at the barrier of an epoch is safe on this node's disk.

    Args:
        digest, size: of its element.
        ends: of a sink, the end of each of its parts.
        ended: it has come to its end: this counts for every epoch above the last barrier that it passed.
        term: of its stage.
        after: name of the plan behind the barrier; empty when it carried no change.
        caught_up: its inputs have come as far again as when it was saved that it was restored from.
        gaps: (stage, term, nanoseconds) for which rows to a stage stood still at its last change, as this instance saw it.
        onto: the committed element that this one rests on; empty: it is whole.
        pause_ns: for so long its rows had to wait at once, at the most.
    """

    application: str
    version: int
    stage: int
    index: int
    epoch: int
    digest: bytes
    size: int
    ends: tuple[int, ...] = ()
    ended: bool = False
    generation: int = 1
    after: bytes = b""
    caught_up: bool = True
    changeover_pauses: tuple[tuple[int, int, int], ...] = ()
    onto: bytes = b""
    pause_ns: int = 0


class InstanceUnprepared(Event, frozen=True, gc=False):
    """A local instance could not be saved at an epoch; its rows go on."""

    application: str
    version: int
    stage: int
    index: int
    epoch: int
    reason: str


class StoredFile(msgspec.Struct, frozen=True, gc=False):
    """A file of a run that was on the disk when the agent started; `name` as in `KeepFile`."""

    application: str
    version: int
    name: str
    content: bytes


class RunsFound(Event, frozen=True, gc=False):
    """All files of runs that this node found on its disk, and the fragments that it keeps, each with the host that had it put
    here. Told once, before it enters the ring.

    Args:
        folders: (application, version) of all runs of which something lies here, if only what could not be read.
    """

    files: tuple[StoredFile, ...]
    fragments: tuple[tuple[FragmentKey, NodeId], ...] = ()
    folders: tuple[tuple[str, int], ...] = ()
