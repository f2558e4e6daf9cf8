"""Messages of the control API: commands of users to an agent, and its answers.

They travel as CONTROL frames over the agent's Unix socket, where every caller is an admin, or over a TLS link with the
service `control`, where the grant decides: `VERB_BY_COMMAND` and the table in `kernel/permissions.py`. An agent answers a
request with any number of `ControlProgress` and exactly one `ControlAnswer` or `ControlRefusal`. The body of an answer is a
JSON document; its schema is in `docs/reference/control-api.md`.
"""

from typing import Annotated, Protocol, runtime_checkable

import msgspec

from agiledart_kernel.grants import NO_QUOTA, Quota
from agiledart_kernel.machine import Message
from agiledart_node.wire.checkpoint_commands import (
    CheckpointOrigin,
    Checkpoints,
    ExportCheckpoint,
    RecoverRun,
    RemoveCheckpoint,
)
from agiledart_node.wire.lease_messages import NoteLease, OrderGate, RenewHostLease, ReportGate, ShowProvisioning
from agiledart_node.wire.renewal_messages import Chain, TokenRecordBytes
from agiledart_node.wire.transfer_commands import ReadCheckpoint, UploadCheckpoint, UploadModel

RequestedParallelism = int | tuple[int, int]
"""Requested number of instances of a stage: a number, or the limits between which the stage may scale."""


class Submit(Message, frozen=True, gc=False, tag=200):
    """Run an application. `specification` and `bundle` are in their own wire forms; the agent never runs user code.

    Args:
        name: the application's name; `""`: the topology's own.
        parallelism: instances of a stage by name, a number or limits; `""` stands for every stage that may have several.
        dry_run: answer with the planned placement; start nothing.
        delivery: a word of `Delivery`, the guarantee when a host dies; "": the default.
        origin: checkpoint from which it starts; None: empty state.
        moves: one of `MOVES`: whether its stages move to better nodes by themselves; "": as the coordinator's agent is set.
        placement: `STRATEGY[:OBJECTIVE]`; "": as the agents are set.
    """

    name: str
    specification: bytes
    bundle: bytes
    parallelism: dict[str, RequestedParallelism] = {}
    executors: int = 0
    dry_run: bool = False
    delivery: str = ""
    origin: CheckpointOrigin | None = None
    moves: Annotated[str, msgspec.Meta(max_length=16)] = ""
    placement: Annotated[str, msgspec.Meta(max_length=96)] = ""


class ListApplications(Message, frozen=True, gc=False, tag=201):
    """List all applications of the network."""


class Status(Message, frozen=True, gc=False, tag=202):
    """Show one application, with live measurements of its instances."""

    name: str


class Stop(Message, frozen=True, gc=False, tag=203):
    """End an application: drain it, or cut it with `now`.

    `checkpoint`: take a last epoch instead of draining, and retain it under this name.
    """

    name: str
    now: bool = False
    checkpoint: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Nodes(Message, frozen=True, gc=False, tag=204):
    """List the nodes that the asked node knows, and the applications on them.

    `network`: answer also with these nodes as a network of `agiledart place`.
    """

    network: bool = False


class TraceRoute(Message, frozen=True, gc=False, tag=205):
    """Trace the overlay hops from the asked node to a key. `key`: hex digits, `name:TEXT` for a hashed name, or a node's name."""

    key: str


class Logs(Message, frozen=True, gc=False, tag=206):
    """Read the output of an application's user code, merged from all nodes; `after` continues after the last answer."""

    name: str
    after: dict[str, int] = {}


class Info(Message, frozen=True, gc=False, tag=207):
    """Describe the asked agent: name, id, addresses, ring, resources, counters of refusals."""


class CreateToken(Message, frozen=True, gc=False, tag=208):
    """Create a join token signed with this agent's authority or admin key; times are in seconds.

    Args:
        quota: of a submitter.
        operator: role of whoever runs the machine of a new agent; empty: the agent only hosts.
    """

    role: str = "agent"
    uses: int = 20
    expires: int = 86_400
    member_for: int = 31_536_000
    scope: str = ""
    quota: Quota = NO_QUOTA
    operator: str = ""


class ShutDownAgent(Message, frozen=True, gc=False, tag=209):
    """Leave the ring and end the asked agent: drain it first, or end it at once with `now`."""

    now: bool = False


class Tap(Message, frozen=True, gc=False, tag=210):
    """Sample the rows that leave a step, from all nodes; `after` continues after the last answer.

    A tap closes some seconds after its last request.
    """

    name: str
    step: str
    after: dict[str, int] = {}


class ShareApplication(Message, frozen=True, gc=False, tag=211):
    """Permit another key to act on an application like its owner, or revoke that. `key`: public key, 64 hex digits."""

    name: str
    key: str
    revoke: bool = False


class Forget(Message, frozen=True, gc=False, tag=212):
    """Remove an application that has ended from `list`; its name becomes free."""

    name: str


class ExplainScaling(Message, frozen=True, gc=False, tag=215):
    """Explain the number of instances that a policy would give each stage of an application. `stage`: one of them; "": all."""

    name: str
    stage: str = ""


class ExplainPlacement(Message, frozen=True, gc=False, tag=244):
    """Explain where an application runs: its objective now, and what other hosts would change.

    `objective`: a metric, such as `usage`; "": response time.
    """

    name: str
    objective: Annotated[str, msgspec.Meta(max_length=32)] = ""


class ExplainRecovery(Message, frozen=True, gc=False, tag=226):
    """Explain the costs of a failure for an application: the properties of its steps that decide them."""

    name: str


class ShareModel(Message, frozen=True, gc=False, tag=247):
    """Have all nodes of a running application fetch a model's file, which the asked agent has, from each other.

    `name`: of the application; `digest`, `size`: of the file.
    """

    name: Annotated[str, msgspec.Meta(max_length=64)]
    digest: Annotated[str, msgspec.Meta(min_length=64, max_length=64, pattern="^[0-9a-f]+$")]
    size: Annotated[int, msgspec.Meta(ge=1)]


class ScaleStage(Message, frozen=True, gc=False, tag=228):
    """Change the number of instances of a stage of a running application.

    Args:
        stage: name of the stage, or of one of its steps.
        is_auto: no number: the stage scales automatically within its submitted limits until a user sets a number.
        wait: answer once the change is done, dropped or rolled back; otherwise once it has started.
    """

    name: str
    stage: Annotated[str, msgspec.Meta(max_length=4_096)]
    number: int
    wait: bool = True
    is_auto: bool = False


AUTO_NODE = "auto"
"""Word for no node in `MoveStage`."""


class MoveStage(Message, frozen=True, gc=False, tag=229):
    """Move a stage of a running application, or its instance `STAGE.N`, to a node.

    `node`: its name or id; `auto`: nowhere, and from now on the stage may move by itself again.
    """

    name: str
    stage: Annotated[str, msgspec.Meta(max_length=4_096)]
    node: Annotated[str, msgspec.Meta(max_length=256)]
    wait: bool = True

    @property
    def is_auto(self) -> bool:
        """Report whether it names no node: the stage may move by itself again."""
        return self.node == AUTO_NODE


class DrainNode(Message, frozen=True, gc=False, tag=230):
    """Move all instances off a node while rows flow. Then the node leaves the ring and its agent ends.

    Args:
        node: name or id.
        stay: the node stays in the ring without work and takes none.
        undo: the node takes work again; instances that have left do not return.
    """

    node: Annotated[str, msgspec.Meta(max_length=256)]
    stay: bool = False
    undo: bool = False


WAITING_FOR_CAPACITY = "waiting for capacity"
"""Beginning of a progress line and of a record's reason while no node has free capacity; advice follows after the colon."""

NO_ROOM = "No node has room for one more instance"
"""Beginning of the reason for which a stage does not get further instances: a gate leases a machine for it."""


class SetBan(Message, frozen=True, gc=False, tag=214):
    """Ban a key, or a token and all keys that joined with it.

    Args:
        target: a public key or the hash of a token's link, 64 hex digits.
        until: seconds since 1970; 0: revoke a ban.
    """

    target: str
    until: int
    reason: str = ""


class ListBans(Message, frozen=True, gc=False, tag=213):
    """List present and past bans."""


class Audit(Message, frozen=True, gc=False, tag=217):
    """Show requests to the agents: requester, action, origin, and whether the request was permitted.

    Args:
        since_ms: wall time of the first line; `requester`: prefix of a key or role; `application`: its name.
        after: node id → end of its last answer.
        verify: each agent also checks its lines for changes and gaps.
    """

    since_ms: int = 0
    requester: Annotated[str, msgspec.Meta(max_length=256)] = ""
    application: Annotated[str, msgspec.Meta(max_length=256)] = ""
    after: dict[str, int] = {}
    verify: bool = False


class Tokens(Message, frozen=True, gc=False, tag=219):
    """List all tokens, and the keys that joined with them."""


class RenewUserMembership(Message, frozen=True, gc=False, tag=216):
    """Renew a membership for the same key and role, with the same duration.

    Args:
        chain: chain of the requester, which must end in its key; empty: the asked agent's own chain, which only admins request.
        token: record of the token with which the key joined.
    """

    chain: Chain = ()
    token: TokenRecordBytes = b""


MAX_SECRET_NAME = 64
MAX_SECRET_BYTES = 4_096
"""Size of a connector's secret; the URL of a database with an embedded certificate is shorter."""


class SetSecret(Message, frozen=True, gc=False, tag=218):
    """Store a connector's secret on a node, or delete it. Only that node can decrypt it.

    Args:
        name: application that may use it.
        node: id of the node; `secret`: the name that connectors use in `?credentials=`.
        sealed: encrypted to the node's key (`agiledart_transport.sealing`); empty: delete it.
    """

    name: str
    node: Annotated[str, msgspec.Meta(max_length=64)]
    secret: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SECRET_NAME)]
    sealed: Annotated[bytes, msgspec.Meta(max_length=MAX_SECRET_BYTES + 64)] = b""


class Secrets(Message, frozen=True, gc=False, tag=223):
    """List secrets and their nodes, without their contents. `name`: of one application; "": of all."""

    name: str = ""


FeedName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class CreateFeed(Message, frozen=True, gc=False, tag=236):
    """Create a feed on a node: a log that takes rows from writers.

    Args:
        node: id of the node.
        max_bytes: size above which the oldest rows are removed; 0: the default.
    """

    name: FeedName
    node: Annotated[str, msgspec.Meta(max_length=64)]
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**50)] = 0


class RemoveFeed(Message, frozen=True, gc=False, tag=237):
    """Remove a feed from a node, with its rows. `node`: id of the node."""

    name: FeedName
    node: Annotated[str, msgspec.Meta(max_length=64)]


class Feeds(Message, frozen=True, gc=False, tag=238):
    """List the feeds of all nodes."""


Command = (
    Submit
    | ListApplications
    | Status
    | Stop
    | Nodes
    | TraceRoute
    | Logs
    | Info
    | CreateToken
    | ShutDownAgent
    | Tap
    | ShareApplication
    | SetBan
    | ListBans
    | Tokens
    | RenewUserMembership
    | Forget
    | ExplainScaling
    | ExplainPlacement
    | ExplainRecovery
    | Checkpoints
    | ExportCheckpoint
    | RemoveCheckpoint
    | RecoverRun
    | ReadCheckpoint
    | UploadCheckpoint
    | UploadModel
    | ShareModel
    | ScaleStage
    | MoveStage
    | DrainNode
    | Audit
    | SetSecret
    | Secrets
    | CreateFeed
    | RemoveFeed
    | Feeds
    | RenewHostLease
    | NoteLease
    | ReportGate
    | OrderGate
    | ShowProvisioning
)

VERB_BY_COMMAND: dict[type, str] = {
    Submit: "submit",
    ListApplications: "list",
    Status: "status",
    Stop: "stop",
    Nodes: "nodes",
    TraceRoute: "route",
    Logs: "logs",
    Info: "info",
    CreateToken: "create token",
    ShutDownAgent: "leave",
    Tap: "tap",
    ShareApplication: "share",
    Forget: "forget",
    SetBan: "ban",
    ListBans: "bans",
    Tokens: "tokens",
    RenewUserMembership: "renew",
    ExplainScaling: "explain",
    ExplainPlacement: "explain",
    ExplainRecovery: "explain",
    Checkpoints: "checkpoint",
    ExportCheckpoint: "export",
    RemoveCheckpoint: "checkpoint",
    RecoverRun: "recover",
    ReadCheckpoint: "export",
    UploadCheckpoint: "submit",
    UploadModel: "model",
    ShareModel: "model",
    ScaleStage: "scale",
    MoveStage: "move",
    DrainNode: "drain",
    Audit: "audit",
    SetSecret: "secret",
    Secrets: "secrets",
    CreateFeed: "feed",
    RemoveFeed: "feed",
    Feeds: "feeds",
    RenewHostLease: "lease",
    NoteLease: "lease",
    ReportGate: "lease",
    OrderGate: "provision",
    ShowProvisioning: "provisioning",
}
"""The row of `permissions.VERBS` for each command; a command without one is refused."""


@runtime_checkable
class _NamesApplication(Protocol):
    name: str


def named_application(command: Command) -> str:
    """Return the name in a command: of an application, or of what else it is about; empty when it has none."""
    return command.name if isinstance(command, _NamesApplication) else ""
