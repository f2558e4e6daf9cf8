"""Pull the plug: hosts of a large keyed state are killed again and again; when does the next result come, is every row there once?

Six agents that count as machines of their own; one job with `delivery="exactly-once"`, whose input is paced. Each run takes a
random moment, a host between source and sink, and a fault. Then the next result is awaited and the host started anew, as a spare.
At the end the job is stopped and its file compared with a plain loop over the input, line by line.

| fault | what happens to the host |
|---|---|
| kill | SIGKILL to the agent and its executors: their links break at once |
| power | SIGSTOP to all of them: silence, as when the power goes; they are killed when the others have recovered |
| executor | SIGKILL to its executors only; the agent starts them again |
"""

import signal
import time

from agiledart_experiments.recovery import losing_replica_nodes
from agiledart_experiments.recovery.plug_ledger import (
    STAGE,
    epoch_of,
    ledger,
    phase_name,
    put_job,
    recovered,
    write_input,
)
from agiledart_experiments.recovery.plug_mesh import AgentMachine, PlugMesh, plug_mesh, until
from agiledart_experiments.recovery.sink_watch import SinkWatch
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.randomness import RandomStream

MACHINES = 6
FAULTS = ("kill", "power", "executor")
KEYS = {"small": 2_000, "paper": 150_000}
PADDING_BYTES = 416
"""Bytes kept with a key; with its name and sum 430."""

LOAD_MS = {"small": 1_000, "paper": 15_000}
"""In which each key comes once; then readings come at the pace."""

ROWS_A_SECOND = 2_000
INTERVAL = {"small": 2, "paper": 10}
RUNS = {"small": 2, "paper": 50}
RUN_SECONDS = 60
"""Input for each run; a run takes a third of it."""

TIMEOUT_S = 90.0
PHASES = ("plan", "fetch", "restore", "replay", "waiting")
BOUND, QUICK_BOUND = 5.0, 2.0
"""Seconds to the next result in 95 % of the runs; the second where little state is lost and links break at once."""


def run(settings: Settings) -> ExperimentReport:
    """A row for each run."""
    if settings.replica_nodes:
        return losing_replica_nodes.run(settings)
    scale = settings.scale
    fault, runs = settings.fault or FAULTS[0], settings.runs or RUNS[scale]
    random = RandomStream(settings.seed, "pull-the-plug")
    with plug_mesh(MACHINES, INTERVAL[scale]) as mesh:
        submit(mesh, scale, (runs + 1) * RUN_SECONDS)
        with SinkWatch(mesh.folder / "out.csv") as watch:
            until_loaded(mesh, scale, settings)
            rows, broken = _pull_again_and_again(mesh, watch, runs, fault, random, settings)
        settings.progress("the job is stopped, and its file compared")
        if not broken:
            mesh.ask("stop", "plug")
        told = ledger(mesh.folder)
    parameters = {
        "fault": fault,
        "machines": MACHINES,
        "keys": KEYS[scale],
        "state_bytes": KEYS[scale] * (PADDING_BYTES + 14),
        "rows_a_second": ROWS_A_SECOND,
        "interval_s": INTERVAL[scale],
        **told,
    }
    notes = (
        "next_result_s: from the fault to the first row beyond all that were there before the sink's file was cut back",
        "detect is what phases leave of the time from the fault to the first commit after it",
        "lost and twice are of the whole file, after all runs, beside a plain loop over the input",
    )
    goals = _goals(rows, told, scale, fault)
    return ExperimentReport(parameters, tuple(rows), (*goals, Goal(broken, False)) if broken else goals, notes)


def _pull_again_and_again(
    mesh: PlugMesh, watch: SinkWatch, runs: int, fault: str, random: RandomStream, settings: Settings
) -> tuple[list[Row], str]:
    """(a row for each run, what went wrong in the one behind the last). A first run that goes wrong is raised."""
    rows: list[Row] = []
    for number in range(runs):
        try:
            rows.append(_pull(mesh, watch, number, fault, random, settings))
        except OperationFailed as error:
            if not rows:
                raise
            return rows, f"run {number + 1}: {error}"
    return rows, ""


def submit(mesh: PlugMesh, scale: str, seconds: int) -> None:
    """Start the job, with input for so many seconds; its rows come into `out.csv`."""
    put_job(mesh)
    write_input(mesh.folder / "in.csv", KEYS[scale], LOAD_MS[scale], seconds * ROWS_A_SECOND, ROWS_A_SECOND)
    mesh.ask(
        "submit", "plug_job.py:plug", "--set", "readings=csv:in.csv?speed=1@a1", "--set", f"padding_bytes={PADDING_BYTES}",
        "--set", f"report=csv:{mesh.folder / 'out.csv'}@a{MACHINES}", "--parallelism", f"{STAGE}={MACHINES}",
    )  # fmt: skip


def until_loaded(mesh: PlugMesh, scale: str, settings: Settings, timeout_s: float = TIMEOUT_S) -> None:
    """Until an epoch with the state of all keys has been committed."""
    settings.progress(f"{KEYS[scale]:,} keys come")
    wanted = KEYS[scale] * PADDING_BYTES

    def is_loaded() -> bool | None:
        status = epoch_of(mesh)
        return True if status is not None and status["epoch"]["bytes"] >= wanted else None

    until(is_loaded, timeout_s, "an epoch with the whole state is committed")


def host_of_state(mesh: PlugMesh, random: RandomStream) -> AgentMachine:
    """One of those that have state, and neither source nor sink. Waits until the job runs."""
    status = until(lambda: epoch_of(mesh), TIMEOUT_S, "the job runs again")
    hosts = [name for name in dict.fromkeys(status["placement"][STAGE]) if name not in ("a1", f"a{MACHINES}")]
    if not hosts:
        raise OperationFailed(f"{STAGE} runs on {status['placement'][STAGE]} only, where source and sink are")
    return mesh.machine(hosts[random.index(len(hosts))])


def _pull(mesh: PlugMesh, watch: SinkWatch, number: int, fault: str, random: RandomStream, settings: Settings) -> Row:
    """One fault, its end, and the host anew."""
    victim = host_of_state(mesh, random)
    time.sleep(random.uniform() * INTERVAL[settings.scale])
    observers = [one for one in mesh.machines if fault == "executor" or one is not victim]
    before = mesh.total("agiledart_recovery_", observers)
    settings.progress(f"run {number + 1}: {victim.name} dies ({fault})")
    began = time.monotonic()
    _strike(victim, fault)
    after = until(lambda: recovered(mesh, observers, before), TIMEOUT_S, "a commit after the fault")
    now = time.monotonic()
    committed = now - began
    came = until(lambda: watch.next_result(began, now), TIMEOUT_S, "the next result")
    if fault != "executor":
        victim.kill_and_remove()
        victim.start()
    phases = {phase: after.get(phase_name(phase), 0.0) - before.get(phase_name(phase), 0.0) for phase in PHASES}
    return {
        "run": number + 1,
        "fault": fault,
        "host": victim.name,
        "next_result_s": round(came, 3),
        "detect_s": round(max(0.0, committed - sum(phases.values())), 3),
        **{f"{phase}_s": round(seconds, 3) for phase, seconds in phases.items()},
        "committed_s": round(committed, 3),
    }


def _strike(victim: AgentMachine, fault: str) -> None:
    if fault == "power":
        victim.signal(signal.SIGSTOP)
    else:
        victim.signal(signal.SIGKILL, executors_only=fault == "executor")


def _goals(rows: list[Row], told: dict[str, int], scale: str, fault: str) -> tuple[Goal, ...]:
    times = sorted(row["next_result_s"] for row in rows)
    p95 = times[min(len(times) - 1, int(len(times) * 0.95))]
    bound = QUICK_BOUND if (scale, fault) == ("small", "kill") else BOUND
    return (
        Goal(f"the next result within {bound:.0f} s in 95 % of {len(rows)} runs ({p95:.2f} s)", p95 <= bound),
        Goal(f"no row of {told['rows']:,} is lost", told["rows"] > 0 and not told["lost"]),
        Goal("no row comes twice", not told["twice"]),
        Goal("all rows in order", not told["out_of_order"]),
    )
