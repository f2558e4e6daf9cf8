"""Model of stages in sequence under a scaling policy, with bounded queues, back-pressure, noise and delayed changes.

Time advances in ticks of 0.1 s. The instances of a stage take rows from one queue. A full queue blocks the upstream stage; rows
that the first stage cannot take wait at the source. Every 5 s the model measures the true rates of each stage, adds noise, and
asks the policy. A change takes effect after `START_S` and stops the stage for `CHANGE_PAUSE_S`. An arriving row waits until the
slowest stage has processed all rows before it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agiledart_experiments.scaling.noise import normal
from agiledart_kernel.randomness import RandomStream
from agiledart_scaling.kinds.straggler import slow_intervals, straggler
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.scaling_policy import ScalingPolicy

TICKS_PER_SECOND = 10
INTERVAL_S = 5
START_S = 1.5
CHANGE_PAUSE_S = 0.3
MEASURING_NOISE = 0.05
LOAD_NOISE = 0.15
"""Relative standard deviations of a measured rate, and of the rows of a tick."""

HIGH = 64
"""Upper limit of every stage."""

Load = Callable[[float], float]
"""Function from a second of the run to rows/s."""


@dataclass
class QueueStage:
    """Stage whose instances take rows from one queue.

    Attributes:
        rate: rows/s of one instance.
        instances: number of instances.
        selectivity: rows out for each row in.
        queue_capacity: rows that the queue may hold for each instance.
        slow: factor on the rate of slow instances, by index.
        bend: share by which each further instance slows all others, since instances share cores.
    """

    rate: float
    instances: int
    selectivity: float = 1.0
    queue_capacity: int = 300
    slow: dict[int, float] = field(default_factory=dict)
    bend: float = 0.0
    queue: float = 0.0
    stopped: int = 0
    pending: tuple[int, int] | None = None
    has_worked: bool = False
    memory: object = None
    slow_for: tuple[int, ...] = ()
    waiting: list[float] = field(default_factory=list)

    def rate_of(self, index: int) -> float:
        """Return the present rows/s of one instance."""
        return self.rate * self.slow.get(index, 1.0) / (1.0 + self.bend * (self.instances - 1))

    @property
    def capacity(self) -> float:
        """Return the rows/s of the stage. Rows are distributed evenly, so the slowest instance limits all."""
        return self.instances * min(self.rate_of(index) for index in (0, *self.slow) if index < self.instances)


@dataclass(frozen=True, slots=True)
class InstanceChange:
    """Change of a stage's number of instances, or (`before == after`) replacement of a slow instance."""

    second: float
    stage: int
    before: int
    after: int


@dataclass
class LoopRun:
    """Record of one run.

    Attributes:
        waits: for each tick, the seconds that a row arriving in it waits.
        changes: changes of all stages, in order.
        instance_seconds: instance seconds of all stages.
        most: largest number of instances of each stage.
    """

    waits: list[float] = field(default_factory=list)
    changes: list[InstanceChange] = field(default_factory=list)
    instance_seconds: float = 0.0
    most: list[int] = field(default_factory=list)


class ClosedLoop:
    """Simulation of stages, their source, and the policy that scales each stage."""

    def __init__(
        self, stages: Sequence[QueueStage], load: Load, policy: ScalingPolicy, seed: int, *, carries: bool = True
    ) -> None:
        """Create a simulation at its start.

        Args:
            stages: the stages, upstream first.
            load: rows/s of the source.
            policy: the policy that scales each stage.
            seed: seed of the noise.
            carries: whether the policy receives the demand at the sources; else it receives the rows that reach the stage.
        """
        self.stages = list(stages)
        self.run = LoopRun(most=[stage.instances for stage in stages])
        self._load, self._policy, self._carries = load, policy, carries
        self._random = RandomStream(seed, "closed loop")
        self._spool = 0.0
        self._second = 0.0
        self._seconds: list[float] = []
        self._arrived = [0.0] * len(self.stages)

    def go(self, seconds: int) -> LoopRun:
        """Simulate this number of seconds, and return the record of the run."""
        for tick in range(seconds * TICKS_PER_SECOND):
            self._tick(tick)
            if (tick + 1) % TICKS_PER_SECOND == 0:
                self._end_of_second()
            if (tick + 1) % (INTERVAL_S * TICKS_PER_SECOND) == 0:
                self._decide(tick + 1)
        return self.run

    def _tick(self, tick: int) -> None:
        now = tick / TICKS_PER_SECOND
        came = max(0.0, normal(self._random, 1.0, LOAD_NOISE)) * self._load(now) / TICKS_PER_SECOND
        self._spool += came
        self._second += came
        for stage in self.stages:
            if stage.pending and tick >= stage.pending[0]:
                stage.instances, stage.stopped, stage.pending = (
                    stage.pending[1],
                    round(CHANGE_PAUSE_S * TICKS_PER_SECOND),
                    None,
                )
            self.run.instance_seconds += stage.instances / TICKS_PER_SECOND
        # Downstream first: the upstream stage can use the freed capacity in the same tick.
        for index in range(len(self.stages) - 1, -1, -1):
            self._work(index)
        first = self.stages[0]
        taken = min(self._spool, max(0.0, first.queue_capacity * first.instances - first.queue))
        self._spool -= taken
        first.queue += taken
        self._arrived[0] += taken
        self.run.waits.append(self._wait())

    def _work(self, index: int) -> None:
        stage = self.stages[index]
        can = stage.capacity / TICKS_PER_SECOND if not stage.stopped else 0.0
        stage.stopped = max(0, stage.stopped - 1)
        downstream = self.stages[index + 1] if index + 1 < len(self.stages) else None
        if downstream:
            can = min(
                can, max(0.0, downstream.queue_capacity * downstream.instances - downstream.queue) / stage.selectivity
            )
        done = min(can, stage.queue)
        stage.queue -= done
        stage.has_worked = stage.has_worked or done > 0
        if downstream:
            downstream.queue += done * stage.selectivity
            self._arrived[index + 1] += done * stage.selectivity

    def _wait(self) -> float:
        work, pace, rows = self._spool, float("inf"), 1.0
        for stage in self.stages:
            work += stage.queue / rows
            pace = min(pace, stage.capacity / rows)
            rows *= stage.selectivity
        return work / pace

    def _end_of_second(self) -> None:
        self._seconds.append(self._second)
        self._second, rows = 0.0, 1.0
        for stage in self.stages:
            stage.waiting.append(stage.queue + self._spool * rows)
            rows *= stage.selectivity

    def _decide(self, tick: int) -> None:
        rows = 1.0
        for index, stage in enumerate(self.stages):
            measured = tuple(
                stage.rate_of(number) * max(0.2, normal(self._random, 1.0, MEASURING_NOISE))
                for number in range(stage.instances)
            )
            even = (1.0 / stage.instances,) * stage.instances
            arrived = self._arrived[index] / INTERVAL_S
            offered = tuple(rate * rows for rate in self._seconds) if self._carries else (arrived,) * INTERVAL_S
            backlog = tuple(stage.waiting) if self._carries else (stage.queue,)
            rows *= stage.selectivity
            if stage.has_worked and not stage.pending:
                self._ask(tick, index, StageMeasures(measured, even, offered, backlog))
            self._switch_over(tick, index, measured)
            stage.has_worked = False
            stage.waiting = []
        self._seconds = []
        self._arrived = [0.0] * len(self.stages)

    def _ask(self, tick: int, index: int, measures: StageMeasures) -> None:
        stage = self.stages[index]
        decision = self._policy.decide(measures, Limits(1, HIGH), stage.memory)
        stage.memory = decision.memory
        if decision.wanted != stage.instances:
            stage.pending = (tick + round(START_S * TICKS_PER_SECOND), decision.wanted)
            self.run.changes.append(InstanceChange(tick / TICKS_PER_SECOND, index, stage.instances, decision.wanted))
            self.run.most[index] = max(self.run.most[index], decision.wanted)

    def _switch_over(self, tick: int, index: int, measured: tuple[float, ...]) -> None:
        """Move the slow instance of a stage, if there is one, to a node where it is as fast as the others."""
        stage = self.stages[index]
        if not stage.slow:
            return
        stage.slow_for = slow_intervals(measured, stage.slow_for)
        slow_index = straggler(measured, stage.slow_for)
        if slow_index is not None and stage.slow.pop(slow_index, None) is not None:
            stage.stopped = round(CHANGE_PAUSE_S * TICKS_PER_SECOND)
            self.run.changes.append(InstanceChange(tick / TICKS_PER_SECOND, index, stage.instances, stage.instances))
