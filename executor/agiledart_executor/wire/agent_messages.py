"""What an agent and its executor tell each other over their socket pair: control and statistics, never tuples.

Both ends are one program on one node, so these messages carry no version; the codec still validates each of them.
"""

from typing import Any

import msgspec

from agiledart_connectors.credentials import ProvisionedSecrets
from agiledart_dataflow.plan.deployment import RestoreFrom, SnapshotChain
from agiledart_executor.user_code.bounds import Bounds
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_transport.tls_contexts import TlsCredentials


class InstanceName(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Which parallel copy of which stage, in which of its terms."""

    stage: int
    index: int
    generation: int = 1


class Configure(Message, frozen=True, gc=False, tag=100):
    """The first message: who the executor is and what it may do.

    Args:
        application: name; `version` and `number` tell its runs apart.
        credentials: TLS leaf with its key and the network's CA, made by the agent.
        chain: grants from the network's authority down to this executor's key.
        node_id: ring position of the executor's key, under which its data links are dialled.
        host: address on which to take data links; `advertised` stands in addresses that others dial.
        latency_log_bytes, latency_log_days: what to keep of the latencies sampled at a sink; 0 bytes: nothing.
        bounds: on user code's time and memory.
        home: the agent's own node, whose sinks are this process's business.
        closed: files and folders that users' code must not touch, the state directory among them; none: it is not confined.
        path_patience: seconds for which no path to another executor may work.
        secrets: of connectors, that who submitted this run has entrusted to the node.
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
    advertised: str
    latency_log_bytes: int = 0
    latency_log_days: int = 0
    bounds: Bounds = Bounds()
    home: NodeId = NodeId(0)
    closed: tuple[str, ...] = ()
    path_timeout: int = 60
    secrets: ProvisionedSecrets = ProvisionedSecrets()


class Launch(Message, frozen=True, gc=False, tag=101):
    """Make these instances ready. `part` is the wire form of a `DeploymentPart`.

    Args:
        since: they go on from there, and what they send to is told later (`LinkOutputs`); None: they begin.
        waits: they are of a term that is to come: they begin when those of the term before have handed over.
        plan_name: of the part's plan, as barriers name it.
    """

    request: int
    part: bytes
    instances: tuple[InstanceName, ...]
    since: RestoreFrom | None = None
    waits: bool = False
    plan_name: bytes = b""


class OpenGenerationChannels(Message, frozen=True, gc=False, tag=130):
    """This plan may come with a barrier: make links and channels for it ready. Answered by `RequestCompleted` or `RequestFailed`.

    Args:
        part: with that plan, and all its places.
        addresses: where all instances listen to which somebody may send.
    """

    request: int
    part: bytes
    plan_name: bytes
    addresses: tuple[tuple[InstanceName, str], ...]


class DropPendingPlan(Message, frozen=True, gc=False, tag=131):
    """The plan with this name will not come: whatever waits for it is let go."""

    plan_name: bytes


class PreviousStateStored(Message, frozen=True, gc=False, tag=132):
    """What an instance of the term before was at the barrier of a change lies on this node's disk.

    Args:
        after: name of the plan behind the barrier.
        digest: of the element; `before`: of those that it rests on, a whole one first.
    """

    epoch: int
    origin: InstanceName
    after: bytes
    digest: bytes
    before: tuple[bytes, ...] = ()


class PreloadSnapshots(Message, frozen=True, gc=False, tag=134):
    """Committed elements of instances of the term before lie on this node's disk: who waits for their groups builds them now.
    Answered by `RequestCompleted` or `RequestFailed`.
    """

    request: int
    plan_name: bytes
    snapshots: tuple[SnapshotChain, ...]


class LinkOutputs(Message, frozen=True, gc=False, tag=107):
    """Where the instances listen to which restored ones send. Answered by `RequestCompleted` or `RequestFailed`."""

    request: int
    addresses: tuple[tuple[InstanceName, str], ...]


class StartReading(Message, frozen=True, gc=False, tag=102):
    """All is linked: the sources may read."""


class EndInput(Message, frozen=True, gc=False, tag=103):
    """Drain: the sources act as if their input had ended here."""


class BeginEpoch(Message, frozen=True, gc=False, tag=105):
    """The sources let the barrier of this epoch in, behind what they have sent.

    Args:
        before, after: of one that carries a change, the names of the plans before and behind it. Sources that follow another
            one do not let it in.
        holds: sources read nothing more behind it.
    """

    epoch: int
    before: bytes = b""
    after: bytes = b""
    holds: bool = False


class NotifyEpochCommitted(Message, frozen=True, gc=False, tag=106):
    """This epoch is committed in the run's register: its rows count."""

    epoch: int


class ForceSourceLogs(Message, frozen=True, gc=False, tag=123):
    """Force the logs of the sources to the disk. Answered by `RequestCompleted` (without an address) or `RequestFailed`."""

    request: int


class PeerVerdict(Message, frozen=True, gc=False, tag=104):
    """The agent's judgement of a peer: the wire form of a `PeerInfo`, or why the peer is refused."""

    request: int
    peer: bytes = b""
    refused: str = ""


class OpenTap(Message, frozen=True, gc=False, tag=108):
    """Somebody looks at the rows that leave this step: sample them for some seconds more."""

    step: str


class RequestCompleted(Message, frozen=True, gc=False, tag=110):
    """The instances of a `Launch` are ready; data links are taken at `address`."""

    request: int
    address: str


class RequestFailed(Message, frozen=True, gc=False, tag=111):
    """The instances of a `Launch` cannot run; `message` is in the user's words."""

    request: int
    message: str


class InstanceReports(Message, frozen=True, gc=False, tag=112):
    """Figures of the instances, by (stage, index); also the executor's sign of life."""

    reports: tuple[tuple[InstanceName, dict[str, Any]], ...]


class Finished(Message, frozen=True, gc=False, tag=113):
    """An instance has come to the end of its input and delivered all of its output."""

    instance: InstanceName
    report: dict[str, Any]


class InstanceHandedOver(Message, frozen=True, gc=False, tag=133):
    """An instance of a term that has ended is gone; who took over from it counts on for it."""

    instance: InstanceName


class InstanceFailure(Message, frozen=True, gc=False, tag=114):
    """An instance cannot go on: user code raised, a link to a neighbour broke, a disk is full.

    Args:
        is_consequence: only a link broke; what broke it will usually be told by somebody else.
        is_crash: the whole process died, which the agent says of each of its instances; a change of its stage cannot go on; or
            what its sink had written is gone. Bringing the run back helps.
    """

    instance: InstanceName
    message: str
    is_consequence: bool = False
    is_crash: bool = False


class VerifyPeer(Message, frozen=True, gc=False, tag=115):
    """Is this peer what it says it is? The executor has no cryptography library; its agent has.

    Args:
        certificate: the peer's TLS leaf, DER.
        hello: body of its HELLO frame.
        service, serves: as for `Judge.judge`.
    """

    request: int
    certificate: bytes
    hello: bytes
    service: str
    serves: bool


class FindRelays(Message, frozen=True, gc=False, tag=122):
    """Are there ways by others to an executor?

    Args:
        agent: on whose node it runs; `executor`: its own id.
        most: how many are wanted; avoid: names of nodes by which there are some already.
        by: names of those that alone may lead; empty: any.
        doubted: names of nodes by which it took more than twice what they had claimed.
    """

    request: int
    agent: NodeId
    executor: NodeId
    most: int = 1
    avoid: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    doubted: tuple[str, ...] = ()


class RelayOffer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A relay to go through: its address, ticket and name, and what the whole way costs in slots, as is claimed."""

    host: str
    port: int
    ticket: bytes
    name: str
    cost: int


class CredentialsRenewed(Message, frozen=True, gc=False, tag=124):
    """What the executor shows from now on, of the same key: something was about to end, or its agent's membership was renewed.
    Links that are open go on until what was shown there ends; then they are opened again.
    """

    chain: tuple[bytes, ...]
    credentials: TlsCredentials


class RelaysFound(Message, frozen=True, gc=False, tag=109):
    """Ways by others; `refused`: in words why there is none."""

    request: int
    relays: tuple[RelayOffer, ...] = ()
    refused: str = ""


class DataPeerRefused(Message, frozen=True, gc=False, tag=116):
    """A stranger at the data port was turned away; counted by the agent."""

    reason: str
    remote: str


class SampledRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A row that left a tapped step: its event time in milliseconds (None where it does not travel) and its JSON text."""

    time_ms: int | None
    text: str


class UserBoundsSet(Message, frozen=True, gc=False, tag=119):
    """The user's code is loaded, and these bounds hold from now on."""

    bounds: Bounds


class TapSample(Message, frozen=True, gc=False, tag=118):
    """Some of the rows that left a tapped step of an instance since the last time; `passed` counts all since the tap."""

    step: str
    instance: InstanceName
    passed: int
    rows: tuple[SampledRow, ...]


class AcknowledgeCheckpoint(Message, frozen=True, gc=False, tag=120):
    """What an instance was at the barrier of an epoch is safe on this node's disk.

    Args:
        digest, size: of its element; none for epoch 0, in which a sink says what it found.
        ends: of a sink that counts rows by epoch, the end of each of its parts.
        ended: it has come to its end, so it is prepared for every epoch whose barrier it has not passed.
        pause_ns: how long its rows had to wait for that, in all.
        after: name of the plan that the barrier brought, where it brought one. The element of an instance whose term ends there
            is what it hands over.
        caught_up: all has come again that it had taken too early before it was brought back.
        gaps: (stage, term, nanoseconds) for which rows to a stage stood still at its last change, as this instance saw it.
        onto: the committed element that this one rests on; empty: it is whole.
        longest_ns: the longest time for which its rows had to wait at once.
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


class DeclineCheckpoint(Message, frozen=True, gc=False, tag=121):
    """An instance could not be saved at an epoch: its disk is full, for example. Its rows go on."""

    epoch: int
    instance: InstanceName
    reason: str


class CodeCheckRequest(msgspec.Struct, frozen=True, array_like=True):
    """What to check: a plan, the code, and the stages that would run here; of those, sources and sinks are tried.

    Args:
        closed, secrets: as of `Configure`.
    """

    plan: bytes
    bundle: bytes
    stages: tuple[int, ...]
    memory_bytes: int = 0
    closed: tuple[str, ...] = ()
    secrets: ProvisionedSecrets = ProvisionedSecrets()


class ConnectorCheck(msgspec.Struct, frozen=True, array_like=True):
    """One source or sink.

    Args:
        stage: of the plan.
        url: what it would read or write; no secret is in it.
        text: what was found, or what is wrong.
        guarantee: what becomes of its rows when something ends in the middle.
    """

    stage: int
    url: str
    is_good: bool
    text: str
    guarantee: str = ""


class CodeCheckResult(msgspec.Struct, frozen=True, array_like=True):
    """Why the code does not load here (empty: it does), and what was found of its sources and sinks."""

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
    | DataPeerRefused
    | TapSample
    | UserBoundsSet
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
)
