"""Which engines there are, which jobs each does, how it is started and with how many tuples.

The CPU time of a tuple is marginal: the difference of two runs of different sizes, so that starting, importing and warming up count
for nothing. Sizes differ between engines, because one takes a microsecond a tuple and another a hundred.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.engines import setup

OTHERS = "benchmarks.engines.others"
JOBS = ("j1", "zone", "vehicle")
HEADINGS = {
    "j1": "J1: parse, filter, derive, count",
    "zone": "J2: windows of 1 s by zone (300 keys)",
    "vehicle": "J2: windows of 1 s by vehicle (30,000 keys)",
}

Command = Callable[[str, Path], list[str]]


@dataclass(frozen=True)
class ComparedEngine:
    """One engine in one form.

    Attributes:
        name: in tables and on the command line.
        environment: of `setup`; "" is ours.
        command: (job, file) → what to start.
        jobs: that it does.
        parts: (small, large) as multiples of `--size`, by job; "" for the others.
    """

    name: str
    environment: str
    command: Command
    jobs: tuple[str, ...] = JOBS
    parts: dict[str, tuple[float, float]] = field(default_factory=lambda: {"": (0.2, 1.0)})

    def sizes(self, job: str, size: int) -> tuple[int, int]:
        """Return the numbers of tuples of the small and of the large run."""
        small, large = self.parts.get(job) or self.parts[""]
        return max(1_000, int(small * size)), max(2_000, int(large * size))


_LARGE = {"": (0.8, 4.0)}
_HUGE = {"": (2.0, 8.0)}


def _python(environment: str, module: str, *words: str) -> Command:
    def command(job: str, path: Path) -> list[str]:
        python = str(setup.python_of(environment)) if environment else sys.executable
        return [python, "-m", module, *words, job, str(path)]

    return command


def _columnar(library: str, rows: int) -> ComparedEngine:
    return ComparedEngine(
        f"{library}-{rows}", "columnar", _python("columnar", f"{OTHERS}.columnar", library, str(rows)), parts=_LARGE
    )


def _ours(name: str, form: str, rows: int, jobs: tuple[str, ...] = JOBS) -> ComparedEngine:
    parts = _LARGE if form == "columns" else {"": (0.2, 1.0)}
    return ComparedEngine(name, "", _python("", "benchmarks.engines.ours.one_process", form, str(rows)), jobs, parts)


def _flink(job: str, path: Path) -> list[str]:
    log = setup.HERE / "java" / "log4j2.properties"
    options = [f"-Dlog4j2.configurationFile={log}", "-XX:+UseSerialGC", "-Xmx1g"]
    return ["java", *options, "-cp", setup.flink_classpath(), "FlinkJobs", job, str(path)]


ENGINES: tuple[ComparedEngine, ...] = (
    ComparedEngine("plain", "", _python("", f"{OTHERS}.plain")),
    _columnar("numpy", 1_000),
    _columnar("numpy", 10_000),
    _columnar("polars", 1_000),
    _columnar("polars", 10_000),
    ComparedEngine(
        "bytewax-window",
        "bytewax",
        _python("bytewax", f"{OTHERS}.bytewax_job", "window"),
        parts={"": (0.2, 1.0), "zone": (0.1, 0.4), "vehicle": (0.08, 0.3)},
    ),
    ComparedEngine(
        "bytewax-replay",
        "bytewax",
        _python("bytewax", f"{OTHERS}.bytewax_job", "replay"),
        ("zone", "vehicle"),
        {"": (0.2, 1.0), "vehicle": (0.1, 0.4)},
    ),
    ComparedEngine(
        "bytewax-fold",
        "bytewax",
        _python("bytewax", f"{OTHERS}.bytewax_job", "fold"),
        ("zone", "vehicle"),
        {"": (0.2, 1.0), "vehicle": (0.2, 0.6)},
    ),
    ComparedEngine("flink", "flink", _flink, parts=_HUGE),
    _ours("ours-lines-10", "lines", 10, ("j1",)),
    _ours("ours-lines-100", "lines", 100, ("j1",)),
    _ours("ours-lines", "lines", 1_000),
    _ours("ours-lines+1", "lines+1", 1_000, ("j1",)),
    _ours("ours-rows", "rows", 1_000),
    _ours("ours-columns-1000", "columns", 1_000),
    _ours("ours-columns-10000", "columns", 10_000),
)


def chosen(names: str, among: tuple[str, ...]) -> list[str]:
    """Return the names that a list of prefixes selects; all for "". Raises `ValueError` for a prefix that selects none."""
    if not names:
        return list(among)
    selected: list[str] = []
    for word in names.split(","):
        matching = [name for name in among if name == word] or [name for name in among if name.startswith(word)]
        if not matching:
            raise ValueError(f"{word!r} is none of {', '.join(among)}")
        selected += [name for name in matching if name not in selected]
    return [name for name in among if name in selected]
