"""Settings of recovery; durations are in nanoseconds."""

from dataclasses import dataclass

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class RecoveryConfig:
    """Intervals, timeouts and counts of recovery.

    Args:
        checkpoint_interval_ns: from the start of one epoch to the start of the next. A shorter one replays less and sends more.
        epoch_timeout_ns: an epoch that is not complete by then is aborted; the next one has up to four times as long.
        handover_timeout_ns: an epoch that carries a change and is not committed by then ends in a roll-back.
        quick_epoch_ns: an epoch that took at most this long is short enough for the next one to carry a change.
        prepare_timeout_ns: a change whose new hosts are not ready by then is dropped.
        reset_timeout_ns: the next attempt leaves out a host that has not answered a RESET by then.
        gather_ns: the same after a change of coordinator, when hosts may still be starting (a power cut).
        tick_ns: interval at which a coordinator announces itself and repeats unanswered messages.
        silence_ns: a voter that receives nothing from a coordinator for this long prepares. The n-th nearest voter waits longer, by
            n times half of it.
        voter_timeout_ns: a voter that answered nothing for this long is replaced.
        capacity_retry_ns: how often a run that waits for a host tries again.
        max_restarts, restart_window_ns: the run fails after this many attempts in this window without a committed epoch.
        pause_max_ns: pauses between attempts are 0, 1, 2, 4 … seconds, at most this.
        m, k: raw and parity fragments of a snapshot: any m of the m + k rebuild it.
        ack_timeout_ns: replica nodes that have not acknowledged by then are replaced, and the snapshot is recorded as degraded.
        slowest_ns: extra time per byte of a snapshot. A slower uplink cannot carry its epochs.
        state_timeout_ns: a host that could not enter an attempt gets no movable instance for twice this long.

    Raises:
        ConfigurationError: by `validate`, when settings contradict each other.
    """

    checkpoint_interval_ns: int = 10 * SECOND
    epoch_timeout_ns: int = 60 * SECOND
    handover_timeout_ns: int = 10 * SECOND
    quick_epoch_ns: int = 2 * SECOND
    prepare_timeout_ns: int = 60 * SECOND
    reset_timeout_ns: int = 10 * SECOND
    gather_ns: int = 15 * SECOND
    tick_ns: int = 500 * MILLISECOND
    silence_ns: int = 2 * SECOND
    voter_timeout_ns: int = 60 * SECOND
    capacity_retry_ns: int = 5 * SECOND
    max_restarts: int = 10
    restart_window_ns: int = 600 * SECOND
    pause_max_ns: int = 30 * SECOND
    m: int = 4
    k: int = 2
    ack_timeout_ns: int = 5 * SECOND
    slowest_ns: int = 1_000
    state_timeout_ns: int = 60 * SECOND

    def validate(self) -> None:
        """Raise ConfigurationError when settings contradict each other."""
        if self.silence_ns < 2 * self.tick_ns:
            raise ConfigurationError(
                "silence must be at least two ticks, else each lost message makes a new coordinator"
            )
        if self.m < 1 or self.k < 0 or self.m + self.k > 256:
            raise ConfigurationError(f"m = {self.m}, k = {self.k}: at least one raw fragment, at most 256 in all")
        if self.max_restarts < 1 or self.epoch_timeout_ns < self.tick_ns or self.reset_timeout_ns < self.tick_ns:
            raise ConfigurationError("max_restarts must be at least 1, and timeouts at least one tick")
