"""Named events of a take-over by a standby, for campaigns."""

from collections.abc import Callable

from agiledart_recovery.wire.effects import EnterAttempt, HoldStandby, ReleaseStandby

TOOK_OVER = "standby took over"
UP_TO_DATE = "standby was up to date"


def count_standby(
    reached: Callable[[str], None], held: HoldStandby | ReleaseStandby | None, entry: EnterAttempt
) -> None:
    """Count the events of an attempt on a node by what it held ready before."""
    mine = {assignment.instance: None for assignment in entry.assignments}
    if not isinstance(held, HoldStandby) or held.attempt >= entry.attempt:
        return
    for instance in (assignment.instance for assignment in held.assignments if assignment.instance in mine):
        reached(TOOK_OVER)
        ready = [saved.checkpoint for saved in held.saved if saved.instance == instance]
        if ready == [saved.checkpoint for saved in entry.saved if saved.instance == instance]:
            reached(UP_TO_DATE)
