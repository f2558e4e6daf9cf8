"""Effects of a `Node` to its driver, beside those of the kernel and the overlay.

Effects with a `request` number are answered by `Completed` or `Failed` with that number. These numbers are the node's own, separate
from the numbers of `UserRequest`. All other effects have no answer.
"""

from typing import Any

import msgspec

from agiledart_dataflow.plan.connectors import ConnectorSpecification
from agiledart_dataflow.plan.deployment import DeploymentPart, InstanceAddress, RestoreFrom, SnapshotChain
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId


class Replied(Effect, frozen=True, gc=False):
    """The JSON document that answers a user's request; a driver may add fields of its own (`Info`)."""

    request: int
    body: dict[str, Any]


class Progressed(Effect, frozen=True, gc=False):
    """A line of progress for a waiting user."""

    request: int
    text: str


class RefusedRequest(Effect, frozen=True, gc=False):
    """The reason why a request failed, and the advice. Exit code of a command line: 1 failed, 2 usage.

    Args:
        reason: one of `permissions.REFUSALS`, for counters, when the requester lacks a permission; else empty.
    """

    request: int
    text: str
    exit_code: int = 1
    reason: str = ""


class PrepareExecutors(Effect, frozen=True, gc=False):
    """Start the executors of these slots and load the code now, because instances of this application will follow.

    A hint that saves time, without an answer: `StartInstances` starts missing executors. `part` has the bundle, no
        instances.
    """

    part: DeploymentPart
    slots: tuple[int, ...]


class StartInstances(Effect, frozen=True, gc=False):
    """Start these instances, without reading sources yet.

    `Completed.result`: dict (stage, index) → data address `host:port`, of every instance of the part.
    `Failed.reason`: for the user, naming step and node (`trips: /data/x.csv.gz does not exist on pi2`).

    Args:
        since: state to restore; the instances listen, and `LinkInstances` connects them to their receivers. None: empty state.
        plan_name: name of the part's plan, as in barriers that carry a change.
    """

    request: int
    part: DeploymentPart
    since: RestoreFrom | None = None
    plan_name: bytes = b""


class HoldLocalStandby(Effect, frozen=True, gc=False):
    """Hold executors ready for the next attempt of a run: their code is loaded, and they have the state of these instances.

    Comes again with each committed epoch. Answered by `Completed` or `Failed`.

    Args:
        part: of this node in the expected attempt.
        standbys: (stage, index) of the instances whose state is built.
        snapshots: their committed snapshots, on this node's disk.
        timeout_ns: time limit.
    """

    request: int
    part: DeploymentPart
    standbys: tuple[tuple[int, int], ...]
    snapshots: tuple[SnapshotChain, ...]
    timeout_ns: int


class ReleaseLocalStandby(Effect, frozen=True, gc=False):
    """End the executors that are held ready for a run's next attempt. May come without need."""

    application: str
    version: int


class CheckCode(Effect, frozen=True, gc=False):
    """Load this code in a separate process and test the sources and sinks among these stages.

    `Completed.result`: a `HostChecked`. `signed_command`: the user's, already verified.
    """

    request: int
    plan: bytes
    bundle: bytes
    stages: tuple[int, ...]
    signed_command: bytes = b""


class LinkInstances(Effect, frozen=True, gc=False):
    """Connect the restored local instances of an application to their receivers. Answered by `Completed` or `Failed`."""

    request: int
    application: str
    version: int
    addresses: tuple[InstanceAddress, ...]


class InjectBarriers(Effect, frozen=True, gc=False):
    """Make the local sources of this application emit the barrier of an epoch after the rows sent so far. May come twice.

    Args:
        before, after: names of the plans before and after the barrier; `after` is empty when it carries no change.
        holds: the sources read nothing more after it.
    """

    application: str
    version: int
    epoch: int
    before: bytes = b""
    after: bytes = b""
    holds: bool = False


class PrepareLocalGeneration(Effect, frozen=True, gc=False):
    """Prepare the instances of a plan that may take effect: they listen, and wait for the state of the previous generation.

    `Completed.result`: dict (stage, index) → data address, as of `StartInstances`, including instances that stay on this node.

    Args:
        part: of that plan, with its new instances on this node, if any.
        plan_name: name of the plan in barriers and executors.
    """

    request: int
    part: DeploymentPart
    plan_name: bytes


class ConnectLocalGeneration(Effect, frozen=True, gc=False):
    """Connect the instances of a prepared plan: every participant is ready and listens. Answered by `Completed` or `Failed`."""

    request: int
    part: DeploymentPart
    plan_name: bytes
    addresses: tuple[InstanceAddress, ...]


class HandOverState(Effect, frozen=True, gc=False):
    """Pass an old instance's snapshot at a change's barrier to the instances that wait for its groups; it is on this node's disk.

    Args:
        before: digests of the snapshots that it builds on, a full one first.
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
    """Let waiting instances build committed snapshots of old instances from this node's disk, while the old instances still run.

    Answered by `Completed` or `Failed`.

    Args:
        snapshots: each with the snapshots that it builds on.
        timeout_ns: time limit.
    """

    request: int
    application: str
    version: int
    plan_name: bytes
    snapshots: tuple[SnapshotChain, ...]
    timeout_ns: int


class DropLocalGeneration(Effect, frozen=True, gc=False):
    """Drop a prepared plan: end the instances that were prepared for it and have not begun."""

    application: str
    version: int
    plan_name: bytes


class CommitEpochRows(Effect, frozen=True, gc=False):
    """Make the local sinks of this application commit the rows of a committed epoch. May come twice."""

    application: str
    version: int
    epoch: int


class CommitLogs(Effect, frozen=True, gc=False):
    """Publish the rows of local sinks after the run ended with an epoch, even if their process has died.

    Answered by `Completed` once they are published, or `Failed`.

    Args:
        digests: of the snapshots of its sinks on this node.
    """

    request: int
    application: str
    version: int
    epoch: int
    digests: tuple[bytes, ...]


class SyncSourceLogs(Effect, frozen=True, gc=False):
    """Force the rows that the local sources of this application have sent to the disk. Answered by `Completed` or `Failed`."""

    request: int
    application: str
    version: int


class KeepFile(Effect, frozen=True, gc=False):
    """Write a small file of a run to the disk. `Completed` when it survives a power cut, else `Failed`."""

    request: int
    application: str
    version: int
    name: str
    content: bytes


class KeepEndedRecords(Effect, frozen=True, gc=False):
    """Keep exactly these records of ended applications on the disk, encoded; they replace the ones before."""

    records: tuple[bytes, ...]


class RetainSnapshots(Effect, frozen=True, gc=False):
    """Keep only these snapshots of a run on this node, and those of later checkpoints.

    An executor may have written later ones that it has not reported yet.

    Args:
        attempt, epoch: of the checkpoint; the attempt is the one in frames.
    """

    application: str
    version: int
    digests: tuple[bytes, ...]
    attempt: int
    epoch: int


class DropSnapshots(Effect, frozen=True, gc=False):
    """Delete copies of snapshots that were fetched for a plan that will not take effect."""

    application: str
    version: int
    digests: tuple[bytes, ...]


class ForgetPart(Effect, frozen=True, gc=False):
    """Delete the code and snapshots of a run that this node no longer hosts; its vote and the attempts it entered stay."""

    application: str
    version: int


class ForgetRun(Effect, frozen=True, gc=False):
    """Delete everything of this run on this node but committed rows.

    Args:
        digests: of the snapshots of its sinks on this node in the last committed epoch: rows that they commit are published first,
            and later rows are discarded.
        why: reason of its end, in words; empty: it has finished.
    """

    application: str
    version: int
    digests: tuple[bytes, ...] = ()
    why: str = ""


class StartLocalSources(Effect, frozen=True, gc=False):
    """Start the local sources of this application; nothing to do without one. May come twice."""

    application: str
    version: int


class DrainLocalSources(Effect, frozen=True, gc=False):
    """Make the local sources of this application stop reading and end with END_OF_INPUT. May come twice."""

    application: str
    version: int


class EndAgent(Effect, frozen=True, gc=False):
    """End the agent's process after this node was drained; it leaves the ring first."""


class StopInstances(Effect, frozen=True, gc=False):
    """End the local executors of this application now; the node expects no further report of it. May come twice or without need."""

    application: str
    version: int


class SourceSession(msgspec.Struct, frozen=True, gc=False):
    """Instance of a source for which its system may keep a session.

    Args:
        connector: names the system.
        step, index: the source's name and the number of the instance.
    """

    connector: ConnectorSpecification
    step: str
    index: int


class EndSourceSessions(Effect, frozen=True, gc=False):
    """Let the systems that sources read from forget what they keep for a run that has ended for good.

    `signed_command`: the user's, already verified.
    """

    application: str
    version: int
    sessions: tuple[SourceSession, ...]
    signed_command: bytes = b""


class ReadTap(Effect, frozen=True, gc=False):
    """Sample the rows that leave this step in the local executors for some seconds more, and return those after this number.

    `Completed.result`: `agiledart_node.wire.formation_messages.TapRows` (its `request` carries no meaning).
    """

    request: int
    application: str
    version: int
    step: str
    after: int


class BansChanged(Effect, frozen=True, gc=False):
    """Apply bans: close the links of these keys, refuse new ones, and keep the bans on the disk.

    Args:
        until: keys and hashes of links → seconds since 1970 at which each ban ends.
        signed_commands: all known bans, signed.
    """

    until: dict[bytes, int]
    signed_commands: tuple[bytes, ...]


class KeyDecision(Effect, frozen=True, gc=False):
    """Decision whether a key that joins with a token is admitted.

    Args:
        reason: one of `registrations.REFUSALS`, `detail` for people; empty: it is admitted and counted.
        number: ordinal of this use of its token, from 1; `wall_seconds`: time of the admission.
    """

    request: int
    reason: str = ""
    detail: str = ""
    number: int = 0
    wall_seconds: int = 0


class SignRenewal(Effect, frozen=True, gc=False):
    """Sign a member's link again, if it may stay; answered by `Completed` with the chain, or `Failed`.

    Args:
        node: the requester; the chain must be its own, or its operator's.
        token: record of the token with which it joined.
        host: the requester's own chain, when `chain` is its operator's.
    """

    request: int
    node: NodeId
    chain: tuple[bytes, ...]
    token: bytes
    host: tuple[bytes, ...] = ()


class MembershipRenewed(Effect, frozen=True, gc=False):
    """New chain of this node or of its operator; empty, with a reason: the renewal failed."""

    request: int
    chain: tuple[bytes, ...]
    reason: str = ""


class ReadLogs(Effect, frozen=True, gc=False):
    """Read lines of this application after this number, at most `limit`, oldest first.

    `Completed.result`: tuple of `agiledart_node.wire.formation_messages.LogLine`; empty when there are none.
    """

    request: int
    application: str
    after: int
    limit: int
