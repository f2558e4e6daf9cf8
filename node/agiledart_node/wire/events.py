"""Events from a driver to its `Node`, beside those of the kernel and the overlay."""

from typing import Any

import msgspec

from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.permissions import Principal
from agiledart_node.wire.commands import Command
from agiledart_recovery.wire.effects import FragmentKey


class ClockRead(Event, frozen=True, gc=False):
    """Wall time at this step, milliseconds since 1970-01-01 UTC. The driver sends it at the start and about every minute.

    Wall times decide only on what people sign: expiry of tokens and validity of bans. No protocol timeout depends on them. A node
    without one leaves them out (0).
    """

    wall_ms: int


class EndedRecordsFound(Event, frozen=True, gc=False):
    """Records of ended applications that an earlier process of this node has kept, encoded."""

    records: tuple[bytes, ...]


class BansFound(Event, frozen=True, gc=False):
    """Signed bans found on this node's disk."""

    signed_commands: tuple[bytes, ...]


class KeyPresented(Event, frozen=True, gc=False):
    """A peer with a valid chain presents a key that this node does not know. Answered by one `KeyDecision` with the same number.

    Args:
        token: hash of the invitation's link; `key`: the joining key; `role`, `scope`: of the grant.
        allowed, join_before: as the token's maker has signed; 0 where the key does not show that.
        counted_at: wall time of a receipt from a node that is known here; 0: it has none.
        known: (key, wall time) of the keys that this node saw join with this token: the ring may have lost them.
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
    """Notice that this node holds the authority's key or an admin's, and renews the memberships of others."""


class RenewMembership(Event, frozen=True, gc=False):
    """Request to renew a membership; answered by one `MembershipRenewed` with the same number.

    Args:
        chain: this node's, or its operator's.
        token: the record of this node's token.
        host: this node's chain, when `chain` is its operator's.
    """

    request: int
    chain: tuple[bytes, ...]
    token: bytes = b""
    host: tuple[bytes, ...] = ()


class TokenKnown(Event, frozen=True, gc=False):
    """A token was created here; it belongs on the list of tokens before its first use."""

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
        submitter: requester, for people.
        principal: the requester as verified from its grant. The default has no permissions.
        signed_command: the command as signed by its user.
    """

    request: int
    command: Command
    submitter: str = ""
    principal: Principal = Principal()
    signed_command: bytes = b""


class InstanceReported(Event, frozen=True, gc=False):
    """Measurements of a local instance, plain data; they replace the previous ones. About once a second."""

    application: str
    version: int
    stage: int
    index: int
    report: dict[str, Any]


class UserCallPending(Event, frozen=True, gc=False):
    """User code of a local executor has not returned, so its instances report nothing. About once a second.

    Attributes:
        instances: (stage, index) of all instances of the executor.
        step, place: step and place of the code; empty where unknown.
        seconds: since the code was called.
    """

    application: str
    version: int
    instances: tuple[tuple[int, int], ...]
    step: str
    place: str
    seconds: int


class InstanceFinished(Event, frozen=True, gc=False):
    """A local instance received END_OF_INPUT on all inputs and passed it on; its last measurements."""

    application: str
    version: int
    stage: int
    index: int
    report: dict[str, Any]


class InstanceFailed(Event, frozen=True, gc=False):
    """A local instance cannot continue: user code raised, its executor died, or its file is missing.

    Args:
        message: for the user, naming step and node.
        is_consequence: only a link to another instance broke; the node waits some seconds for the cause (a dead peer,
            an error elsewhere) before it reports this message.
        is_crash: its executor died; a new one may continue.
    """

    application: str
    version: int
    stage: int
    index: int
    message: str
    is_consequence: bool = False
    is_crash: bool = False


class InstancePrepared(Event, frozen=True, gc=False):
    """The task snapshot of a local instance at the barrier of an epoch is safe on this node's disk.

    Args:
        digest, size: of the snapshot.
        ends: of a sink, the end of each of its parts.
        ended: the instance has ended: this snapshot is valid for every epoch after the last barrier that it passed.
        generation: of its stage.
        after: name of the plan after the barrier; empty when it carried no change.
        caught_up: all rows that it had released beyond the restored barrier have come again.
        changeover_pauses: (stage, generation, nanoseconds) that rows to a stage paused at its last change, measured here.
        onto: the committed snapshot that this one builds on; empty: it is full.
        pause_ns: longest pause of its rows for the snapshot.
        content: all of the snapshot, where it is on no disk and the register is to hold it.
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
    content: bytes = b""


class InstanceUnprepared(Event, frozen=True, gc=False):
    """A local instance could not be saved at an epoch; its rows continue."""

    application: str
    version: int
    stage: int
    index: int
    epoch: int
    reason: str


class StoredFile(msgspec.Struct, frozen=True, gc=False):
    """A file of a run found on the disk when the agent started; `name` as in `KeepFile`."""

    application: str
    version: int
    name: str
    content: bytes


class RunsFound(Event, frozen=True, gc=False):
    """All files of runs found on this node's disk, and the fragments that it stores, each with the host that sent it.

    Sent once, before the node enters the ring.

    Args:
        folders: (application, version) of all runs with any file on the disk, even an unreadable one.
    """

    files: tuple[StoredFile, ...]
    fragments: tuple[tuple[FragmentKey, NodeId], ...] = ()
    folders: tuple[tuple[str, int], ...] = ()
