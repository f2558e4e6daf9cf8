"""Answers about changes of running stages: `scale`, `move`, `drain`, and the changes in `explain scaling`. As in `bodies`."""

import msgspec


class ChangeRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stage took a new term: other instances, other places, another table of owners; or it was to.

    Args:
        kind: scale, move or drain; `reason`: who asked for it, or what.
        state: running, done, let-go (nothing has changed) or rolled-back (rows since the last epoch came again).
        why: it was let go or rolled back.
        moved_groups, moved_bytes: key groups that went to another node, and their state.
        seconds: from the request to the commit; `pause_ms`: for so long rows of some key group stood still,
            from what an instance of the term before took last to what one of the new term took first, as the sender saw it;
            null: not told yet, which is with the epoch after, or every stage that sends to it changed at the same barrier.
        number: of the stage in the plan; with `term` it names the change.
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


class ChangeResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`scale`, `move`: what was changed; `already`: all was so, and nothing was begun."""

    name: str
    version: int
    is_unchanged: bool
    changes: list[ChangeRow]


class EvacuatedApplicationRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An application that has left a node. `seconds`: from the first word about it to the last acknowledgement."""

    name: str
    version: int
    instances: int
    seconds: float


class DrainResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`drain`: how it stands with the node now.

    Args:
        state: `left` (the ring), `leaving` (the asked agent itself, which ends with this answer), `drained` (it stays, and takes
            nothing) or `serving` (it takes work again).
        already: all was so, and nothing was begun.
        applications: that have left it.
    """

    node: str
    node_id: str
    state: str
    is_unchanged: bool
    applications: list[EvacuatedApplicationRow]
