"""Response schemas of `scale`, `move` and `drain`, and the changes in `explain scaling`. Conventions as in `responses`."""

import msgspec

from agiledart_node.wire.response import Response


class ChangeRow(Response, frozen=True):
    """A change of one stage: a new assignment generation with other instances, other nodes or another table of owners.

    Args:
        kind: scale, move or drain; `reason`: the user or policy that requested the change.
        state: running, done, let-go (dropped; nothing has changed) or rolled-back (rows since the last epoch were replayed).
        why: reason for which the change was dropped or rolled back.
        moved_groups, moved_bytes: key groups that moved to another node, and the size of their state.
        seconds: from the request to the commit.
        pause_ms: longest pause of the rows of one key group, as the sender measured it: from the last row that an instance of
            the previous generation took to the first row that an instance of the new generation took. Null: not reported yet
            (it comes with the next epoch), or unknown because every stage that sends to this one changed at the same barrier.
        number: index of the stage in the plan; together with `generation` it identifies the change.
    """

    stage: str
    generation: int
    before: int = msgspec.field(name="from")
    after: int = msgspec.field(name="to")
    kind: str
    reason: str
    state: str
    why: str
    moved_groups: int
    moved_bytes: int
    seconds: float
    pause_ms: float | None = None
    number: str = ""


class ChangeResponse(Response, frozen=True):
    """Response to `scale` and `move`: the changes; `is_unchanged`: no change was needed, and none was started."""

    name: str
    version: int
    is_unchanged: bool
    changes: list[ChangeRow]


class EvacuatedApplicationRow(Response, frozen=True):
    """An application that has left a node. `seconds`: from the first request about it to the last acknowledgement."""

    name: str
    version: int
    instances: int
    seconds: float


class DrainResponse(Response, frozen=True):
    """Response to `drain`: the present state of the node.

    Args:
        state: `left` (the ring), `leaving` (the asked agent itself, which ends with this answer), `drained` (it stays in the
            ring and takes no work) or `serving` (it takes work again).
        is_unchanged: the node was in this state already, and nothing was started.
        applications: applications that have left the node.
    """

    node: str
    node_id: str
    state: str
    is_unchanged: bool
    applications: list[EvacuatedApplicationRow]
