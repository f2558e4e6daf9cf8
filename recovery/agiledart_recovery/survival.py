"""Choice of the rule by which each part of a run survives the loss of its node. Pure; a run that saves less follows it.

The choice is made at submission from the graph. For a step with state it is made again at each snapshot, by the snapshot's size.

| a step | how it survives | [AgileDART] §IV-D |
|---|---|---|
| without state | `RESTARTED`: elsewhere; its counts are in the register | no state recovery: restart elsewhere, resume |
| with state up to 1 MiB | `COPIED`: whole copies on k + 1 other machines | small state: the checkpoint is replicated |
| with more state | `CODED`: m + k fragments, any m of which rebuild it | large state: erasure-coded, recovered in parallel |
| with state, and no other node is known | `KEPT`: on its own disk only | (needs neighbours) |

| a source | what is read of its rows after the last epoch |
|---|---|
| whose rows go to a log in any case (spool), or were confirmed to their sender | `LOG`: the log on its node's disk |
| whose rows a merge by position must see again, and whose input or clock cannot repeat them | `LOG`, too |
| that follows a file | `FOLLOWED`: the file, unless it was rotated meanwhile |
| whose input can be read again | `AGAIN`: the input, from its position in the register |
| any other | `LOST`: nothing; rows in flight are lost and counted |

Departs: the paper restarts a step with short-lived state as if it had none, because recovery costs more than the loss. Here no row
is lost. Such a state is small, so it is copied. To rewind its source instead would count rows twice in each other saved state.
"""

from enum import StrEnum
from typing import Final, NamedTuple

SMALL_STATE_BYTES: Final = 1 << 20
"""Up to this size a snapshot is copied: splitting a small one costs more messages than it saves bytes."""


class Survival(StrEnum):
    """Rule by which a step survives; the module's head has the table."""

    RESTARTED = "restarted"
    COPIED = "copied"
    CODED = "coded"
    KEPT = "kept"


class Rewind(StrEnum):
    """Input from which a restarted run reads a source's rows after its last epoch; the module's head has the table."""

    AGAIN = "again"
    LOG = "log"
    FOLLOWED = "followed"
    LOST = "lost"


class SourceTraits(NamedTuple):
    """Properties of a source that decide what can be read of it again.

    Args:
        rereads: its input, opened again, gives the same rows.
        confirms: it confirms rows to their sender, which will not send them again.
        follows: it reads a file that grows and may be rotated.
        spools: rows that exceed the capacity wait on its disk.
        is_clocked: a clock decides which of its rows are late.
        merges: a merge by position takes its rows and those of other sources.
    """

    rereads: bool
    confirms: bool = False
    follows: bool = False
    spools: bool = False
    is_clocked: bool = False
    merges: bool = False


def survival_of(length: int, machines: int, *, has_state: bool) -> Survival:
    """Return how a step survives.

    Args:
        length: of its snapshot, in bytes.
        machines: other machines that could hold it.
        has_state: it remembers rows.
    """
    if not has_state:
        return Survival.RESTARTED
    if not machines:
        return Survival.KEPT
    return Survival.COPIED if length <= SMALL_STATE_BYTES else Survival.CODED


def rewind_of(source: SourceTraits) -> Rewind:
    """Return what a restarted run reads of a source's rows after its last epoch."""
    must_repeat = source.merges and (source.is_clocked or not source.rereads)
    if source.follows:
        return Rewind.FOLLOWED
    if source.spools or source.confirms or must_repeat:
        return Rewind.LOG
    return Rewind.AGAIN if source.rereads else Rewind.LOST
