"""What a turn is told and what it tells, the same of each engine."""

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
"""From the failure, whose CPU time counts, of each engine as long: recovery, replay, the killed host started again if it was by
then, and what the job costs anyway. Of an engine that takes longer to come back the rest is not counted.
"""

ASK_SECONDS: Final = 0.25

TIMEOUT_S: Final = 240.0
"""With one step; a busy machine and settings as they come may take a minute."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class RecoveryLoad:
    """The job of the experiment `pull-the-plug` at one of its scales.

    Attributes:
        scale: its name there.
        keys: that each come once within `load_ms`.
        load_ms: of the input's time.
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
    """As the experiment has it."""
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
        committed_s: from the failure to the first checkpoint after it, asked for from the next result on; a transactional
            sink shows that result then.
        cpu_s: of all processes of the engine, for `window_s` from the failure.
        window_s: `WINDOW_SECONDS`, and up to the next look at CPU time.
        steady_cores: CPU seconds a second before the failure.
        load: of the machine in the minute before the failure; everybody's.
    """

    next_result_s: float
    committed_s: float
    cpu_s: float
    window_s: float
    steady_cores: float
    load: float


@dataclass(frozen=True)
class FailureRun:
    """What one failure did to one engine.

    Attributes:
        engine: its name.
        number: of the round.
        strike: the failure.
        rows: that the result should have.
        lost: that it has not.
        twice: that it has more than once, or that are wrong.
    """

    engine: str
    number: int
    strike: Strike
    rows: int
    lost: int
    twice: int


@dataclass(frozen=True)
class Victim:
    """How a host of a running job is killed, and what is seen of it.

    Attributes:
        kill: SIGKILL to all of its processes.
        is_committed: whether there is a checkpoint since it was killed; None: not yet.
        next_result: seconds from a moment to the next result after it; None: not yet.
        restart: starts it again, as whoever watches over a machine would; then it is a spare.
    """

    kill: Callable[[], None]
    is_committed: Callable[[], object | None]
    next_result: Callable[[float], float | None]
    restart: Callable[[], None]


def gently(look: Callable[[], object | None]) -> object | None:
    """A look that costs the engine an answer; one in a quarter of a second, and one that is not answered is no answer."""
    time.sleep(ASK_SECONDS)
    with contextlib.suppress(OperationFailed):
        return look()
    return None


def strike(usage: Usage, random: RandomStream, interval: int, choose: Callable[[], Victim]) -> Strike:
    """One failure at a random moment of an interval; when a checkpoint begins is the engine's own affair.

    Raises `OperationFailed` when the job does not come back.
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
