"""The run and the step that a sink writes for, and the output that is committed when it is opened again."""

from dataclasses import dataclass
from pathlib import Path

from agiledart_sink_log.log_writer import LOCK_SECONDS


@dataclass(frozen=True, slots=True)
class CommittedOutput:
    """Committed output that a sink has to keep when it is opened again.

    Args:
        ends: committed end of each part; the sink cuts off all that follows.
        identity: of the log that the ends refer to, which another node continues; "": it stays where it is.
        is_from_other_run: the identity is from another run, whose state this one begins with.
    """

    ends: tuple[int, ...]
    identity: str = ""
    is_from_other_run: bool = False


@dataclass(frozen=True)
class SinkOrigin:
    """Owner, folder and mode of a sink's writing.

    Attributes:
        lock_timeout_s: seconds to wait for a log that another process writes.
        by_epoch: the run is saved by epochs: rows are committed with one, not when they are flushed.
        keep: then: output that the run's register has committed; None: all that is there.
        owner: key that the application belongs to.
        run: number of the run; 0: none.
        step: name of the sink.
        continues_run: the run begins with the state of another one, whose rows in a file stay.
        emits_at_once: in a run saved by epochs: a flush already commits rows, and none is aborted.
    """

    application: str = ""
    version: int = 0
    root: Path = Path()
    lock_timeout_s: float = LOCK_SECONDS
    by_epoch: bool = False
    keep: CommittedOutput | None = None
    owner: bytes = b""
    run: int = 0
    step: str = ""
    continues_run: bool = False
    emits_at_once: bool = False

    @property
    def waits_for_epochs(self) -> bool:
        """Return whether rows are committed with their epoch, and rows after the last one are aborted."""
        return self.by_epoch and not self.emits_at_once
