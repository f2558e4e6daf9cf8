"""Experiment `scaling-timeline`: three overloaded jobs of four stages; time until each is stable, and its health score.

Timeline `up`: the rate rises to four times its value, and the slow stage of each job scales automatically. Timeline `up then out`
runs with the published sizes only, on emulated hosts whose uplinks the kernel limits (`shaped_hosts.py`); it needs root. The slow
stage makes rows wide. It has ten instances on one host, and gets ten more every 30 s, as the rate rises, until they do not help
because the host's uplink is full. Then other hosts join, and the stage scales automatically. Source, sink and the other steps are
on another host.
"""

import importlib.resources
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agiledart_experiments.recovery.plug_mesh import PlugMesh, machines, until
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.scaling.timeline import StageSample, helped, rate_between, seconds_to_stable, stays
from agiledart_experiments.shaped_hosts import check_shaped_hosts, shaped_hosts
from agiledart_kernel.errors import ConfigurationError, OperationFailed


@dataclass(frozen=True, slots=True)
class TimelineJob:
    """Description of one of the three jobs.

    Attributes:
        function: name of the function that builds the job.
        stage: name of the slow stage.
        link_rows: input lines a second whose rows a host's uplink carries.
        published: seconds after which bandwidth was short in the paper.
    """

    function: str
    stage: str
    link_rows: int
    published: int


JOBS = {
    "remove-duplicates": TimelineJob("remove_duplicates", "parse", 1_000, 60),
    "top-k": TimelineJob("top_k", "parse", 1_000, 60),
    "word-count": TimelineJob("word_count", "split", 1_500, 90),
}

UP, OUT = "up", "up then out"
EACH_S = {UP: 0.01, OUT: 0.02}
"""Seconds that the slow stage waits for each row, by timeline."""

FEW, TIMES = 40, 4
CALM_S = {"small": 5, "paper": 30}
BUSY_S = {"small": 60, "paper": 180}
"""Longest duration in seconds; the timeline ends earlier when all stages are stable."""

STAY = 4
"""Number of intervals without change after which a stage counts as stable."""

MOST_INSTANCES = {UP: 8, OUT: 60}
"""Limits of the slow stage; twenty instances fill an uplink, and three hosts have one."""

INTERVAL_S = {"small": 1, "paper": 5}
LOOK_S = {"small": 0.5, "paper": 1.0}
STEP, STEP_S, STEPS = 10, 30, 5
STEP_ROWS = 400
"""Lines a second that come more with each step: they take 0.8 of the time of its instances. The last step exceeds the uplink."""

OUT_S = 90
HOSTS = 4
"""The first has source, sink and all steps but the slow one, which begins on the second."""

WIDTH = 600
"""Bytes that the slow stage adds to the rows of a line."""

HEADERS = 80
"""Bytes of a line's rows otherwise: values, and shares of the headers of frames and packets."""

STEPS_TO_STABLE = 4
"""Number of controller intervals within which a stage must be stable after bandwidth was short."""

TIMEOUT_S = 120.0


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each sample, and a summary row for each timeline."""
    names = _chosen(settings.apps)
    if settings.is_paper:
        check_shaped_hosts()
    lines: dict[tuple[str, str], list[StageSample]] = {}
    ends = _up(settings, names, lines)
    if settings.is_paper:
        for name in names:
            ends.append(_up_then_out(settings, name, lines))
    rows = [
        {
            "job": name, "timeline": timeline, "second": look.second, "instances": look.instances, "score": look.score,
            "rows_a_second": look.rows_a_second, "nodes": look.nodes,
        }
        for (name, timeline), looks in lines.items()
        for look in looks
    ]  # fmt: skip
    parameters = {
        "stages": 4,
        "interval_s": INTERVAL_S[settings.scale],
        "rows_a_second": {UP: [FEW, FEW * TIMES], OUT: {name: _step_rates(JOBS[name]) for name in names}},
        "seconds_each_row": EACH_S,
        "uplink_bytes_a_second": {name: _uplink(JOBS[name]) for name in names},
        "row_bytes": WIDTH,
    }
    notes = (
        "seconds_to_stable: from the first sample with a score below 0.9 until the score suffices and the number stays",
        f"the kernel limits uplinks (tc tbf) to some {WIDTH + HEADERS} bytes for each of 1,000 or 1,500 lines a second, "
        "so bandwidth is short when the paper's was",
        "the paper prints no figure for `up`; for `up then out` it names the second at which bandwidth was short",
    )
    return ExperimentReport(parameters, (*rows, *ends), _goals(ends, INTERVAL_S[settings.scale]), notes)


def _chosen(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the jobs to run; all without names. Raises `ConfigurationError` for an unknown name."""
    for name in names:
        if name not in JOBS:
            raise ConfigurationError(f"scaling-timeline has no application {name!r}; it has {', '.join(JOBS)}")
    return names or tuple(JOBS)


def _uplink(job: TimelineJob) -> int:
    """Return the bytes a second of a host's uplink."""
    return job.link_rows * (WIDTH + HEADERS)


def _step_rates(job: TimelineJob) -> list[int]:
    """Return the lines a second of the input in each step; in the last one more come than a host's uplink carries."""
    return [STEP_ROWS * step for step in range(1, job.link_rows // STEP_ROWS + 2)]


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "AGILEDART_AGENT__CHECKPOINT_INTERVAL": str(INTERVAL_S[settings.scale]),
        "AGILEDART_SCALING__INTERVAL": str(INTERVAL_S[settings.scale]),
    }


def _prepare(mesh: PlugMesh, rates: Sequence[tuple[int, int]]) -> None:
    """Write the code and the input of the jobs; `rates` has (seconds, rows a second) for each part of the input."""
    source = importlib.resources.files("agiledart_experiments.scaling") / "timeline_jobs.py"
    (mesh.folder / "timeline_jobs.py").write_text(source.read_text())
    number, begin = 0, 0
    with (mesh.folder / "in.csv").open("w") as file:
        for seconds, rate in rates:
            for n in range(seconds * rate):
                file.write(f"{begin + n * 1_000 // rate},w{number % 97} v{number % 89}\n")
                number += 1
            begin += seconds * 1_000


def _submit(mesh: PlugMesh, name: str, timeline: str, least: int, **more: object) -> None:
    job = JOBS[name]
    given = {
        "lines": "csv:in.csv?speed=1&overload=spool@a1",
        "report": f"log:{name}@a1",
        "name": name,
        "each": EACH_S[timeline],
        **more,
    }
    words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    limits = f"{job.stage}={least}..{MOST_INSTANCES[timeline]}"
    mesh.ask("submit", f"timeline_jobs.py:{job.function}", *words, "--parallelism", limits)


class _StageWatch:
    """Sampler of the slow stages of jobs, by the agents' metrics."""

    def __init__(self, mesh: PlugMesh, lines: dict[tuple[str, str], list[StageSample]], timeline: str) -> None:
        self._mesh, self._lines, self._timeline = mesh, lines, timeline
        self.began = time.monotonic()
        self._taken: dict[str, tuple[float, float]] = {}

    @property
    def second(self) -> float:
        """Return the seconds since the start of the watch."""
        return time.monotonic() - self.began

    def look(self, names: Sequence[str]) -> None:
        """Take a sample of each job; a job whose metrics no agent reports at present gets none."""
        agent_figures = [machine.figures("agiledart_") for machine in self._mesh.machines if machine.is_alive]
        for name in names:
            look = self._seen(name, agent_figures)
            if look is not None:
                self._lines.setdefault((name, self._timeline), []).append(look)

    def _seen(self, name: str, agent_figures: Sequence[Mapping[str, float]]) -> StageSample | None:
        stage = JOBS[name].stage
        second, label = round(self.second, 1), (f'app="{name}"', f'operator="{stage}"')
        here = [_sum(figures, "agiledart_application_instances", *label) for figures in agent_figures]
        taken = sum(
            _sum(figures, "agiledart_application_rows_total", *label, 'direction="in"') for figures in agent_figures
        )
        score = f"agiledart_scaling_score{{{','.join(label)}}}"
        scores = [figures[score] for figures in agent_figures if score in figures]
        instances = int(sum(here))
        before, self._taken[name] = self._taken.get(name), (second, taken)
        if not instances:
            return None
        rate = None
        if before is not None and second > before[0] and taken >= before[1]:
            rate = round((taken - before[1]) / (second - before[0]), 1)
        return StageSample(
            second, instances, round(scores[0], 3) if scores else None, rate, sum(1 for count in here if count)
        )


def _sum(figures: Mapping[str, float], name: str, *labels: str) -> float:
    return sum(
        value for key, value in figures.items() if key.startswith(f"{name}{{") and all(label in key for label in labels)
    )


def _up(settings: Settings, names: Sequence[str], lines: dict[tuple[str, str], list[StageSample]]) -> list[Row]:
    """Run the jobs at once on three machines while the rate rises to four times its value; return the summary rows."""
    scale = settings.scale
    with machines(3, _environment(settings)) as mesh:
        mesh.form(3, "--executors", str(MOST_INSTANCES[UP]))
        _prepare(mesh, [(CALM_S[scale], FEW), (BUSY_S[scale], FEW * TIMES)])
        settings.progress(f"{', '.join(names)}: the rate rises")
        for name in names:
            _submit(mesh, name, UP, 1)
            mesh.ask("scale", name, JOBS[name].stage, "auto")
        watch = _StageWatch(mesh, lines, UP)
        while watch.second < CALM_S[scale] + BUSY_S[scale]:
            watch.look(names)
            if all(stays(lines.get((name, UP), []), STAY * INTERVAL_S[scale]) for name in names):
                break
            time.sleep(LOOK_S[scale])
    return [_end(name, UP, lines.get((name, UP), [])) for name in names]


def _end(name: str, timeline: str, looks: Sequence[StageSample]) -> Row:
    """Return the summary row of a timeline."""
    return {
        "job": name,
        "timeline": timeline,
        "second": None,
        "seconds_to_stable": seconds_to_stable(looks),
        "instances_first": looks[0].instances if looks else None,
        "instances_last": looks[-1].instances if looks else None,
        "score_least": min((look.score for look in looks if look.score is not None), default=None),
        "score_last": next((look.score for look in reversed(looks) if look.score is not None), None),
    }


def _up_then_out(settings: Settings, name: str, lines: dict[tuple[str, str], list[StageSample]]) -> Row:
    """Run one job: add ten instances every 30 s on one host until they do not help, then add hosts."""
    job = JOBS[name]
    words = ("--executors", str(STEP * STEPS))
    with shaped_hosts(HOSTS) as hosts, machines(HOSTS, _environment(settings), hosts) as mesh:
        for number in range(2, HOSTS + 1):
            hosts.limit(number, _uplink(job))
        mesh.form(2, *words)
        *rises, last = _step_rates(job)
        _prepare(mesh, [*((STEP_S, rate) for rate in rises), (STEP_S * (STEPS + 1) + OUT_S, last)])
        settings.progress(f"{name}: ten instances on one host")
        workers = ",".join(machine.name for machine in mesh.machines[1:])
        _submit(mesh, name, OUT, STEP, width=WIDTH, workers=workers)
        watch = _StageWatch(mesh, lines, OUT)
        key = (name, OUT)
        short = _steps_until_short(watch, mesh, name, lines)
        settings.progress(f"{name}: bandwidth is short after {short} s; other hosts join")
        for machine in mesh.machines[2:]:
            mesh.join(machine, *words)
        mesh.ask("scale", name, job.stage, "auto")
        began = watch.second
        while watch.second < began + OUT_S:
            watch.look([name])
            if stays([look for look in lines[key] if look.second >= began], STAY * INTERVAL_S[settings.scale]):
                break
            time.sleep(LOOK_S[settings.scale])
    later = [look for look in lines[key] if look.second >= began]
    return {
        **_end(name, OUT, lines[key]),
        "seconds_to_stable": seconds_to_stable(later),
        "seconds_to_bottleneck": short,
        "seconds_to_bottleneck_published": job.published,
        "nodes_last": later[-1].nodes if later else None,
    }


def _steps_until_short(
    watch: _StageWatch, mesh: PlugMesh, name: str, lines: dict[tuple[str, str], list[StageSample]]
) -> int | None:
    """Add ten instances every 30 s; return the seconds after which more did not help or could not begin, None when all helped."""
    key, rate = (name, OUT), 0.0

    def seen() -> list[StageSample] | None:
        watch.look([name])
        return lines.get(key)

    until(seen, TIMEOUT_S, f"{name} runs")
    for step in range(1, STEPS + 1):
        start = watch.second
        while watch.second < start + STEP_S:
            watch.look([name])
            time.sleep(LOOK_S["paper"])
        now = rate_between(lines[key], start + STEP_S / 2, start + STEP_S)
        if step > 1 and not helped(rate, now):
            return (step - 1) * STEP_S
        rate = now
        if step < STEPS and not _grows(mesh, name, STEP * (step + 1)):
            return step * STEP_S
    return None


def _grows(mesh: PlugMesh, name: str, count: int) -> bool:
    """Scale to `count` instances; return whether it took place. A change needs an epoch, which a full uplink may delay too much."""
    try:
        mesh.ask("scale", name, JOBS[name].stage, str(count))
    except OperationFailed:
        return False
    return True


def _goals(ends: Sequence[Row], interval_s: int) -> tuple[Goal, ...]:
    goals = []
    for row in ends:
        name, took = f"{row['job']}, {row['timeline']}", row["seconds_to_stable"]
        goals.append(Goal(f"{name}: the stage becomes stable ({took} s)", took is not None))
        if row["timeline"] == OUT:
            bound = STEPS_TO_STABLE * interval_s
            goals.append(
                Goal(
                    f"{name}: within {STEPS_TO_STABLE} steps of the controller, {bound} s",
                    took is not None and took <= bound,
                )
            )
            goals.append(
                Goal(
                    f"{name}: bandwidth was short after {row['seconds_to_bottleneck']} s",
                    row["seconds_to_bottleneck"] is not None,
                )
            )
    return tuple(goals)
