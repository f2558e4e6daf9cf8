"""What a user asks of an agent and what it answers: the control API's messages.

They travel as CONTROL frames over the agent's Unix socket (whoever may open it is an admin) or over a TLS link with the service
`control`, where the grant decides: `VERB_BY_COMMAND` and the table in `kernel/permissions.py`. A request is answered by any number
of `Progress` and exactly one `Answer` or `Refusal`. An answer's body is a JSON document whose schema stands in
`docs/reference/control-api.md`.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.machine import Message
from agiledart_kernel.orders import MAX_ORDER_BYTES

Asked = int | tuple[int, int]
"""Instances of a stage: so many, or limits between which it may scale."""


class Submit(Message, frozen=True, gc=False, tag=200):
    """Run an application. `specification` and `bundle` are in their own wire forms; the agent never runs user code.

    Args:
        name: the application's name, `""`: the topology's own.
        parallelism: instances of a stage by name, a number or limits; `""` stands for every stage that may have several.
        dry_run: answer what would run where; start nothing.
        delivery: `exactly-once`: the run is saved by epochs and brought back when a host dies; "": it ends with its host.
    """

    name: str
    specification: bytes
    bundle: bytes
    parallelism: dict[str, Asked] = {}
    executors: int = 0
    dry_run: bool = False
    delivery: str = ""


class ListApplications(Message, frozen=True, gc=False, tag=201):
    """All applications of the network."""


class Status(Message, frozen=True, gc=False, tag=202):
    """One application, with live figures of its instances."""

    name: str


class Stop(Message, frozen=True, gc=False, tag=203):
    """End an application: drain it, or cut it with `now`."""

    name: str
    now: bool = False


class Nodes(Message, frozen=True, gc=False, tag=204):
    """The nodes that this node knows, with what they run."""


class Route(Message, frozen=True, gc=False, tag=205):
    """The hops that a key takes from here. `key` is hex digits, or `name:TEXT` for a hashed name, or a node's name."""

    key: str


class Logs(Message, frozen=True, gc=False, tag=206):
    """What an application's user code printed, merged from all nodes; `after` continues where the last answer ended."""

    name: str
    after: dict[str, int] = {}


class Info(Message, frozen=True, gc=False, tag=207):
    """This agent: name, id, addresses, ring, resources, counters of refusals."""


class CreateToken(Message, frozen=True, gc=False, tag=208):
    """A join token signed with this agent's authority or admin key; lives are in seconds."""

    role: str = "agent"
    uses: int = 20
    expires: int = 86_400
    member_for: int = 31_536_000
    scope: str = ""


class Leave(Message, frozen=True, gc=False, tag=209):
    """Leave the ring and end this agent: drain first, or at once with `now`."""

    now: bool = False


class Tap(Message, frozen=True, gc=False, tag=210):
    """Some of the rows that leave a step, from all nodes; `after` continues where the last answer ended.

    A tap closes some seconds after the last time that somebody asked for it.
    """

    name: str
    step: str
    after: dict[str, int] = {}


class Share(Message, frozen=True, gc=False, tag=211):
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


WAITS_FOR_ROOM = "waits for room"
"""In a line of progress, and in the reason of a record: no node has room now; what follows the colon says what would help."""


class Ban(Message, frozen=True, gc=False, tag=214):
    """A key, or a token and all that came from it, counts no more.

    Args:
        target: a public key or the hash of a token's link, 64 hex digits.
        until: seconds since 1970; 0: take a ban back.
    """

    target: str
    until: int
    reason: str = ""


class Bans(Message, frozen=True, gc=False, tag=213):
    """What is banned, and was."""


class Progress(Message, frozen=True, gc=False, tag=220):
    """Something that a waiting user may want to read."""

    request: int
    text: str


class Answer(Message, frozen=True, gc=False, tag=221):
    """The result of a request: a JSON document."""

    request: int
    body: bytes


class Refusal(Message, frozen=True, gc=False, tag=222):
    """Why a request was not carried out, what to do next, and the exit code for a command line (1 failed, 2 usage)."""

    request: int
    text: str
    exit_code: int = 1


class Request(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=199):
    """One numbered command of a control connection; numbers are the asker's own.

    Args:
        order: the command signed by the asker's key (`kernel/orders.py`), for what changes something; at the Unix socket the agent
            signs for its user.
    """

    request: int
    command: "Command"
    order: Annotated[bytes, msgspec.Meta(max_length=MAX_ORDER_BYTES)] = b""


Command = (
    Submit
    | ListApplications
    | Status
    | Stop
    | Nodes
    | Route
    | Logs
    | Info
    | CreateToken
    | Leave
    | Tap
    | Share
    | Ban
    | Bans
    | Forget
    | ExplainScaling
)
ControlMessage = Request | Progress | Answer | Refusal

VERB_BY_COMMAND: dict[type, str] = {
    Submit: "submit",
    ListApplications: "list",
    Status: "status",
    Stop: "stop",
    Nodes: "nodes",
    Route: "route",
    Logs: "logs",
    Info: "info",
    CreateToken: "create token",
    Leave: "leave",
    Tap: "tap",
    Share: "share",
    Forget: "forget",
    Ban: "ban",
    Bans: "bans",
    ExplainScaling: "explain",
}
"""The row of `permissions.VERBS` for each command; one without is refused."""
