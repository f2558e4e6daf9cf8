"""Messages between an agent and its executor over their socket pair: control and statistics, never tuples.

Both ends are one program on one node, so these messages carry no version. The codec still validates each message.
"""

from typing import Annotated, Any

import msgspec

from agiledart_connectors.credentials import ProvisionedSecrets
from agiledart_dataflow.plan.deployment import RestoreFrom, SnapshotChain
from agiledart_executor.user_code.bounds import Bounds
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.protocol import StoredBatch
from agiledart_transport.tls_contexts import TlsCredentials


class InstanceName(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Name of an instance: stage, index of the parallel copy, generation of the stage's assignment."""

    stage: int
    index: int
    generation: int = 1


class Configure(Message, frozen=True, gc=False, tag=100):
    """First message of the agent: the identity of the executor and its limits.

    Args:
        application: name; `version` and `number` distinguish its runs.
        credentials: TLS leaf with its key and the network's CA, made by the agent.
        chain: grants from the network's authority down to this executor's key.
        node_id: ring position of the executor's key, under which its data links are dialled.
        host: address on which the executor listens, when it has a port of its own.
        agent_address: HOST:PORT at which others dial the agent; the host is the executor's, too.
        latency_log_bytes, latency_log_days: how many latencies sampled at a sink to keep, by size and age; 0 bytes keep none.
        bounds: on user code's time and memory.
        home: the agent's own node, whose sinks run in this process.
        closed: files and folders that user code must not touch, the state directory among them; empty: no confinement.
        path_timeout: seconds without a working path to another executor after which the run fails.
        secrets: of connectors, provisioned to the node by this run's user.
        proxy: HOST:PORT of an HTTP proxy that leads to other networks; empty: none.
    """

    application: str
    version: int
    number: int
    credentials: TlsCredentials
    chain: tuple[bytes, ...]
    node_id: NodeId
    incarnation: int
    node_name: str
    host: str
    agent_address: str
    latency_log_bytes: int = 0
    latency_log_days: int = 0
    bounds: Bounds = Bounds()
    home: NodeId = NodeId(0)
    closed: tuple[str, ...] = ()
    path_timeout: int = 60
    secrets: ProvisionedSecrets = ProvisionedSecrets()
    proxy: str = ""


class ShareProcess(Message, frozen=True, gc=False, tag=137):
    """First message of the agent to a process that applications of one owner are going to share.

    The answer is `RequestCompleted` or `RequestFailed` with the request 0, once the process is confined: only then may folders be
    moved. Their executor programs follow through the pair for connections. Each comes with three descriptors: its end of a socket
    pair to the agent, its end of a pair for connections, and its output.

    Args:
        root: the agent's state directory.
        folder: working directory of the process.
        bounds: on user code's time, and on the memory of the whole process.
        closed: as in `Configure`.
        own: folders inside them that the owner's applications may use.
    """

    root: str
    folder: str
    bounds: Bounds
    closed: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


class Launch(Message, frozen=True, gc=False, tag=101):
    """Command to make these instances ready. `part` is the wire form of a `DeploymentPart`.

    Args:
        since: checkpoint from which the instances restore; their targets then follow in `LinkOutputs`. None: a fresh start.
        waits: the instances belong to the next generation; they start when the previous generation has handed over.
        plan_name: of the part's plan, as barriers name it.
        has_own_port: an agent of another version does not know the way through this agent's port, so the executor listens.
    """

    request: int
    part: bytes
    instances: tuple[InstanceName, ...]
    since: RestoreFrom | None = None
    waits: bool = False
    plan_name: bytes = b""
    has_own_port: bool = False


class PrepareStandby(Message, frozen=True, gc=False, tag=140):
    """Command to load the code now, and to build the state of instances that this process takes over in the next attempt.

    It comes again with each committed epoch. The answer is `RequestCompleted` or `RequestFailed`.

    Args:
        part: deployment part as it would be in that attempt, in wire form.
        instances: those that wait here with their state.
        snapshots: their committed snapshots, which are on this node's disk.
    """

    request: int
    part: bytes
    instances: tuple[InstanceName, ...]
    snapshots: tuple[SnapshotChain, ...]


class OpenGenerationChannels(Message, frozen=True, gc=False, tag=130):
    """Command to make links and channels ready for a plan that a later barrier may bring.

    The answer is `RequestCompleted` or `RequestFailed`.

    Args:
        part: deployment part with that plan and all its places.
        addresses: where each instance listens that an instance may send to.
    """

    request: int
    part: bytes
    plan_name: bytes
    addresses: tuple[tuple[InstanceName, str], ...]


class DropPendingPlan(Message, frozen=True, gc=False, tag=131):
    """Notice that the plan with this name will not come: everything that waits for it is dropped."""

    plan_name: bytes


class PreviousStateStored(Message, frozen=True, gc=False, tag=132):
    """Notice that the final snapshot of an instance of the previous generation is on this node's disk.

    Args:
        epoch: of the barrier of the change.
        origin: the instance that the snapshot was taken of.
        after: name of the plan behind the barrier.
        digest: of the snapshot.
        before: digests of the snapshots that it builds on, the full snapshot first.
    """

    epoch: int
    origin: InstanceName
    after: bytes
    digest: bytes
    before: tuple[bytes, ...] = ()


class PreloadSnapshots(Message, frozen=True, gc=False, tag=134):
    """Command to preload committed snapshots of the previous generation, which are on this node's disk.

    Waiting instances build the state of their key groups from them. The answer is `RequestCompleted` or `RequestFailed`.
    """

    request: int
    plan_name: bytes
    snapshots: tuple[SnapshotChain, ...]


class LinkOutputs(Message, frozen=True, gc=False, tag=107):
    """Addresses of the targets of restored instances. The answer is `RequestCompleted` or `RequestFailed`."""

    request: int
    addresses: tuple[tuple[InstanceName, str], ...]


class StartReading(Message, frozen=True, gc=False, tag=102):
    """Notice that all instances are linked: the sources may read."""


class EndInput(Message, frozen=True, gc=False, tag=103):
    """Command to drain: the sources act as if their input had ended here."""


class BeginEpoch(Message, frozen=True, gc=False, tag=105):
    """Command to the sources: send the barrier of this epoch, behind all rows that they have sent.

    Args:
        before, after: names of the plans before and behind a barrier that carries a change. A source that follows another plan
            ignores the command.
        holds: sources read nothing more behind this barrier.
    """

    epoch: int
    before: bytes = b""
    after: bytes = b""
    holds: bool = False


class NotifyEpochCommitted(Message, frozen=True, gc=False, tag=106):
    """Notice that this epoch is committed in the run's register: sinks commit its rows."""

    epoch: int


class ForceSourceLogs(Message, frozen=True, gc=False, tag=123):
    """Command to fsync the logs of the sources. The answer is `RequestCompleted` (without an address) or `RequestFailed`."""

    request: int


class PeerVerdict(Message, frozen=True, gc=False, tag=104):
    """Answer of the agent to `VerifyPeer`: the wire form of a `PeerInfo`, or the reason of a refusal."""

    request: int
    peer: bytes = b""
    refused: str = ""


class OpenTap(Message, frozen=True, gc=False, tag=108):
    """Command to sample the rows that leave this step for a few more seconds, while a user watches them."""

    step: str


class RequestCompleted(Message, frozen=True, gc=False, tag=110):
    """Answer: the request is done. After a `Launch` the instances are ready, and `address` accepts data links."""

    request: int
    address: str


class RequestFailed(Message, frozen=True, gc=False, tag=111):
    """Answer: the request failed, for example the instances of a `Launch` cannot run. `message` is written for users.

    Args:
        needs_own_process: the application cannot share a process with others; in one of its own the request may succeed.
    """

    request: int
    message: str
    needs_own_process: bool = False


class ProgramEnded(Message, frozen=True, gc=False, tag=138):
    """Notice of a shared process: the executor program with this number has ended and released what it had."""

    number: int


class CodeLoading(Message, frozen=True, gc=False, tag=139):
    """Notice that user code is about to be loaded. `mark`: stands in the names of its files in stack dumps."""

    mark: str


class InstanceReports(Message, frozen=True, gc=False, tag=112):
    """Figures of the instances, by (stage, index); also the executor's heartbeat."""

    reports: tuple[tuple[InstanceName, dict[str, Any]], ...]


class Finished(Message, frozen=True, gc=False, tag=113):
    """Notice that an instance reached the end of its input and delivered all of its output."""

    instance: InstanceName
    report: dict[str, Any]


class InstanceHandedOver(Message, frozen=True, gc=False, tag=133):
    """Notice that an instance of an ended generation is gone; its successors continue its counts."""

    instance: InstanceName


class InstanceFailure(Message, frozen=True, gc=False, tag=114):
    """Notice that an instance cannot go on: user code raised, a link to a neighbour broke, or a disk is full.

    Args:
        is_consequence: only a link broke; another executor will usually report the cause.
        is_crash: a restart of the run helps. The whole process died (the agent then reports each of its instances), a change of
            the stage cannot go on, or its sink has lost written rows.
    """

    instance: InstanceName
    message: str
    is_consequence: bool = False
    is_crash: bool = False


class VerifyPeer(Message, frozen=True, gc=False, tag=115):
    """Request to verify a peer's identity. The executor has no cryptography library; its agent has.

    Args:
        certificate: the peer's TLS leaf, DER.
        hello: body of its HELLO frame.
        service, serves: as for `PeerVerifier.verify`.
    """

    request: int
    certificate: bytes
    hello: bytes
    service: str
    serves: bool


class FindRelays(Message, frozen=True, gc=False, tag=122):
    """Request for relays through which a circuit to an executor can be opened.

    Args:
        agent: node on which the executor runs.
        executor: its own id.
        most: highest number of relays in the answer; 0: the question is only whether the node's address may be dialled.
        avoid: names of nodes that already relay a circuit to it.
        by: names of the only nodes that may relay; empty: any node.
        doubted: names of nodes whose circuit took more than twice the cost that they had claimed.
        direct: HOST:PORT of the executor's agent, where the direct path leads there; empty: the executor has its own port.
        with_hops: answer with the next hops, and keep their costs.
    """

    request: int
    agent: NodeId
    executor: NodeId
    most: int = 1
    avoid: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    doubted: tuple[str, ...] = ()
    direct: str = ""
    with_hops: bool = False


class OpenPair(Message, frozen=True, gc=False, tag=141):
    """Request for a socket pair to another executor of the same run on this node.

    The end comes with a `HandedPair` through the socket for connections, or the answer is `PairRefused`.

    Args:
        executor: its own id.
    """

    request: Annotated[int, msgspec.Meta(ge=1)]
    executor: NodeId


class PairRefused(Message, frozen=True, gc=False, tag=142):
    """Answer to `OpenPair`: the agent gives no pair. The executor dials as it would dial another node."""

    request: int


class HopFigures(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A neighbour of the agent as the next hop to another agent.

    Args:
        name: of the neighbour; is_relay: false: it is the target itself.
        omega: least plausible cost of the link in slots of 5 ms; attempts: slots on record, as they count now.
        to_go: cost to go from there, as it announced. Both are at most `COST_MOST`, which means none.
        reason: `chosen`, or why not: `dearer`, `visited`, `not allowed`, `no path` or `no link`.
        relays: further relays of the last circuit through it.
    """

    name: str
    is_relay: bool
    omega: float
    attempts: float
    to_go: float
    reason: str
    relays: tuple[str, ...] = ()


class RelayOffer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A relay on offer: its address, ticket and name, and the claimed cost of the whole circuit in slots."""

    host: str
    port: int
    ticket: bytes
    name: str
    cost: int


class CredentialsRenewed(Message, frozen=True, gc=False, tag=124):
    """Notice of new credentials for the same key, because the old ones expire soon or the agent's membership was renewed.

    Open links go on until the credentials expire that they were opened with; then they are opened again.
    """

    chain: tuple[bytes, ...]
    credentials: TlsCredentials


class RelaysFound(Message, frozen=True, gc=False, tag=109):
    """Answer to `FindRelays`.

    Args:
        relays: on offer.
        refused: why there is none.
        may_dial: the node's own address may be dialled: it does not lead to another machine here.
        hops: next hops, if they were asked for, the cheapest first.
        address: HOST:PORT that the node published last; empty: unknown.
    """

    request: int
    relays: tuple[RelayOffer, ...] = ()
    refused: str = ""
    may_dial: bool = True
    hops: tuple[HopFigures, ...] = ()
    address: str = ""


class FetchFeed(Message, frozen=True, gc=False, tag=135):
    """Request for rows of a feed from an offset on. Answered by `FeedFetched` with this number."""

    request: int
    feed: str
    offset: int


class FeedFetched(Message, frozen=True, gc=False, tag=136):
    """Answer to `FetchFeed`; the fields are those of `agiledart_connectors.feed_requests.FeedRows`."""

    request: int
    log_id: str = ""
    fields: bytes = b""
    batches: tuple[StoredBatch, ...] = ()
    first: int = 0
    away: str = ""
    refused: str = ""


class DataPeerRefused(Message, frozen=True, gc=False, tag=116):
    """Notice that the data port refused a peer; the agent counts the refusals."""

    reason: str
    remote: str


class SampledRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Row that left a tapped step: its JSON text and its event time in milliseconds (None where event times do not travel)."""

    time_ms: int | None
    text: str


class UserBoundsSet(Message, frozen=True, gc=False, tag=119):
    """Notice that the user code is loaded and that these bounds hold from now on."""

    bounds: Bounds


class TapSample(Message, frozen=True, gc=False, tag=118):
    """Sample of the rows that left a tapped step of an instance since the last sample; `passed` counts all since the tap opened."""

    step: str
    instance: InstanceName
    passed: int
    rows: tuple[SampledRow, ...]


class AcknowledgeCheckpoint(Message, frozen=True, gc=False, tag=120):
    """Notice that the snapshot of an instance at the barrier of an epoch is safe on this node's disk.

    Args:
        digest, size: of its snapshot; empty for epoch 0, in which a sink reports what its target held before.
        ends: of a transactional sink, the end of each of its parts.
        ended: the instance reached the end of its input, so it is prepared for every epoch whose barrier it has not passed.
        pause_ns: total time for which its rows had to wait for the snapshot.
        after: name of the plan that the barrier brought; empty without a change. When the instance's generation ends there, the
            snapshot is what it hands over.
        caught_up: all rows have come again that the instance had taken too early before its restart.
        changeover_pauses: (stage, generation, nanoseconds) of the pause of the rows to a stage at its last change, as seen here.
        onto: digest of the committed snapshot that this one builds on; empty for a full snapshot.
        longest_ns: longest single time for which its rows had to wait.
        content: all of the snapshot, where it was not written to the disk: the register is to hold it.
    """

    epoch: int
    instance: InstanceName
    digest: bytes = b""
    size: int = 0
    ends: tuple[int, ...] = ()
    ended: bool = False
    pause_ns: int = 0
    after: bytes = b""
    caught_up: bool = True
    changeover_pauses: tuple[tuple[int, int, int], ...] = ()
    onto: bytes = b""
    longest_ns: int = 0
    content: bytes = b""


class DeclineCheckpoint(Message, frozen=True, gc=False, tag=121):
    """Notice that an instance could not be saved at an epoch, for example because its disk is full. Its rows go on."""

    epoch: int
    instance: InstanceName
    reason: str


class CodeCheckRequest(msgspec.Struct, frozen=True, array_like=True):
    """Request to check user code on this node: that it loads, and that its connectors would open.

    Args:
        plan, bundle: the plan and the user code, in wire form.
        stages: those that would run here; their sources and sinks are probed.
        closed, secrets: as in `Configure`.
    """

    plan: bytes
    bundle: bytes
    stages: tuple[int, ...]
    memory_bytes: int = 0
    closed: tuple[str, ...] = ()
    secrets: ProvisionedSecrets = ProvisionedSecrets()


class ConnectorCheck(msgspec.Struct, frozen=True, array_like=True):
    """Result of the check of one source or sink.

    Args:
        stage: of the plan.
        url: of the connector, without secrets.
        text: observation of the probe, or the fault.
        guarantee: delivery guarantee for its rows when a process ends in the middle.
    """

    stage: int
    url: str
    is_good: bool
    text: str
    guarantee: str = ""


class CodeCheckResult(msgspec.Struct, frozen=True, array_like=True):
    """Result of a code check: why the code does not load here (empty: it does), and the checks of its sources and sinks."""

    refusal: str
    connectors: tuple[ConnectorCheck, ...] = ()


AgentMessage = (
    Configure
    | Launch
    | LinkOutputs
    | StartReading
    | EndInput
    | PeerVerdict
    | OpenTap
    | BeginEpoch
    | NotifyEpochCommitted
    | ForceSourceLogs
    | RelaysFound
    | CredentialsRenewed
    | OpenGenerationChannels
    | DropPendingPlan
    | PreviousStateStored
    | PreloadSnapshots
    | FeedFetched
    | ShareProcess
    | PrepareStandby
    | PairRefused
)
ExecutorMessage = (
    RequestCompleted
    | RequestFailed
    | InstanceReports
    | Finished
    | InstanceHandedOver
    | InstanceFailure
    | VerifyPeer
    | FindRelays
    | FetchFeed
    | DataPeerRefused
    | TapSample
    | UserBoundsSet
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | ProgramEnded
    | CodeLoading
    | OpenPair
)
