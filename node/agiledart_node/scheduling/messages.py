"""What nodes say to each other about schedulers. Tags 350 to 369.

A question carries the asker's own `request` number, may come twice and is then answered the same way, like all of forming.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_BUNDLE_BYTES, MAX_RECORD_BYTES
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import CheckpointOrigin, RequestedParallelism

MAX_BANS_PER_MESSAGE = 64
"""Advertisements in one message."""

MAX_VISITED = 64
"""Nodes that one look-up may name as visited or refused."""

MAX_REGISTRATIONS = 256
"""Applications named in one message; a scheduler serves 50."""

Domain = Annotated[str, msgspec.Meta(max_length=128)]
Nodes = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_VISITED)]


class SchedulerSlot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A scheduler's place: the `index`-th of its domain (a zone, or the region), held for the `term`-th time.

    The term grows whenever the office changes hands; of two holders the one with the record's term is right.
    """

    domain: Domain
    index: Count
    term: Count


class Advertisement(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a scheduler says of itself; soft state. Within a life of a node a higher `version` is newer.

    Args:
        scheduler: who.
        office: which place it holds, or held when it `resigned`.
        applications, limit: how many it serves, and how many it takes.
    """

    scheduler: Peer
    scheduler_slot: SchedulerSlot
    version: Count
    applications: Count
    limit: Count
    resigned: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """Newer ones of one node have the higher rank."""
        return self.scheduler.incarnation, self.version

    @property
    def has_capacity(self) -> bool:
        """Whether it would take one more."""
        return not self.resigned and self.applications < self.limit


News = Annotated[tuple[Advertisement, ...], msgspec.Meta(max_length=MAX_BANS_PER_MESSAGE)]


class SchedulerNews(Message, frozen=True, gc=False, tag=350):
    """Push, and with `asks` also pull: what I know of schedulers; send back what you know better."""

    advertisements: News
    asks: bool = False


class FindScheduler(Message, frozen=True, gc=False, tag=351):
    """A look-up on its random walk: the first node that knows a scheduler with room answers `origin` directly."""

    request: int
    origin: Peer
    domain: Domain
    ttl: Count
    visited: Nodes
    refused: Nodes
    hops: Count = 1


class SchedulerFound(Message, frozen=True, gc=False, tag=352):
    """The end of a walk: an advertisement, or nothing because its hops are used up or nobody is left to ask."""

    request: int
    hops: Count
    visited: Nodes
    advertisement: Advertisement | None = None


class AskCandidate(Message, frozen=True, gc=False, tag=353):
    """Would you be a good scheduler?"""

    request: int


class Candidate(Message, frozen=True, gc=False, tag=354):
    """Answer to `AskCandidate`: capacity score, operator instances held, and whether it is one already or may not be one."""

    request: int
    capacity: Count
    load: Count
    is_taken: bool


class RegisterApplication(Message, frozen=True, gc=False, tag=355):
    """Serve this application, if you hold this office and have room. Compare and set at the scheduler.

    Args:
        application, version: version 0: a submission that has no record yet, known by its `ticket`.
    """

    request: int
    scheduler_slot: SchedulerSlot
    application: str
    version: Count
    ticket: Count


class ApplicationRegistered(Message, frozen=True, gc=False, tag=356):
    """Answer to `RegisterApplication`; the advertisement is fresh, None when the receiver holds no office.

    Args:
        other: of a scheduler of the domain that has room, as far as one that refuses knows.
    """

    request: int
    accepted: bool
    advertisement: Advertisement | None = None
    other: Advertisement | None = None


class ReleaseApplication(Message, frozen=True, gc=False, tag=357):
    """The application, or the submission with this ticket, needs its scheduler no longer. Answered by `Acknowledged`."""

    request: int
    application: str
    version: Count
    ticket: Count = 0


class Registration(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One application in a list; its coordinator is None while it is being deployed."""

    application: str
    version: Count
    coordinator: Peer | None = None


Registrations = Annotated[tuple[Registration, ...], msgspec.Meta(max_length=MAX_REGISTRATIONS)]


class RenewRegistrations(Message, frozen=True, gc=False, tag=358):
    """Coordinator → scheduler: these run, and you serve them. The heartbeat between the two."""

    request: int
    registrations: Registrations


class RegistrationsRenewed(Message, frozen=True, gc=False, tag=359):
    """Answer to `RenewRegistrations`: the lines that the receiver does not serve."""

    request: int
    unknown: Registrations


class HandOverSubmission(Message, frozen=True, gc=False, tag=360):
    """The agent that a user asked → scheduler: a submission, registered before under `ticket`.

    Args:
        submitted_to: name of the asking agent.
        pinned: nodes of the pinned stages, looked up by the asking agent.
        elapsed_ns: time since the user asked.
        by_epoch, repeats: the delivery that the user wants, `Delivery.is_saved` and `Delivery.repeats`.
        asker: the user, as the asking agent has judged it.
        order: what the user has signed; it counts, not what the asking agent says.
        origin: the checkpoint that it begins with, which lies on the sender.
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


class SubmissionHandedOver(Message, frozen=True, gc=False, tag=361):
    """Answer to `HandOverSubmission`: it is being worked on, or why not."""

    request: int
    reason: str = ""


class AskSubmissionOutcome(Message, frozen=True, gc=False, tag=362):
    """What became of the submission that I handed over with the request number `of`? Answered when it is known."""

    request: int
    of: int


class SubmissionOutcome(Message, frozen=True, gc=False, tag=363):
    """Answer to `AskSubmissionOutcome`: a body in MessagePack, or a refusal for the user; `unknown`: nothing was handed over."""

    request: int
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)] = b""
    refusal: str = ""
    exit_code: int = 1
    unknown: bool = False


class SubmissionProgress(Message, frozen=True, gc=False, tag=364):
    """A line for the user who waits for the submission handed over with the request number `of`; may be lost."""

    of: int
    text: Annotated[str, msgspec.Meta(max_length=65_536)]


class SchedulerStateCopy(Message, frozen=True, gc=False, tag=365):
    """Scheduler → leaf: what I would leave behind. Newer versions replace older ones. Answered by `Acknowledged`."""

    request: int
    scheduler_slot: SchedulerSlot
    version: Count
    registrations: Registrations


class FindNewScheduler(Message, frozen=True, gc=False, tag=366):
    """To a coordinator: the scheduler of these applications is gone or has stepped down; look for another one.

    Args:
        former: who served them.
        successor: who holds the office now, if it is known.
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
