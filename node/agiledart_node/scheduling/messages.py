"""Messages between nodes about schedulers. Tags 350 to 369.

A request carries the requester's own `request` number. It may come twice and is then answered the same way, as in forming.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_BUNDLE_BYTES, MAX_RECORD_BYTES
from agiledart_kernel.machine import Message
from agiledart_kernel.name_patterns import OptionalApplicationName
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.checkpoint_commands import CheckpointOrigin
from agiledart_node.wire.commands import RequestedParallelism

MAX_ADVERTISEMENTS_PER_MESSAGE = 64
"""Advertisements in one message."""

MAX_VISITED = 64
"""Nodes that one look-up may list as visited or refused."""

MAX_REGISTRATIONS = 256
"""Applications listed in one message; a scheduler serves 50."""

Domain = Annotated[str, msgspec.Meta(max_length=128)]
Nodes = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_VISITED)]


class SchedulerSlot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The `index`-th scheduler slot of a domain (a zone, or the region), held for the `term`-th time.

    The term grows whenever the slot changes hands; of two holders the one with the record's term is valid.
    """

    domain: Domain
    index: Count
    term: Count


class Advertisement(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Advertisement of a scheduler; soft state. Within an incarnation of a node a higher `version` is newer.

    Args:
        scheduler: the node.
        scheduler_slot: the slot that it holds, or held when it `resigned`.
        applications, limit: how many it serves, and how many it accepts.
    """

    scheduler: Peer
    scheduler_slot: SchedulerSlot
    version: Count
    applications: Count
    limit: Count
    resigned: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """Return the rank; of one node's advertisements the newer one has the higher rank."""
        return self.scheduler.incarnation, self.version

    @property
    def has_capacity(self) -> bool:
        """Return whether it would accept one more application."""
        return not self.resigned and self.applications < self.limit


News = Annotated[tuple[Advertisement, ...], msgspec.Meta(max_length=MAX_ADVERTISEMENTS_PER_MESSAGE)]


class SchedulerNews(Message, frozen=True, gc=False, tag=350):
    """Push of advertisements; with `asks` also a pull: the receiver sends back those that are newer or unknown to the sender."""

    advertisements: News
    asks: bool = False


class FindScheduler(Message, frozen=True, gc=False, tag=351):
    """Look-up on its random walk: the first node that knows a scheduler with capacity answers `origin` directly."""

    request: int
    origin: Peer
    domain: Domain
    ttl: Count
    visited: Nodes
    refused: Nodes
    hops: Count = 1


class SchedulerFound(Message, frozen=True, gc=False, tag=352):
    """End of a walk: an advertisement; or none, because no hop or no unvisited node is left."""

    request: int
    hops: Count
    visited: Nodes
    advertisement: Advertisement | None = None


class AskCandidate(Message, frozen=True, gc=False, tag=353):
    """Question whether the receiver could become a scheduler."""

    request: int


class Candidate(Message, frozen=True, gc=False, tag=354):
    """Answer to `AskCandidate`: capacity score, operator instances, and whether it is a scheduler already or must not be one."""

    request: int
    capacity: Count
    load: Count
    is_taken: bool


class RegisterApplication(Message, frozen=True, gc=False, tag=355):
    """Request to serve an application, if the receiver holds this slot and has capacity. Compare-and-set at the scheduler.

    Args:
        application, version: version 0: a submission that has no record yet, known by its `ticket`.
    """

    request: int
    scheduler_slot: SchedulerSlot
    application: OptionalApplicationName
    version: Count
    ticket: Count


class ApplicationRegistered(Message, frozen=True, gc=False, tag=356):
    """Answer to `RegisterApplication`; the advertisement is fresh, None when the receiver holds no scheduler slot.

    Args:
        other: a scheduler of the domain with capacity, if the refusing one knows any.
    """

    request: int
    accepted: bool
    advertisement: Advertisement | None = None
    other: Advertisement | None = None


class ReleaseApplication(Message, frozen=True, gc=False, tag=357):
    """Notice that an application, or the submission with this ticket, needs no scheduler any more. Answered by `Acknowledged`."""

    request: int
    application: OptionalApplicationName
    version: Count
    ticket: Count = 0


class Registration(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One application in a list; its coordinator is None while it is being deployed."""

    application: OptionalApplicationName
    version: Count
    coordinator: Peer | None = None


Registrations = Annotated[tuple[Registration, ...], msgspec.Meta(max_length=MAX_REGISTRATIONS)]


class RenewRegistrations(Message, frozen=True, gc=False, tag=358):
    """Heartbeat from a coordinator to a scheduler: the applications that run and that the scheduler serves."""

    request: int
    registrations: Registrations


class RegistrationsRenewed(Message, frozen=True, gc=False, tag=359):
    """Answer to `RenewRegistrations`: the registrations that the receiver does not serve."""

    request: int
    unknown: Registrations


class HandOverSubmission(Message, frozen=True, gc=False, tag=360):
    """A submission from the agent that a user asked to the scheduler, where it is registered under `ticket`.

    Args:
        submitter: name of the user.
        pinned: nodes of the pinned stages, looked up by the asking agent.
        elapsed_ns: time since the user asked.
        by_epoch, duplicates, saves_less: the requested delivery, `is_saved`, `duplicates` and `saves_less` of `Delivery`.
        principal: the user, as verified by the asking agent.
        signed_command: the user's signed command; it takes precedence over the asking agent's fields.
        origin: the checkpoint that the run begins with, which is on the sender's disk.
        moves, placement: as in `Submit`.
    """

    request: int
    scheduler_slot: SchedulerSlot
    ticket: Count
    name: str
    specification: Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]
    bundle: Annotated[bytes, msgspec.Meta(max_length=MAX_BUNDLE_BYTES)]
    parallelism: dict[str, RequestedParallelism]
    executors: int
    submitter: str
    pinned: tuple[tuple[int, Peer], ...]
    elapsed_ns: Count
    by_epoch: bool = False
    principal: Principal = Principal()
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""
    origin: CheckpointOrigin | None = None
    duplicates: bool = False
    saves_less: bool = False
    moves: Annotated[str, msgspec.Meta(max_length=16)] = ""
    placement: Annotated[str, msgspec.Meta(max_length=96)] = ""


class SubmissionHandedOver(Message, frozen=True, gc=False, tag=361):
    """Answer to `HandOverSubmission`: accepted, or the reason why not."""

    request: int
    reason: str = ""


class AskSubmissionOutcome(Message, frozen=True, gc=False, tag=362):
    """Question about the submission handed over with the request number `of`; answered once its outcome is known."""

    request: int
    of: int


class SubmissionOutcome(Message, frozen=True, gc=False, tag=363):
    """Answer to `AskSubmissionOutcome`: a response in MessagePack, or a refusal for the user; or `unknown`: nothing was handed
    over.
    """

    request: int
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)] = b""
    refusal: str = ""
    exit_code: int = 1
    unknown: bool = False


class SubmissionProgress(Message, frozen=True, gc=False, tag=364):
    """Progress text for the user who waits for the submission handed over with the request number `of`; may be lost."""

    of: int
    text: Annotated[str, msgspec.Meta(max_length=65_536)]


class SchedulerStateCopy(Message, frozen=True, gc=False, tag=365):
    """Copy of a scheduler's state for one of its leaves. Newer versions replace older ones. Answered by `Acknowledged`."""

    request: int
    scheduler_slot: SchedulerSlot
    version: Count
    registrations: Registrations


class FindNewScheduler(Message, frozen=True, gc=False, tag=366):
    """Notice to a coordinator that the scheduler of these applications is gone or has stepped down, so it must find another one.

    Args:
        former: the scheduler that served them.
        successor: the new holder of its slot, if known.
    """

    former: Peer
    registrations: Registrations
    successor: Advertisement | None = None


SchedulingMessage = (
    SchedulerNews
    | FindScheduler
    | SchedulerFound
    | AskCandidate
    | Candidate
    | RegisterApplication
    | ApplicationRegistered
    | ReleaseApplication
    | RenewRegistrations
    | RegistrationsRenewed
    | HandOverSubmission
    | SubmissionHandedOver
    | AskSubmissionOutcome
    | SubmissionOutcome
    | SubmissionProgress
    | SchedulerStateCopy
    | FindNewScheduler
)
