"""What a `Node` asks of its driver, beside the kernel's and the overlay's effects.

Effects with a `request` number are answered by `Completed` or `Failed` with that number; numbers are the node's
own, another space than the numbers of `Asked`. All others are done and forgotten.
"""

from typing import Any

from agiledart_dataflow.plan.deployment import DeploymentPart, InstanceAddress, RestoreFrom, SnapshotChain
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId


class Replied(Effect, frozen=True, gc=False):
    """The JSON document that answers a user's request; a driver may add fields of its own (`Info`)."""

    request: int
    body: dict[str, Any]


class Progressed(Effect, frozen=True, gc=False):
    """A line that a waiting user may want to read."""

    request: int
    text: str


class RefusedRequest(Effect, frozen=True, gc=False):
    """Why a request was not carried out and what to do next. Exit code of a command line: 1 failed, 2 usage.

    Args:
        reason: when who asks may not: one of `permissions.REFUSALS`, to be counted; else empty.
    """

    request: int
    text: str
    exit_code: int = 1
    reason: str = ""


class PrepareExecutors(Effect, frozen=True, gc=False):
    """Instances of this application will come to these executor slots: start the processes and load the code now.

    A hint that saves time, without an answer: `StartInstances` starts what is missing. `part` has the bundle, no
        instances.
    """

    part: DeploymentPart
    slots: tuple[int, ...]


class StartInstances(Effect, frozen=True, gc=False):
    """Start these instances, sources not yet reading.

    `Completed.result`: dict (stage, index) → data address `host:port`, of every instance of the part.
    `Failed.reason`: for the user, naming step and node (`trips: /data/x.csv.gz does not exist on pi2`).

    Args:
        since: they go on from there, and listen; `LinkInstances` joins them with what they send to. None: they begin.
        plan_name: of the part's plan, as barriers that carry a change name it.
    """

    request: int
    part: DeploymentPart
    since: RestoreFrom | None = None
    plan_name: bytes = b""


class CheckCode(Effect, frozen=True, gc=False):
    """Load this code in a process of its own and try the sources and sinks among these stages.

    `Completed.result`: a `HostChecked`. `order`: the user's; it was checked.
    """

    request: int
    plan: bytes
    bundle: bytes
    stages: tuple[int, ...]
    signed_command: bytes = b""


class LinkInstances(Effect, frozen=True, gc=False):
    """Join the restored local instances of an application with what they send to. Answered by `Completed` or `Failed`."""

    request: int
    application: str
    version: int
    addresses: tuple[InstanceAddress, ...]


class InjectBarriers(Effect, frozen=True, gc=False):
    """The local sources of this application put the barrier of an epoch behind what they have sent. May come twice.

    Args:
        before, after: names of the plans before and behind it; `after` is empty when it carries no change.
        holds: they read nothing more behind it.
    """

    application: str
    version: int
    epoch: int
    before: bytes = b""
    after: bytes = b""
    holds: bool = False


class PrepareLocalGeneration(Effect, frozen=True, gc=False):
    """Make instances of a plan that may come ready: they listen, and wait to be handed over.

    `Completed.result`: dict (stage, index) → data address, as of `StartInstances`, also of instances here that stay.

    Args:
        part: of that plan, with its new instances here, if any.
        plan_name: by which barriers and executors name it.
    """

    request: int
    part: DeploymentPart
    plan_name: bytes


class ConnectLocalGeneration(Effect, frozen=True, gc=False):
    """Everybody who takes part in a plan that may come is ready, and listens here. Answered by `Completed` or `Failed`."""

    request: int
    part: DeploymentPart
    plan_name: bytes
    addresses: tuple[InstanceAddress, ...]


class HandOverState(Effect, frozen=True, gc=False):
    """The element that an old instance left at a change's barrier lies on this node's disk: for whoever waits for its groups.

    Args:
        before: digests of those that it rests on, a whole one first.
    """

    application: str
    version: int
    epoch: int
    stage: int
    index: int
    generation: int
    plan_name: bytes
    digest: bytes
    before: tuple[bytes, ...] = ()


class PreloadFromDisk(Effect, frozen=True, gc=False):
    """Committed elements of old instances lie on this node's disk: who waits for their groups builds them, beside what runs.
    Answered by `Completed` or `Failed`.

    Args:
        elements: each with those that it rests on.
        patience_ns: in which it has to be done.
    """

    request: int
    application: str
    version: int
    plan_name: bytes
    snapshots: tuple[SnapshotChain, ...]
    timeout_ns: int


class DropLocalGeneration(Effect, frozen=True, gc=False):
    """A plan will not come: what was made ready for it and has not begun ends."""

    application: str
    version: int
    plan_name: bytes


class CommitEpochRows(Effect, frozen=True, gc=False):
    """An epoch is committed: the local sinks of this application let its rows count. May come twice."""

    application: str
    version: int
    epoch: int


class CommitLogs(Effect, frozen=True, gc=False):
    """A run has ended with an epoch: what its sinks here have to show is to be seen, whether their process lives or not.

    Answered by `Completed` when it is, or `Failed`.

    Args:
        digests: of the elements of its sinks here.
    """

    request: int
    application: str
    version: int
    epoch: int
    digests: tuple[bytes, ...]


class SyncSourceLogs(Effect, frozen=True, gc=False):
    """Force to the disk what the local sources of this application have sent. Answered by `Completed` or `Failed`."""

    request: int
    application: str
    version: int


class KeepFile(Effect, frozen=True, gc=False):
    """Put a small file of a run on the disk. `Completed` when no power cut takes it away any more, else `Failed`."""

    request: int
    application: str
    version: int
    name: str
    content: bytes


class RetainSnapshots(Effect, frozen=True, gc=False):
    """Of a run's elements here only these are needed any more, and those of later snapshots: an executor may have written some of
    which this node has not heard yet.

    Args:
        life, epoch: of the snapshot; the life is the one that stands in frames.
    """

    application: str
    version: int
    digests: tuple[bytes, ...]
    attempt: int
    epoch: int


class DropSnapshots(Effect, frozen=True, gc=False):
    """Copies of elements that were brought here for a plan that will not come."""

    application: str
    version: int
    digests: tuple[bytes, ...]


class ForgetPart(Effect, frozen=True, gc=False):
    """This node hosts nothing of this run any more: its code and elements may go; what it votes and has entered stays."""

    application: str
    version: int


class ForgetRun(Effect, frozen=True, gc=False):
    """Nothing of this run is needed here any more but committed rows.

    Args:
        digests: of the elements of its sinks here in the last committed epoch: what they say that counts is shown first, and what
            lies behind goes.
        why: it ended, in words; empty: it has finished.
    """

    application: str
    version: int
    digests: tuple[bytes, ...] = ()
    why: str = ""


class StartLocalSources(Effect, frozen=True, gc=False):
    """The local sources of this application begin to read; nothing to do without one. May come twice."""

    application: str
    version: int


class DrainLocalSources(Effect, frozen=True, gc=False):
    """The local sources of this application read nothing more and end with END_OF_INPUT. May come twice."""

    application: str
    version: int


class EndAgent(Effect, frozen=True, gc=False):
    """This node was emptied: the process leaves the ring and ends."""


class StopInstances(Effect, frozen=True, gc=False):
    """End the local executors of this application now; no more reports of it are expected. May come twice or for
    nothing."""

    application: str
    version: int


class ReadTap(Effect, frozen=True, gc=False):
    """Sample what leaves this step in the local executors for some seconds more; the rows after this number.

    `Completed.result`: `agiledart_node.wire.formation_messages.TapRows` (its `request` is of no meaning).
    """

    request: int
    application: str
    version: int
    step: str
    after: int


class BansChanged(Effect, frozen=True, gc=False):
    """From now on these count no more: close their links, refuse new ones, keep the bans on the disk.

    Args:
        until: keys and hashes of links → seconds since 1970 at which each may come back.
        orders: all bans that are known, signed.
    """

    until: dict[bytes, int]
    signed_commands: tuple[bytes, ...]


class KeyDecision(Effect, frozen=True, gc=False):
    """Whether a key that came by a token may come in.

    Args:
        reason: one of `registrations.REFUSALS`, `detail` for people; empty: it is counted.
        number: which use of its token it is, from 1; `wall_seconds`: since when.
    """

    request: int
    reason: str = ""
    detail: str = ""
    number: int = 0
    wall_seconds: int = 0


class SignRenewal(Effect, frozen=True, gc=False):
    """Sign a member's link anew, if it may stay; answered by `Completed` with the chain, or `Failed`.

    Args:
        node: who asks; the chain must be its own.
        token: the record of the token by which it came.
    """

    request: int
    node: NodeId
    chain: tuple[bytes, ...]
    token: bytes


class MembershipRenewed(Effect, frozen=True, gc=False):
    """This node's new chain; empty, with a reason: there is none."""

    chain: tuple[bytes, ...]
    reason: str = ""


class ReadLogs(Effect, frozen=True, gc=False):
    """Lines of this application after this number, at most `limit`, oldest first.

    `Completed.result`: tuple of `agiledart_node.wire.formation_messages.LogLine`; empty when there are none.
    """

    request: int
    application: str
    after: int
    limit: int
