"""The run and the step that a sink writes for, and the output that is committed when it is opened again."""

from dataclasses import dataclass
from pathlib import Path

from agiledart_sink_log.log_writer import LOCK_SECONDS


@dataclass(frozen=True, slots=True)
class CommittedOutput:
    """What a sink that is opened again has to keep.

    Args:
        ends: of each part; what lies behind is cut off.
        identity: of the log that they count in, which another node goes on with; "": it stays where it is.
        is_brought: the identity is what another run has said of its own, with whose state this one begins.
    """

    ends: tuple[int, ...]
    identity: str = ""
    is_from_other_run: bool = False


@dataclass(frozen=True)
class SinkOrigin:
    """Who writes, below which folder, and how.

    Attributes:
        patience: seconds for which a log that is being written is waited for.
        by_epoch: the run is saved by epochs: rows count when one is committed, not when they are flushed.
        keep: then: what the run's register has committed; None: what is there.
        owner: the key that the application belongs to.
        run: number of the run; 0: there is none.
        step: name of the sink.
        goes_on: the run begins with the state of another one, whose rows in a file stay.
        shows_at_once: of a run saved by epochs: rows count when they are flushed all the same, and none is taken back.
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
        """Rows count when their epoch is committed, and what is behind the last one is taken back."""
        return self.by_epoch and not self.emits_at_once
