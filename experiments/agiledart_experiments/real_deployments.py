"""Form `--real` of `deployment-latency`: applications submitted at once to agents of this machine; no time is assumed.

Each application has its source on one agent and its sink on the next, and reads ten rows a second. `--preset paper` lets one
scheduler serve 50 applications, so more of them make the agents elect further schedulers. The single master is the same mesh with
one scheduler for all. All agents share the cores of one machine: elected schedulers cannot make deployments faster here. The
applications on one agent share processes (`[executors] share`), so that hundreds of them fit into the memory of a machine.
"""

import importlib.resources
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, median
from typing import Any, Final, NamedTuple

from agiledart_control.agent_place import in_state_dir
from agiledart_control.control_client import ControlClient
from agiledart_control.submission import SUBMIT_SECONDS, make_submission
from agiledart_experiments.recovery.plug_mesh import AgentMachine, PlugMesh, machines, until
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_node.wire.commands import Status

COUNTS: Final = {"small": (4, 10), "paper": (10, 50, 100, 250)}
AGENTS: Final = 4
EACH: Final = 50
"""Applications that one scheduler of the preset `paper` serves."""

APPLICATION_MB: Final = 4
"""Memory of an application: its shares of two processes."""

MESH_MB: Final = 600
"""Memory of the agents, of a process with applications on each, and of this process."""

ROWS_A_SECOND: Final = 10
SAMPLES: Final = 20
"""Results of each application after which its latency is read."""

RESULTS_S: Final = 300.0
SHARE: Final = "owner"
REAL_SETTINGS: Final = {"AGILEDART_AGENT__CAPACITY": "4096", "AGILEDART_EXECUTORS__SHARE": SHARE}


class Deployments(NamedTuple):
    """Times and latencies of applications that were submitted at once.

    Attributes:
        queued, running: seconds in the scheduler's queue, and until all instances ran, of each application that runs.
        refused: error of each application that does not run.
        schedulers: nodes that served them.
        p50_ms, p99_ms: latencies of the results of each application.
    """

    queued: list[float]
    running: list[float]
    refused: list[str]
    schedulers: set[str]
    p50_ms: list[float]
    p99_ms: list[float]


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each number of applications. Raises ConfigurationError on too small a machine."""
    counts = settings.sizes_or(COUNTS[settings.scale])
    check_memory(counts, available_mb())
    rows = [_row(count, settings) for count in counts]
    parameters = {
        "agents": AGENTS,
        "applications": counts,
        "cores": os.cpu_count(),
        "rows_a_second": ROWS_A_SECOND,
        "executors_share": SHARE,
    }
    notes = (
        "all agents and executors share this machine; a result's latency is from the reading of a row to its writing",
        f"up to {EACH} applications one scheduler serves all, so the single master is the same run",
        "results_p50_ms: median of the applications' medians; results_p99_ms: the largest p99 of an application",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows), notes)


def available_mb() -> float:
    """Return the memory that this machine has free for new processes, in MB; infinite where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("MemAvailable:")), float("inf"))


def check_memory(counts: tuple[int, ...], free_mb: float) -> None:
    """Raise ConfigurationError when the largest number of applications needs more memory than there is; name a size that fits."""
    needed = MESH_MB + counts[-1] * APPLICATION_MB
    if needed <= free_mb:
        return
    fitting = int((free_mb - MESH_MB) // APPLICATION_MB)
    advice = f"Use --sizes {','.join(str(count) for count in counts if count <= fitting) or fitting}."
    if fitting < 2:
        advice = f"It needs {MESH_MB + 2 * APPLICATION_MB:,} MB for two applications."
    raise ConfigurationError(
        f"--real: {counts[-1]} applications need about {needed:,} MB, and this machine has {free_mb:,.0f} MB free. {advice}"
    )


def _row(count: int, settings: Settings) -> Row:
    settings.progress(f"{count} applications at once on {AGENTS} agents")
    ours = _deployed(count, ("--preset", "paper"))
    master, refused = ours, ours.refused
    if count > EACH:
        settings.progress(f"{count} applications at once, one scheduler")
        master = _deployed(count, ())
        refused = [*refused, *master.refused]
    return {
        "applications": count,
        "schedulers": len(ours.schedulers),
        "schedulers_single_master": len(master.schedulers),
        "queue_wait_mean_s": _mean(ours.queued),
        "queue_wait_mean_s_single_master": _mean(master.queued),
        "deployment_mean_s": _mean(ours.running),
        "deployment_max_s": round(max(ours.running, default=0.0), 3),
        "deployment_mean_s_single_master": _mean(master.running),
        "results_p50_ms": round(median(ours.p50_ms), 2) if ours.p50_ms else None,
        "results_p99_ms": round(max(ours.p99_ms), 2) if ours.p99_ms else None,
        "refused": len(refused),
        "first_refusal": next(iter(refused), None),
        "load": round(os.getloadavg()[0], 1),
    }


def _mean(values: list[float]) -> float | None:
    return round(mean(values), 3) if values else None


def _deployed(count: int, words: tuple[str, ...]) -> Deployments:
    """Submit applications at once to a new mesh, and wait for their results."""
    with machines(AGENTS, REAL_SETTINGS) as mesh:
        mesh.form(AGENTS, *words)
        job = mesh.folder / "small_rule_job.py"
        job.write_text((importlib.resources.files("agiledart_experiments") / job.name).read_text())
        with (mesh.folder / "in.csv").open("w") as lines:
            for number in range(3_600 * ROWS_A_SECOND):
                lines.write(f"{number * 1_000 // ROWS_A_SECOND},{number * 7_919 % 101}\n")
        with ThreadPoolExecutor(count) as pool:
            submitted = list(pool.map(lambda number: _submit(mesh, number), range(count)))
        answers = [answer for answer in submitted if isinstance(answer, dict)]
        with _client(mesh.machines[0]) as client:
            latencies = [_latency(client, str(answer["name"])) for answer in answers]
    return Deployments(
        [float(answer["queued_seconds"]) for answer in answers],
        [float(answer["seconds_to_running"]) for answer in answers],
        [answer for answer in submitted if isinstance(answer, str)],
        {str(answer["scheduler"]) for answer in answers},
        [float(latency["p50"]) for latency in latencies],
        [float(latency["p99"]) for latency in latencies],
    )


def _client(machine: AgentMachine) -> ControlClient:
    place = in_state_dir(machine.state_dir)
    if place is None:
        raise OperationFailed(f"{machine.name} does not run any more")
    return ControlClient(place)


def _submit(mesh: PlugMesh, number: int) -> dict[str, Any] | str:
    """Submit one application; return the answer, or the agent's refusal."""
    source, sink = mesh.machines[number % AGENTS], mesh.machines[(number + 1) % AGENTS]
    given = {
        "readings": f"csv:{mesh.folder / 'in.csv'}?speed=1@{source.name}",
        "report": f"log:rule-{number}@{sink.name}",
    }
    command = make_submission(f"{mesh.folder / 'small_rule_job.py'}:small_rule", given, {}, name=f"rule-{number}")
    try:
        with _client(source) as client:
            answer: dict[str, Any] = client.ask(command, timeout=SUBMIT_SECONDS)
            return answer
    except OperationFailed as error:
        return str(error)


def _latency(client: ControlClient, name: str) -> dict[str, Any]:
    """Return the latency of an application's results once it has enough of them."""

    def look() -> dict[str, Any] | None:
        try:
            status = client.ask(Status(name))
        except (
            OperationFailed
        ):  # so many starts at once keep a machine of few cores busy for longer than a request waits
            return None
        if status["state"] not in ("running", "recovering"):
            raise OperationFailed(f"{name} is {status['state']}: {status.get('reason', '')}")
        latency: dict[str, Any] = (status.get("summary") or {}).get("latency_ms", {}).get("report") or {"samples": 0}
        return latency if latency["samples"] >= SAMPLES else None

    return until(look, RESULTS_S, f"{name} has {SAMPLES} results")


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    goals = [Goal("every application runs", not any(row["refused"] for row in rows))]
    by_count = {row["applications"]: row["results_p50_ms"] for row in rows}
    few, many = by_count.get(EACH), max(by_count)
    if few and many > EACH:
        goals.append(
            Goal(f"p50 of results at {many} applications below twice that at {EACH}", by_count[many] < 2 * few)
        )
    return tuple(goals)
