"""Parameters and results of a turn, the same for each engine."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agiledart_experiments.recovery import pull_the_plug
from agiledart_experiments.recovery.plug_mesh import until
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.randomness import RandomStream
from benchmarks.engines.recovery.usage import Usage

STEADY_SECONDS: Final = 10.0
"""Before the failure, in which is seen what the job costs undisturbed."""

WINDOW_SECONDS: Final = 30.0
"""Span after the failure whose CPU time counts, the same for each engine: recovery, replay, the killed host if restarted in time,
and the job's steady cost. CPU time of a recovery that takes longer is not counted beyond it.
"""

ASK_SECONDS: Final = 0.25

TIMEOUT_S: Final = 240.0
"""With one step; a busy machine and settings as they come may take a minute."""

PrintLine = Callable[[str], None]


@dataclass(frozen=True)
class RecoveryLoad:
    """The job of the experiment `pull-the-plug` at one of its scales.

    Attributes:
        scale: its name there.
        keys: number of keys, each of which comes once within `load_ms`.
        load_ms: milliseconds of the input's time.
        rows_a_second: afterwards.
        notes: characters kept with a key.
        interval: seconds between two checkpoints.
    """

    scale: str
    keys: int
    load_ms: int
    rows_a_second: int
    padding_bytes: int
    interval: int


def load_of(scale: str) -> RecoveryLoad:
    """Return the experiment's load at this scale."""
    return RecoveryLoad(
        scale,
        pull_the_plug.KEYS[scale],
        pull_the_plug.LOAD_MS[scale],
        pull_the_plug.ROWS_A_SECOND,
        pull_the_plug.PADDING_BYTES,
        pull_the_plug.INTERVAL[scale],
    )


@dataclass(frozen=True)
class Strike:
    """One failure of a running job.

    Attributes:
        next_result_s: from the failure to the first row beyond all that were there before.
        committed_s: from the failure to the first checkpoint after it, polled for from the next result on; a transactional
            sink emits that result then.
        cpu_s: of all processes of the engine, for `window_s` from the failure.
        window_s: `WINDOW_SECONDS`, and up to the next look at CPU time.
        steady_cores: CPU seconds a second before the failure.
        load: of the machine in the minute before the failure, by all processes.
    """

    next_result_s: float
    committed_s: float
    cpu_s: float
    window_s: float
    steady_cores: float
    load: float


@dataclass(frozen=True)
class FailureRun:
    """Effect of one failure on one engine.

    Attributes:
        engine: the engine's name.
        number: the round.
        strike: the failure.
        rows: rows that the result should have.
        lost: rows that are missing.
        twice: rows that are duplicate or wrong.
    """

    engine: str
    number: int
    strike: Strike
    rows: int
    lost: int
    twice: int


@dataclass(frozen=True)
class Victim:
    """Functions that kill a host of a running job and observe the job.

    Attributes:
        kill: SIGKILL to all of its processes.
        is_committed: whether a checkpoint has completed since the host was killed; None: not yet.
        next_result: seconds from a moment to the next result after it; None: not yet.
        restart: starts the host again, as a supervisor would; then it is a spare.
    """

    kill: Callable[[], None]
    is_committed: Callable[[], object | None]
    next_result: Callable[[float], float | None]
    restart: Callable[[], None]


def gently(look: Callable[[], object | None]) -> object | None:
    """Poll the engine, at most every quarter of a second, since each poll costs it an answer. An unanswered poll gives None."""
    time.sleep(ASK_SECONDS)
    with contextlib.suppress(OperationFailed):
        return look()
    return None


def strike(usage: Usage, random: RandomStream, interval: int, choose: Callable[[], Victim]) -> Strike:
    """Cause a failure at a random moment of an interval; the engine itself decides when a checkpoint begins.

    Raises `OperationFailed` when the job does not recover.
    """
    before, began = usage.seconds(), time.monotonic()
    time.sleep(STEADY_SECONDS + random.uniform() * interval)
    steady = (usage.seconds() - before) / (time.monotonic() - began)
    victim = choose()
    load, before, began = os.getloadavg()[0], usage.seconds(), time.monotonic()
    victim.kill()
    came = until(lambda: victim.next_result(began), TIMEOUT_S, "the next result")
    until(lambda: gently(victim.is_committed), TIMEOUT_S, "a checkpoint after the failure")
    committed = time.monotonic() - began
    victim.restart()
    end, used = usage.at(began + WINDOW_SECONDS)
    return Strike(
        round(came, 3),
        round(committed, 3),
        round(used - before, 2),
        round(end - began, 2),
        round(steady, 3),
        round(load, 2),
    )
