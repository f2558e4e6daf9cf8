"""Messages that form, watch and end an application (tags 50–89), and payloads routed over the ring for it (tags 90–99).

A question carries the requester's own `request` number and is answered by a message with the same number. Both may be lost, so the
requester repeats a question until a deadline, and every handler gives a repeated question the same answer.
"""

from typing import Annotated, Any

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart, InstanceAddress
from agiledart_kernel.clocks import WallMs
from agiledart_kernel.codec import Codec
from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.counts import Count
from agiledart_kernel.labels import MAX_LABEL, MAX_LABELS
from agiledart_kernel.limits import MAX_BUNDLE_BYTES, MAX_RECORD_BYTES
from agiledart_kernel.machine import Message
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.lease_messages import HostLease


class SendJoins(Message, frozen=True, gc=False, tag=50):
    """Scheduler → source node: route a JOIN of this application to each of these sink nodes."""

    request: int
    number: int
    sinks: tuple[Peer, ...]
    scheduler: Peer


class CollectJoins(Message, frozen=True, gc=False, tag=51):
    """Scheduler → sink node: wait for a JOIN of each of these source nodes, then answer with the tree.

    Args:
        are_new: wait for JOINs that come from now on, also where one is recorded already.
    """

    request: int
    number: int
    sources: tuple[NodeId, ...]
    are_new: bool = False


class JoinTree(Message, frozen=True, gc=False, tag=52):
    """Sink node → scheduler: the recorded paths, source first and sink last, and the sources whose JOIN is missing."""

    request: int
    paths: tuple[tuple[Peer, ...], ...]
    missing: tuple[NodeId, ...]


class Survey(Message, frozen=True, gc=False, tag=53):
    """Request for the receiver's load and free capacity. `wants_candidates`: also for nodes to overflow to.

    `asked_ms`: wall clock of the sender. `wants_round_trips`: also for the round trips that the receiver has measured.
    """

    request: int
    wants_candidates: bool = True
    asked_ms: WallMs = 0
    wants_round_trips: bool = False


MAX_ROUND_TRIPS = 32
"""Round trips in one `NodeLoad`."""

NodeLabel = Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]


class RoundTrip(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Smoothed round trip to a node, measured by the sender, microseconds."""

    node: NodeId
    rtt_us: Count


class NodeLoad(Message, frozen=True, gc=False, tag=54):
    """Answer to `Survey`.

    Args:
        operators: instances that the node runs or has promised to run.
        applications: names of the applications that they belong to.
        capacity: largest number of instances that it takes.
        executors: executor processes that it may start for one application.
        is_draining: it takes no work: it is about to leave, or (`stays`) a user drained it.
        candidates: nodes to overflow to: the leaf set, nearest first; empty unless requested.
        neighbours: nodes to overflow to when all candidates are full: the neighbourhood set, nearest first.
        schedules: applications that it serves as scheduler; None: it is no scheduler.
        confines: it keeps users' code away from its keys and records.
        asked_ms: as in the question; wall_ms: its clock now.
        software: its version of AgileDart; specification: the form of specifications that it knows; empty and 0: not reported.
        max_executors: executors to which one application may grow there; 0: not reported.
        cores: processor cores that its instances share; 0: not reported.
        labels: names of its abilities, which its user gave it, such as `gpu`.
        speed_permille: speed of one core, 1000 is the reference; 0: not measured.
        busy_permille: share of its machine's processor time in use; None: not measured.
        free_memory_mb: memory that its machine can still give; None: not measured.
        coordinate: its place in the space of latencies; None: not reported.
        round_trips: the shortest ones that it has measured; empty unless requested.
        lease: of its machine, when a gate has leased it.
        exposes_python: users' code can change the Python that its agent runs next.
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
    cores: Count = 0
    labels: Annotated[tuple[NodeLabel, ...], msgspec.Meta(max_length=MAX_LABELS)] = ()
    speed_permille: Count = 0
    busy_permille: Count | None = None
    free_memory_mb: Count | None = None
    coordinate: Coordinate | None = None
    round_trips: Annotated[tuple[RoundTrip, ...], msgspec.Meta(max_length=MAX_ROUND_TRIPS)] = ()
    lease: HostLease | None = None
    exposes_python: bool = False


class Deploy(Message, frozen=True, gc=False, tag=55):
    """Scheduler → host: start these instances. The bundle is empty when an earlier part brought it."""

    request: int
    part: DeploymentPart


class Deployed(Message, frozen=True, gc=False, tag=56):
    """Host → scheduler: the data addresses of the instances, or why they did not start; `is_full` asks for another plan."""

    request: int
    addresses: tuple[InstanceAddress, ...]
    reason: str = ""
    is_full: bool = False


class StartFlow(Message, frozen=True, gc=False, tag=57):
    """Scheduler → every host: the application runs; sources begin to read, hosts begin to watch."""

    request: int
    application: ApplicationName
    version: int


class Acknowledged(Message, frozen=True, gc=False, tag=58):
    """The request succeeded, or the reason why it failed."""

    request: int
    reason: str = ""


class Halt(Message, frozen=True, gc=False, tag=59):
    """End every part of this run at once; `reason` is why. `number`: the run's; 0: of any run of this version."""

    request: int
    application: ApplicationName
    version: int
    reason: str
    number: int = 0


class InstancesEnded(Message, frozen=True, gc=False, tag=60):
    """Host → coordinator: these instances received END_OF_INPUT and passed it on; `"stage.index"` → last report, plain data.

    Sent again until acknowledged.

    Args:
        attempt: of the run in which they ended; 0: a release without this field.
    """

    request: int
    application: ApplicationName
    version: int
    reports: dict[str, Any]
    attempt: Count = 0


class Drain(Message, frozen=True, gc=False, tag=61):
    """Coordinator → source nodes: end the sources as if their input had ended."""

    request: int
    application: ApplicationName
    version: int


class RequestStop(Message, frozen=True, gc=False, tag=62):
    """Any agent → coordinator: drain this application, or cut it with `now`; `signed_command`: the user's."""

    request: int
    application: ApplicationName
    version: int
    now: bool
    submitter: str = ""
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class QueryReports(Message, frozen=True, gc=False, tag=63):
    """Request for the reports of the receiver's instances of this application."""

    request: int
    application: ApplicationName
    version: int


class Reports(Message, frozen=True, gc=False, tag=64):
    """Reports of instances: `"stage.index"` → report, plain data."""

    request: int
    reports: dict[str, Any]


class QueryLogs(Message, frozen=True, gc=False, tag=65):
    """Request for the output of this application's user code on the receiver after line number `after`."""

    request: int
    application: ApplicationName
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
    """Root of a probed key → requester: the nodes that the probe passed, the requester first, the root last."""

    request: int
    path: tuple[Peer, ...]


class QueryActive(Message, frozen=True, gc=False, tag=68):
    """Request to a scheduler or host: does it still work on this run? Answered by `Acknowledged`. `number`: as in `Halt`."""

    request: int
    application: ApplicationName
    version: int
    number: int = 0


class JoinArrived(Message, frozen=True, gc=False, tag=69):
    """Rendezvous → sink node, when JOINs are routed to the hash of the sink's id: the recorded path of a JOIN."""

    number: int
    path: tuple[Peer, ...]


class ApplicationForgotten(Message, frozen=True, gc=False, tag=70):
    """Any agent → hosts and guards of an ended application: its record in the ring is forgotten, so forget the one on the disk.

    The receiver reads the ring's record itself, and answers `Acknowledged`.
    """

    request: int
    application: ApplicationName


class QueryTap(Message, frozen=True, gc=False, tag=80):
    """Request for sampled rows that leave this step of this application on the receiver. Keeps the tap open for some seconds more.

    Args:
        after: number of the last sampled row that the requester has.
        signed_command: the user's, which the receiver verifies.
    """

    request: int
    application: ApplicationName
    version: int
    step: str
    after: int
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class TapRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A sampled row.

    Args:
        number: counts the sampled rows of one tap at one node, from 1.
        instance: index of the parallel instance of the step.
        time_ms: event time, milliseconds since 1970-01-01 UTC.
        row: its JSON text, of bounded length.
    """

    number: int
    instance: int
    time_ms: int | None
    row: str


class TapRows(Message, frozen=True, gc=False, tag=81):
    """Sampled rows in the order of their numbers. `passed`: rows that left the step here since the tap was opened."""

    request: int
    rows: tuple[TapRow, ...]
    passed: int = 0
    refused: str = ""


class Join(Message, frozen=True, gc=False, tag=90):
    """Payload routed from a source node to the sink node's id; the overlay records the path. [AgileDART] §IV-A."""

    number: int
    sink: Peer
    source: Peer
    attempt: int = 1


class CheckHost(Message, frozen=True, gc=False, tag=82):
    """Request to test an application on the receiver: load the code, test the sources and sinks among these stages, start nothing.

    `signed_command`: the user's.
    """

    request: int
    plan: Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]
    bundle: Annotated[bytes, msgspec.Meta(max_length=MAX_BUNDLE_BYTES)]
    stages: tuple[int, ...]
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class ConnectorChecked(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A tested source or sink: its URL, the result, and the fate of rows after a crash."""

    stage: int
    url: str
    is_good: bool
    text: str
    guarantee: str = ""


class HostChecked(Message, frozen=True, gc=False, tag=83):
    """Answer to `CheckHost`: why the code does not load (empty: it does), and the results for sources and sinks."""

    request: int
    refusal: str = ""
    connectors: tuple[ConnectorChecked, ...] = ()


class RouteProbe(Message, frozen=True, gc=False, tag=91):
    """Payload routed towards any key to learn the hops; answered with `TraceHops`."""

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
    | ApplicationForgotten
    | QueryTap
    | TapRows
    | CheckHost
    | HostChecked
)

ROUTED_CODEC: Codec[Join | RouteProbe] = Codec(Join | RouteProbe, limit=MAX_RECORD_BYTES)
"""Codec of the payloads of routed messages."""
