"""J1 and J2: each engine twice a round, small and large, all in random order; results compared with the plain loop's."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.engines import setup
from benchmarks.engines.catalogue import ComparedEngine
from benchmarks.engines.data import file_of
from benchmarks.engines.jobs import same
from benchmarks.engines.pairing import shuffled
from benchmarks.engines.running import EngineRun, RunError, run

TIMEOUT = 300.0

PrintLine = Callable[[str], None]


@dataclass
class JobFigures:
    """One job's figures, by engine and round.

    Attributes:
        cpu: CPU seconds per million tuples, marginal.
        rate: tuples per second of the large run, from the first tuple to the last result.
        startup: CPU seconds of a run that are not the tuples'.
        memory: largest resident memory of a process, in MB.
        others: cores that others used.
        wrong: faults of the result, by engine; such a run gives no figures.
        runs: everything that was measured, for the file.
    """

    job: str
    cpu: dict[str, dict[int, float]] = field(default_factory=dict)
    rate: dict[str, dict[int, float]] = field(default_factory=dict)
    startup: dict[str, dict[int, float]] = field(default_factory=dict)
    memory: dict[str, dict[int, float]] = field(default_factory=dict)
    others: list[float] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)


class Throughput:
    """Carries out rounds of one job.

    Args:
        job: which.
        engines: that take part.
        size: tuples of a plain engine's large run.
        seed: of the order.
    """

    def __init__(
        self, job: str, engines: Sequence[ComparedEngine], size: int, seed: int, print_line: PrintLine
    ) -> None:
        self.figures = JobFigures(job)
        self._engines = [engine for engine in engines if job in engine.jobs]
        self._size, self._seed, self._print_line = size, seed, print_line
        self._expected: dict[int, dict[str, Any]] = {}

    def round(self, number: int) -> None:
        """Run every engine at both sizes."""
        job = self.figures.job
        tasks = [(engine, large) for engine in self._engines for large in (False, True)]
        done: dict[tuple[str, bool], tuple[int, EngineRun]] = {}
        for engine, large in shuffled(tasks, self._seed, number):
            if engine.name in self.figures.wrong:
                continue
            count = engine.sizes(job, self._size)[large]
            try:
                done[engine.name, large] = (count, self._one(engine, count, number))
            except RunError as error:
                self.figures.wrong[engine.name] = str(error)
                self._print_line(f"  {engine.name}: {error}")
        for engine in self._engines:
            if (engine.name, False) in done and (engine.name, True) in done:
                self._keep(engine.name, number, *done[engine.name, False], *done[engine.name, True])

    def _one(self, engine: ComparedEngine, count: int, number: int) -> EngineRun:
        path = file_of(setup.FOLDER / "data", count)
        ran = run(engine.command(self.figures.job, path), TIMEOUT)
        if difference := same(ran.result, self._expect(count)):
            raise RunError(f"its result is wrong: {difference}")
        self._print_line(
            f"  round {number}: {engine.name:20} {count:>9,} tuples {ran.cpu_seconds:7.2f} CPU s"
            f" {ran.result['seconds']:7.2f} s   others {ran.others:.1f} cores"
        )
        self.figures.others.append(ran.others)
        self.figures.runs.append(
            {
                "engine": engine.name,
                "job": self.figures.job,
                "round": number,
                "tuples": count,
                "cpu_seconds": round(ran.cpu_seconds, 4),
                "wall_seconds": round(ran.wall_seconds, 4),
                "memory_mb": round(ran.memory_mb, 1),
                "others_cores": round(ran.others, 2),
                **ran.result,
            }
        )
        return ran

    def _expect(self, count: int) -> dict[str, Any]:
        """Return the plain loop's result for the same tuples; computed once, not measured."""
        if count not in self._expected:
            path = str(file_of(setup.FOLDER / "data", count))
            command = [sys.executable, "-m", "benchmarks.engines.others.plain", self.figures.job, path]
            result = run(command, TIMEOUT).result
            result.pop("seconds")
            self._expected[count] = result
        return self._expected[count]

    def _keep(self, name: str, number: int, few: int, small: EngineRun, many: int, large: EngineRun) -> None:
        cpu = (large.cpu_seconds - small.cpu_seconds) / (many - few)
        figures = self.figures
        figures.cpu.setdefault(name, {})[number] = cpu * 1e6
        figures.rate.setdefault(name, {})[number] = many / large.result["seconds"]
        figures.startup.setdefault(name, {})[number] = small.cpu_seconds - cpu * few
        figures.memory.setdefault(name, {})[number] = large.memory_mb
