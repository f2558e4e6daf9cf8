"""What a `Node` asks of its driver, beside the kernel's and the overlay's effects.

Effects with a `request` number are answered by `Completed` or `Failed` with that number; numbers are the node's
own, another space than the numbers of `Asked`. All others are done and forgotten.
"""

from typing import Any

from agiledart_dataflow.plan.deployment import DeploymentPart, InstanceAddress, RestoreFrom
from agiledart_kernel.machine import Effect


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
    """

    request: int
    part: DeploymentPart
    since: RestoreFrom | None = None


class CheckCode(Effect, frozen=True, gc=False):
    """Load this code in a process of its own and try the sources and sinks among these stages.

    `Completed.result`: a `HostChecked`.
    """

    request: int
    plan: bytes
    bundle: bytes
    stages: tuple[int, ...]


class LinkInstances(Effect, frozen=True, gc=False):
    """Join the restored local instances of an application with what they send to. Answered by `Completed` or `Failed`."""

    request: int
    application: str
    version: int
    addresses: tuple[InstanceAddress, ...]


class PassBarrier(Effect, frozen=True, gc=False):
    """The local sources of this application put the barrier of an epoch behind what they have sent. May come twice."""

    application: str
    version: int
    epoch: int


class CountEpoch(Effect, frozen=True, gc=False):
    """An epoch is committed: the local sinks of this application let its rows count. May come twice."""

    application: str
    version: int
    epoch: int


class KeepFile(Effect, frozen=True, gc=False):
    """Put a small file of a run on the disk. `Completed` when no power cut takes it away any more, else `Failed`."""

    request: int
    application: str
    version: int
    name: str
    content: bytes


class KeepElements(Effect, frozen=True, gc=False):
    """Of a run's elements here only these are needed any more."""

    application: str
    version: int
    digests: tuple[bytes, ...]


class ForgetPart(Effect, frozen=True, gc=False):
    """This node hosts nothing of this run any more: its code and elements may go; what it votes and has entered stays."""

    application: str
    version: int


class ForgetRun(Effect, frozen=True, gc=False):
    """Nothing of this run is needed here any more but committed rows."""

    application: str
    version: int


class StartSources(Effect, frozen=True, gc=False):
    """The local sources of this application begin to read; nothing to do without one. May come twice."""

    application: str
    version: int


class DrainSources(Effect, frozen=True, gc=False):
    """The local sources of this application read nothing more and end with END_OF_INPUT. May come twice."""

    application: str
    version: int


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


class ReadLogs(Effect, frozen=True, gc=False):
    """Lines of this application after this number, at most `limit`, oldest first.

    `Completed.result`: tuple of `agiledart_node.wire.formation_messages.LogLine`; empty when there are none.
    """

    request: int
    application: str
    after: int
    limit: int
