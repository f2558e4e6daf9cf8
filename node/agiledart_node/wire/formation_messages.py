"""Messages that form, watch and end an application (tags 50–89), and what is routed over the ring for it (tags 90–99).

A question carries the asker's own `request` number and is answered by a message with the same number; both may be
lost, so questions are asked again until a deadline and every handler gives a repeated question the same answer.
"""

from typing import Annotated, Any

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart, InstanceAddress
from agiledart_kernel.clocks import WallMs
from agiledart_kernel.codec import Codec
from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_BUNDLE_BYTES, MAX_RECORD_BYTES
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES


class SendJoins(Message, frozen=True, gc=False, tag=50):
    """Scheduler → source node: route a JOIN of this application to each of these sink nodes."""

    request: int
    number: int
    sinks: tuple[Peer, ...]
    scheduler: Peer


class CollectJoins(Message, frozen=True, gc=False, tag=51):
    """Scheduler → sink node: wait for a JOIN of each of these source nodes, then answer with the tree."""

    request: int
    number: int
    sources: tuple[NodeId, ...]


class JoinTree(Message, frozen=True, gc=False, tag=52):
    """Sink node → scheduler: the recorded paths, source first and sink last, and the sources whose JOIN did not
    come."""

    request: int
    paths: tuple[tuple[Peer, ...], ...]
    missing: tuple[NodeId, ...]


class Survey(Message, frozen=True, gc=False, tag=53):
    """What do you run, and how much more could you take? `wants_candidates`: and who could help you out?

    `asked_ms`: this is what my clock shows.
    """

    request: int
    wants_candidates: bool = True
    asked_ms: WallMs = 0


class NodeLoad(Message, frozen=True, gc=False, tag=54):
    """Answer to `Survey`.

    Args:
        operators: instances that it runs or has promised to run.
        applications: names of the applications that they belong to.
        capacity: instances that it takes at the most.
        executors: executor processes that it may start for one application.
        is_draining: it takes nothing: it is about to leave, or (`stays`) was told to.
        candidates: nodes to overflow to: the leaf set, nearest first; empty when the asker wants none.
        neighbours: where to overflow when all of them are full: the neighbourhood set, nearest first.
        schedules: applications that it serves as scheduler; None: it is no scheduler.
        confines: users' code is kept from its keys and records there.
        asked_ms: as in the question; wall_ms: its clock now.
        software: its version of AgileDart; specification: the form of specifications that it knows; empty and 0: it did not say.
        grows_to: executors to which one application may grow there; 0: it did not say.
    """

    request: int
    operators: int
    applications: tuple[str, ...]
    capacity: int
    executors: int
    is_draining: bool
    candidates: tuple[Peer, ...]
    neighbours: tuple[Peer, ...] = ()
    schedules: int | None = None
    confines: bool = True
    asked_ms: WallMs = 0
    wall_ms: WallMs = 0
    software: Annotated[str, msgspec.Meta(max_length=32)] = ""
    specification: Count = 0
    stays: bool = False
    max_executors: Count = 0


class Deploy(Message, frozen=True, gc=False, tag=55):
    """Scheduler → host: start these instances. The bundle is empty when an earlier part brought it."""

    request: int
    part: DeploymentPart


class Deployed(Message, frozen=True, gc=False, tag=56):
    """Host → scheduler: the instances listen at these addresses, or why they do not; `is_full` asks for another
    plan."""

    request: int
    addresses: tuple[InstanceAddress, ...]
    reason: str = ""
    is_full: bool = False


class StartFlow(Message, frozen=True, gc=False, tag=57):
    """Scheduler → every host: the application runs; sources begin to read, hosts begin to watch."""

    request: int
    application: str
    version: int


class Acknowledged(Message, frozen=True, gc=False, tag=58):
    """It was done, or why it was not."""

    request: int
    reason: str = ""


class Halt(Message, frozen=True, gc=False, tag=59):
    """End everything of this run at once; `reason` is why. `number`: the run's; 0: of any run of this version."""

    request: int
    application: str
    version: int
    reason: str
    number: int = 0


class InstancesEnded(Message, frozen=True, gc=False, tag=60):
    """Host → coordinator: these instances took END_OF_INPUT and passed it on; `"stage.index"` → last report, plain
    data.

    Sent again until acknowledged.

    Args:
        life: of the run in which they ended; 0: a release that does not say it.
    """

    request: int
    application: str
    version: int
    reports: dict[str, Any]
    attempt: Count = 0


class Drain(Message, frozen=True, gc=False, tag=61):
    """Coordinator → source nodes: the sources end as if their input had ended."""

    request: int
    application: str
    version: int


class RequestStop(Message, frozen=True, gc=False, tag=62):
    """Any agent → coordinator: drain this application, or cut it with `now`; `order`: what the user has signed."""

    request: int
    application: str
    version: int
    now: bool
    submitter: str = ""
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class QueryReports(Message, frozen=True, gc=False, tag=63):
    """What do your instances of this application report?"""

    request: int
    application: str
    version: int


class Reports(Message, frozen=True, gc=False, tag=64):
    """`"stage.index"` → report, plain data."""

    request: int
    reports: dict[str, Any]


class QueryLogs(Message, frozen=True, gc=False, tag=65):
    """What did user code of this application print at your node after line number `after`?"""

    request: int
    application: str
    after: int


class LogLine(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One line that user code printed or logged.

    Args:
        number: counts the lines of one application at one node, from 1.
        at_ms: wall time, milliseconds since 1970-01-01 UTC.
        step: stage that printed it, `""`: unknown.
    """

    number: int
    at_ms: int
    step: str
    text: str


class LogLines(Message, frozen=True, gc=False, tag=66):
    """Lines in the order of their numbers; more may follow after the last."""

    request: int
    lines: tuple[LogLine, ...]


class TraceHops(Message, frozen=True, gc=False, tag=67):
    """Root of a probed key → asker: the nodes that the probe passed, the asker first, the root last."""

    request: int
    path: tuple[Peer, ...]


class QueryActive(Message, frozen=True, gc=False, tag=68):
    """Are you still at work on this run, as its scheduler or a host? Answered by `Acknowledged`. `number`: as in `Halt`."""

    request: int
    application: str
    version: int
    number: int = 0


class JoinArrived(Message, frozen=True, gc=False, tag=69):
    """Rendezvous → sink node, when JOINs are routed to the hash of the sink's id: the recorded path of a JOIN."""

    number: int
    path: tuple[Peer, ...]


class QueryTap(Message, frozen=True, gc=False, tag=80):
    """What leaves this step of this application at your node? Keeps the tap open for some seconds more.

    Args:
        after: number of the last sampled row that the asker has.
    """

    request: int
    application: str
    version: int
    step: str
    after: int


class TapRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A sampled row.

    Args:
        number: counts the sampled rows of one tap at one node, from 1.
        instance: which parallel copy of the step.
        time_ms: event time, milliseconds since 1970-01-01 UTC.
        row: its JSON text, of bounded length.
    """

    number: int
    instance: int
    time_ms: int | None
    row: str


class TapRows(Message, frozen=True, gc=False, tag=81):
    """Sampled rows in the order of their numbers. `passed` counts all that left the step here since the tap was opened."""

    request: int
    rows: tuple[TapRow, ...]
    passed: int = 0
    refused: str = ""


class Join(Message, frozen=True, gc=False, tag=90):
    """Routed from a source node towards the sink node's id; the overlay records the path. [AgileDART] §IV-A."""

    number: int
    sink: Peer
    source: Peer
    attempt: int = 1


class CheckHost(Message, frozen=True, gc=False, tag=82):
    """Would this run on you? Load the code and try the sources and sinks among these stages; start nothing. `order`: the user's."""

    request: int
    plan: Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]
    bundle: Annotated[bytes, msgspec.Meta(max_length=MAX_BUNDLE_BYTES)]
    stages: tuple[int, ...]
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class ConnectorChecked(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A source or sink that was tried: what it reads or writes, what was found, what becomes of rows after a crash."""

    stage: int
    url: str
    is_good: bool
    text: str
    guarantee: str = ""


class HostChecked(Message, frozen=True, gc=False, tag=83):
    """Answer to `CheckHost`: why the code does not load (empty: it does), and what was found of sources and sinks."""

    request: int
    refusal: str = ""
    connectors: tuple[ConnectorChecked, ...] = ()


class RouteProbe(Message, frozen=True, gc=False, tag=91):
    """Routed towards any key to learn the hops; answered with `TraceHops`."""

    request: int


FormationMessage = (
    SendJoins
    | CollectJoins
    | JoinTree
    | Survey
    | NodeLoad
    | Deploy
    | Deployed
    | StartFlow
    | Acknowledged
    | Halt
    | InstancesEnded
    | Drain
    | RequestStop
    | QueryReports
    | Reports
    | QueryLogs
    | LogLines
    | TraceHops
    | QueryActive
    | JoinArrived
    | QueryTap
    | TapRows
    | CheckHost
    | HostChecked
)

ROUTED_CODEC: Codec[Join | RouteProbe] = Codec(Join | RouteProbe, limit=MAX_RECORD_BYTES)
"""Payloads of routed messages."""
