"""Figures of recovery; durations are nanoseconds."""

from dataclasses import dataclass

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class RecoveryConfig:
    """How often, how long, how many.

    Args:
        checkpoint_interval_ns: from the beginning of one epoch to that of the next; shorter replays less and sends more.
        epoch_timeout_ns: an epoch that is not complete by then is passed over; the next has up to four times as long.
        handover_timeout_ns: an epoch that carries a change and is not committed by then ends in a roll-back.
        quick_epoch_ns: an epoch that took at most this is short enough for the next to carry a change.
        prepare_timeout_ns: a change whose new places are not ready by then is let go.
        reset_timeout_ns: who has not answered a RESET by then is left out by the next life.
        gather_ns: the same after taking over, when hosts may still be starting (a power cut).
        tick_ns: a coordinator says that it is there, and repeats what was not answered.
        silence_ns: a voter that hears no coordinator for so long prepares; the n-th nearest waits n times half of it longer.
        voter_patience_ns: a voter that answered nothing for so long is replaced.
        room_retry_ns: how often a run that waits for a host looks again.
        attempts, attempts_window_ns: so many new lives within so long that commit no epoch, then the run fails.
        pause_max_ns: between two lives pass 0, 1, 2, 4 … seconds, at most this.
        m, k: raw and parity fragments of an element: any m of the m + k rebuild it.
        ack_timeout_ns: holders that have not acknowledged by then are replaced, and an element is recorded as degraded.
        slowest_ns: more of that for each byte of an element; an uplink that is slower does not carry its epochs.
        state_patience_ns: for twice so long a host that could not enter a life is given nothing that others can take.

    Raises:
        ConfigurationError: by `validate`, when figures do not go together.
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
        """Raise ConfigurationError when figures do not go together."""
        if self.silence_ns < 2 * self.tick_ns:
            raise ConfigurationError(
                "silence must be at least two ticks, else each lost message makes a new coordinator"
            )
        if self.m < 1 or self.k < 0 or self.m + self.k > 256:
            raise ConfigurationError(f"m = {self.m}, k = {self.k}: at least one raw fragment, at most 256 in all")
        if self.max_restarts < 1 or self.epoch_timeout_ns < self.tick_ns or self.reset_timeout_ns < self.tick_ns:
            raise ConfigurationError("attempts must be at least 1, and timeouts at least one tick")
