"""Does memory grow? The taxi job (row form) on one agent with one executor; resident memory sampled, a line fitted.

Trips come over TCP from a process of their own (`benchmarks.trip_feed`).

    python -m benchmarks.soak_path [--minutes 60] [--speed 600] [-o json]

The slope is that of a straight line through the means of each minute after the warm-up (ten minutes, or a third of a shorter
run). Its error takes into account that neighbouring minutes are alike: it is the standard error of least squares, widened by the
residuals' correlation. An hour passes when the slope of agent and of executor lies within ± 1 MB an hour, give or take its error
(twice the standard error), and both are running at the end. Runs of less than half an hour print their samples and
judge no slope.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.submission import make_submission
from agiledart_node.wire.commands import Status, Stop
from benchmarks.processes import tree

TARGET: Final = "agiledart_examples.debs2015:frequent_routes"
NAME: Final = "frequent-routes"
SAMPLE_SECONDS: Final = 5.0
WARM_MINUTES: Final = 10.0
GOAL_MB_AN_HOUR: Final = 1.0
TOGETHER_MB: Final = 98.0
SCORED_MINUTES: Final = 30.0
"""Shorter runs have too few points for a slope."""


@dataclass
class Slope:
    """A fitted line: MB an hour with its standard error, from so many points."""

    mb_an_hour: float
    error: float
    points: int

    @property
    def within(self) -> bool:
        """Tell whether a slope of at most the goal explains the samples, and a much larger one does not."""
        return abs(self.mb_an_hour) <= GOAL_MB_AN_HOUR + 2 * self.error and self.error <= GOAL_MB_AN_HOUR


@dataclass
class Curve:
    """Resident and proportional memory of one process, MB, by minute."""

    seconds: list[float] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)
    pss: list[float] = field(default_factory=list)

    def minutes(self, warm_seconds: float) -> list[tuple[float, float]]:
        """Return (hours, mean resident MB) of each whole minute after the warm-up."""
        sizes_by_minute: dict[int, list[float]] = {}
        for second, size in zip(self.seconds, self.rss, strict=True):
            if second >= warm_seconds:
                sizes_by_minute.setdefault(int(second // 60), []).append(size)
        return [((minute + 0.5) / 60, fmean(sizes)) for minute, sizes in sorted(sizes_by_minute.items())]

    def slope(self, warm_seconds: float) -> Slope:
        """Return the fitted line."""
        return fit(self.minutes(warm_seconds))


def fit(points: list[tuple[float, float]]) -> Slope:
    """Least squares; the error is widened by the lag-1 correlation r of the residuals: √((1 + r) / (1 − r)) (Bartlett 1935)."""
    count = len(points)
    if count < 3:
        return Slope(0.0, math.inf, count)
    middle, height = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    slope = sum((x - middle) * (y - height) for x, y in points) / spread
    left = [y - height - slope * (x - middle) for x, y in points]
    squares = sum(residual * residual for residual in left)
    error = math.sqrt(squares / (count - 2) / spread)
    together = sum(a * b for a, b in pairwise(left)) / squares if squares else 0.0
    r = min(0.95, max(0.0, together))
    return Slope(slope, error * math.sqrt((1 + r) / (1 - r)), count)


def memory_mb(pid: int) -> tuple[float, float]:
    """Return (resident, proportional) memory in MB; (0, 0) for a process that has ended."""
    sizes = {}
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split(":")
            sizes[name] = int(value.split()[0]) * 1024 / 1e6
    except (OSError, ValueError):
        return 0.0, 0.0
    return sizes["Rss"], sizes["Pss"]


@contextmanager
def trips(speed: float) -> Iterator[int]:
    """Yield the port that serves trips, so many times as fast as they happened."""
    command = [sys.executable, "-m", "benchmarks.trip_feed", f"{speed:g}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as feed:
        assert feed.stdout is not None
        try:
            yield int(feed.stdout.readline())
        finally:
            feed.kill()


def run(minutes: float, speed: float) -> dict[str, Any]:
    """Run the whole experiment; return the figures."""
    curves = {"agent": Curve(), "executor": Curve()}
    with trips(speed) as port, Mesh(1) as mesh:
        mesh.start()
        agent = mesh.agents[0].process.pid
        with mesh.client(0) as client:
            settings = {"trips": f"tcp:127.0.0.1:{port}@a1", "results": "null:@a1"}
            client.ask(make_submission(TARGET, _known(settings), {}))
            (executor,) = [pid for pid in tree(agent) if pid != agent]
            began = time.monotonic()
            while (passed := time.monotonic() - began) < minutes * 60:
                for name, pid in (("agent", agent), ("executor", executor)):
                    rss, pss = memory_mb(pid)
                    curve = curves[name]
                    curve.seconds.append(passed)
                    curve.rss.append(rss)
                    curve.pss.append(pss)
                time.sleep(SAMPLE_SECONDS)
            status = client.ask(Status(NAME))
            client.ask(Stop(NAME, now=True))
    return document(minutes, speed, curves, status)


def _known(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings that the job has; its sink may have any name."""
    from agiledart_executor.user_code.user_builder import load_builder

    names = load_builder(TARGET).parameters
    sink = next(name for name in names if name != "trips" and "Sink" in str(names[name].annotation))
    return {"trips": settings["trips"], sink: settings["results"]}


def document(minutes: float, speed: float, curves: dict[str, Curve], status: dict[str, Any]) -> dict[str, Any]:
    """Return the figures and the verdict."""
    warm = min(WARM_MINUTES, minutes / 3) * 60
    parts = {}
    for name, curve in curves.items():
        slope = curve.slope(warm)
        parts[name] = {
            "rss_mb_by_minute": [round(size, 2) for _, size in curve.minutes(0.0)],
            "pss_mb_last": round(curve.pss[-1], 1),
            "rss_mb_max": round(max(curve.rss), 1),
            "slope_mb_an_hour": round(slope.mb_an_hour, 3),
            "slope_error": round(slope.error, 3) if math.isfinite(slope.error) else None,
            "points": slope.points,
            "within_1_mb_an_hour": slope.within,
        }
    together = sum(curve.pss[-1] for curve in curves.values())
    return {
        "minutes": minutes,
        "warm_minutes": round(warm / 60, 2),
        "speed": speed,
        "state": status["state"],
        "records_in": status["summary"].get("records_in", 0),
        "pss_mb_together": round(together, 1),
        "pss_goal_mb": TOGETHER_MB,
        "parts": parts,
        "passed": status["state"] == "running"
        and together <= TOGETHER_MB
        and (minutes < SCORED_MINUTES or all(curve.slope(warm).within for curve in curves.values())),
    }


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak_path", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--speed", type=float, default=600.0, help="times real time; 600: 3,300 trips a second")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    document = run(given.minutes, given.speed)
    if given.output == "json":
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        for name, part in document["parts"].items():
            print(
                f"{name}: {part['slope_mb_an_hour']:+.2f} ± {part['slope_error']} MB an hour over {part['points']} minutes,"
                f" at most {part['rss_mb_max']} MB resident"
            )
        print(
            f"together {document['pss_mb_together']} MB PSS (goal {TOGETHER_MB:.0f}), {document['records_in']:,} trips"
        )
    return 0 if document["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
