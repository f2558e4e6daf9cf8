"""What a user asks of an agent and what it answers: the control API's messages.

They travel as CONTROL frames over the agent's Unix socket (whoever may open it is an admin) or over a TLS link with the service
`control`, where the grant decides: `VERB_BY_COMMAND` and the table in `kernel/permissions.py`. A request is answered by any number
of `ControlProgress` and exactly one `ControlAnswer` or `ControlRefusal`. An answer's body is a JSON document whose schema stands in
`docs/reference/control-api.md`.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.grants import NO_QUOTA, Quota
from agiledart_kernel.machine import Message
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.renewal_messages import Chain, TokenRecordBytes

RequestedParallelism = int | tuple[int, int]
"""Instances of a stage: so many, or limits between which it may scale."""


class ImportedSnapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An element of a checkpoint with which a run begins.

    Args:
        stage: of the new plan; `index`: of the instance that saved it.
        digest, length: of its bytes.
    """

    stage: Annotated[int, msgspec.Meta(ge=0, le=65_535)]
    index: Annotated[int, msgspec.Meta(ge=0, le=65_535)]
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    length: Annotated[int, msgspec.Meta(ge=0)]


class CheckpointOrigin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The checkpoint with which a run begins; its file lies on the agent that is asked.

    Args:
        kind: `whole`: all of it, in the same topology; `steps`: the state of steps by their names.
        about: whose state it is, for people.
        digest: of the file.
        elements: those that are taken, by stage and instance, of one instance oldest first.
    """

    kind: Annotated[str, msgspec.Meta(max_length=16)]
    about: Annotated[str, msgspec.Meta(max_length=256)]
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    snapshots: Annotated[tuple[ImportedSnapshot, ...], msgspec.Meta(max_length=2_048)]


class Submit(Message, frozen=True, gc=False, tag=200):
    """Run an application. `specification` and `bundle` are in their own wire forms; the agent never runs user code.

    Args:
        name: the application's name, `""`: the topology's own.
        parallelism: instances of a stage by name, a number or limits; `""` stands for every stage that may have several.
        dry_run: answer what would run where; start nothing.
        delivery: a word of `Delivery`, what becomes of it when a host dies; "": the default.
        origin: what it begins with; None: nothing.
    """

    name: str
    specification: bytes
    bundle: bytes
    parallelism: dict[str, RequestedParallelism] = {}
    executors: int = 0
    dry_run: bool = False
    delivery: str = ""
    origin: CheckpointOrigin | None = None


class ListApplications(Message, frozen=True, gc=False, tag=201):
    """All applications of the network."""


class Status(Message, frozen=True, gc=False, tag=202):
    """One application, with live figures of its instances."""

    name: str


class Stop(Message, frozen=True, gc=False, tag=203):
    """End an application: drain it, or cut it with `now`.

    `checkpoint`: take a last epoch in place of draining it, and keep that under this name.
    """

    name: str
    now: bool = False
    checkpoint: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Nodes(Message, frozen=True, gc=False, tag=204):
    """The nodes that this node knows, with what they run."""


class TraceRoute(Message, frozen=True, gc=False, tag=205):
    """The hops that a key takes from here. `key` is hex digits, or `name:TEXT` for a hashed name, or a node's name."""

    key: str


class Logs(Message, frozen=True, gc=False, tag=206):
    """What an application's user code printed, merged from all nodes; `after` continues where the last answer ended."""

    name: str
    after: dict[str, int] = {}


class Info(Message, frozen=True, gc=False, tag=207):
    """This agent: name, id, addresses, ring, resources, counters of refusals."""


class CreateToken(Message, frozen=True, gc=False, tag=208):
    """A join token signed with this agent's authority or admin key; lives are in seconds. `quota`: of a submitter."""

    role: str = "agent"
    uses: int = 20
    expires: int = 86_400
    member_for: int = 31_536_000
    scope: str = ""
    quota: Quota = NO_QUOTA


class ShutDownAgent(Message, frozen=True, gc=False, tag=209):
    """Leave the ring and end this agent: drain first, or at once with `now`."""

    now: bool = False


class Tap(Message, frozen=True, gc=False, tag=210):
    """Some of the rows that leave a step, from all nodes; `after` continues where the last answer ended.

    A tap closes some seconds after the last time that somebody asked for it.
    """

    name: str
    step: str
    after: dict[str, int] = {}


class ShareApplication(Message, frozen=True, gc=False, tag=211):
    """Let another key act on an application as its owner may, or no more. `key`: its public key, 64 hex digits."""

    name: str
    key: str
    revoke: bool = False


class Forget(Message, frozen=True, gc=False, tag=212):
    """Let an application that has ended go from `list`; its name is free then."""

    name: str


class ExplainScaling(Message, frozen=True, gc=False, tag=215):
    """How many instances a policy would give the stages of an application, and why. `stage`: one of them; "": all."""

    name: str
    stage: str = ""


class ExplainRecovery(Message, frozen=True, gc=False, tag=226):
    """What of an application decides what a failure costs it."""

    name: str


class Checkpoints(Message, frozen=True, gc=False, tag=227):
    """What is safe of an application that is saved by epochs. `take`: begin an epoch now, and answer when it is committed."""

    name: str
    take: bool = False


class ExportCheckpoint(Message, frozen=True, gc=False, tag=231):
    """Have a checkpoint as one file on this agent: a kept one of this name, or the newest epoch of an application that runs."""

    name: Annotated[str, msgspec.Meta(max_length=64)]


class RemoveCheckpoint(Message, frozen=True, gc=False, tag=232):
    """Keep a checkpoint no longer. `name`: of it, or the hash of its file, 64 hex digits, where several have the name."""

    name: Annotated[str, msgspec.Meta(max_length=64)]


class RecoverRun(Message, frozen=True, gc=False, tag=235):
    """Have an application go on without the majority of its voters, which is gone for ever.

    Args:
        without: names or ids of voters.
        check: only say what would come of it.
    """

    name: Annotated[str, msgspec.Meta(max_length=64)]
    lost_voters: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=256)], ...], msgspec.Meta(min_length=1, max_length=16)
    ]
    check: bool = False


class ReadCheckpoint(Message, frozen=True, gc=False, tag=233):
    """Some bytes of a checkpoint's file on this agent, from `offset` on.

    `name`: of its application; `digest`: of the file, 64 hex digits.
    """

    name: Annotated[str, msgspec.Meta(max_length=64)]
    digest: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
    offset: Annotated[int, msgspec.Meta(ge=0)]


MAX_UPLOAD_CHUNK_BYTES = 1 << 20
"""Of a checkpoint's file, in one `UploadCheckpoint` or its answer to `ReadCheckpoint`."""


class UploadCheckpoint(Message, frozen=True, gc=False, tag=234):
    """Bytes of a checkpoint's file for this agent, one piece after the other; it is looked at as a whole when the last has come.

    `name`: of the application that is to begin with it; `digest`, `size`: of the file.
    """

    name: Annotated[str, msgspec.Meta(max_length=64)]
    digest: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
    size: Annotated[int, msgspec.Meta(ge=1)]
    offset: Annotated[int, msgspec.Meta(ge=0)]
    data: Annotated[bytes, msgspec.Meta(max_length=MAX_UPLOAD_CHUNK_BYTES)]


class ScaleStage(Message, frozen=True, gc=False, tag=228):
    """Give a stage of an application that runs another number of instances.

    Args:
        stage: its name, or that of a step of it.
        is_auto: no number: it scales by itself from now on, within the limits that it was submitted with, until it is given one.
        wait: answer when it is done, let go or rolled back; else when it is under way.
    """

    name: str
    stage: Annotated[str, msgspec.Meta(max_length=4_096)]
    number: int
    wait: bool = True
    is_auto: bool = False


class MoveStage(Message, frozen=True, gc=False, tag=229):
    """Have a stage of an application that runs, or its instance `STAGE.N`, run on a node. `node`: its name or id."""

    name: str
    stage: Annotated[str, msgspec.Meta(max_length=4_096)]
    node: Annotated[str, msgspec.Meta(max_length=256)]
    wait: bool = True


class DrainNode(Message, frozen=True, gc=False, tag=230):
    """Empty a node: others run what runs there, while rows flow. Then it leaves the ring and ends.

    Args:
        node: its name or id.
        stay: it stays in the ring, with nothing to run, and takes nothing.
        undo: it takes work again, or goes on to; what has left does not come back.
    """

    node: Annotated[str, msgspec.Meta(max_length=256)]
    stay: bool = False
    undo: bool = False


WAITING_FOR_CAPACITY = "waiting for capacity"
"""In a line of progress, and in the reason of a record: no node has room now; what follows the colon says what would help."""


class SetBan(Message, frozen=True, gc=False, tag=214):
    """A key, or a token and all that came from it, counts no more.

    Args:
        target: a public key or the hash of a token's link, 64 hex digits.
        until: seconds since 1970; 0: take a ban back.
    """

    target: str
    until: int
    reason: str = ""


class ListBans(Message, frozen=True, gc=False, tag=213):
    """What is banned, and was."""


class Audit(Message, frozen=True, gc=False, tag=217):
    """Who wanted what of which agent, and whether it was allowed.

    Args:
        since_ms: wall time of the first line; `requester`: prefix of a key or role; `application`: its name.
        after: node id → where its last answer ended.
        verify: each agent also looks whether lines of its were altered or removed.
    """

    since_ms: int = 0
    requester: Annotated[str, msgspec.Meta(max_length=256)] = ""
    application: Annotated[str, msgspec.Meta(max_length=256)] = ""
    after: dict[str, int] = {}
    verify: bool = False


class Tokens(Message, frozen=True, gc=False, tag=219):
    """All tokens, and who came by them."""


class RenewUserMembership(Message, frozen=True, gc=False, tag=216):
    """A membership for the same key and role, as long as the last one.

    Args:
        chain: of the asker, whose key it must end in; `token`: the record of the token by which it came. No chain: that of
            the agent that is asked, which only admins want.
    """

    chain: Chain = ()
    token: TokenRecordBytes = b""


MAX_SECRET_NAME = 64
MAX_SECRET_BYTES = 4_096
"""Of a secret of a connector; a URL of a database with a certificate in it is shorter."""


class SetSecret(Message, frozen=True, gc=False, tag=218):
    """Have a node keep a secret of a connector, or forget it. What it holds only that node can open.

    Args:
        name: of the application that may use it.
        node: id of the node; `secret`: the name that connectors give as `?credentials=`.
        sealed: to the node's key (`agiledart_transport.sealing`); empty: forget it.
    """

    name: str
    node: Annotated[str, msgspec.Meta(max_length=64)]
    secret: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SECRET_NAME)]
    sealed: Annotated[bytes, msgspec.Meta(max_length=MAX_SECRET_BYTES + 64)] = b""


class Secrets(Message, frozen=True, gc=False, tag=223):
    """Which secrets are kept where; never what they hold. `name`: of one application; "": of all."""

    name: str = ""


class ControlProgress(Message, frozen=True, gc=False, tag=220):
    """Something that a waiting user may want to read."""

    request: int
    text: str


class ControlAnswer(Message, frozen=True, gc=False, tag=221):
    """The result of a request: a JSON document."""

    request: int
    body: bytes


class ControlRefusal(Message, frozen=True, gc=False, tag=222):
    """Why a request was not carried out, what to do next, and the exit code for a command line (1 failed, 2 usage).

    Args:
        reason: when who asks may not: one of `permissions.REFUSALS`; else empty.
    """

    request: int
    text: str
    exit_code: int = 1
    reason: str = ""


class ControlRequest(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=199):
    """One numbered command of a control connection; numbers are the asker's own.

    Args:
        order: the command signed by the asker's key (`kernel/orders.py`), for what changes something; at the Unix socket the agent
            signs for its user.
    """

    request: int
    command: "Command"
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


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
    | ExplainRecovery
    | Checkpoints
    | ExportCheckpoint
    | RemoveCheckpoint
    | RecoverRun
    | ReadCheckpoint
    | UploadCheckpoint
    | ScaleStage
    | MoveStage
    | DrainNode
    | Audit
    | SetSecret
    | Secrets
)
ControlMessage = ControlRequest | ControlProgress | ControlAnswer | ControlRefusal

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
    ExplainRecovery: "explain",
    Checkpoints: "checkpoint",
    ExportCheckpoint: "export",
    RemoveCheckpoint: "checkpoint",
    RecoverRun: "recover",
    ReadCheckpoint: "export",
    UploadCheckpoint: "submit",
    ScaleStage: "scale",
    MoveStage: "move",
    DrainNode: "drain",
    Audit: "audit",
    SetSecret: "secret",
    Secrets: "secrets",
}
"""The row of `permissions.VERBS` for each command; one without is refused."""
