"""Experiment `pull-the-plug`: kill hosts of a large keyed state repeatedly, and measure the time to the next result.

Six agents act as separate machines. One job with `delivery="exactly-once"` reads paced input. Each run draws a random moment and
a host between source and sink, and injects a fault. It waits for the next result and starts the host again, as a spare. At the
end the experiment stops the job and compares its file with a plain loop over the input, line by line: each row must be there once.

| fault | effect on the host |
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
"""Bytes of padding in the state of a key; 430 with key and sum."""

LOAD_MS = {"small": 1_000, "paper": 15_000}
"""Milliseconds in which each key comes once; then readings come at the steady rate."""

ROWS_A_SECOND = 2_000
INTERVAL = {"small": 2, "paper": 10}
RUNS = {"small": 2, "paper": 50}
RUN_SECONDS = 60
"""Seconds of input for each run; a run takes a third of it."""

TIMEOUT_S = 90.0
PHASES = ("plan", "fetch", "restore", "replay", "waiting")
BOUND, QUICK_BOUND = 5.0, 2.0
"""Bounds in seconds on the next result in 95 % of the runs; the second for little state and links that break at once."""


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each run."""
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
        settings.progress("stopping the job and comparing its file")
        if not broken:
            mesh.ask("stop", "plug")
        totals = ledger(mesh.folder)
    parameters = {
        "fault": fault,
        "machines": MACHINES,
        "keys": KEYS[scale],
        "state_bytes": KEYS[scale] * (PADDING_BYTES + 14),
        "rows_a_second": ROWS_A_SECOND,
        "interval_s": INTERVAL[scale],
        **totals,
    }
    notes = (
        "next_result_s: from the fault to the first row beyond those in the sink's file before it was truncated",
        "detect_s: the time from the fault to the first commit after it, minus all phases",
        "lost and twice compare the whole file, after all runs, with a plain loop over the input",
    )
    goals = _goals(rows, totals, scale, fault)
    return ExperimentReport(parameters, tuple(rows), (*goals, Goal(broken, False)) if broken else goals, notes)


def _pull_again_and_again(
    mesh: PlugMesh, watch: SinkWatch, runs: int, fault: str, random: RandomStream, settings: Settings
) -> tuple[list[Row], str]:
    """Return (a row for each run, the error of the run that failed after them). A failure of the first run is raised."""
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
    """Start the job with input for `seconds` seconds; it writes its rows to `out.csv`."""
    put_job(mesh)
    write_input(mesh.folder / "in.csv", KEYS[scale], LOAD_MS[scale], seconds * ROWS_A_SECOND, ROWS_A_SECOND)
    mesh.ask(
        "submit", "plug_job.py:plug", "--set", "readings=csv:in.csv?speed=1@a1", "--set", f"padding_bytes={PADDING_BYTES}",
        "--set", f"report=csv:{mesh.folder / 'out.csv'}@a{MACHINES}", "--parallelism", f"{STAGE}={MACHINES}",
    )  # fmt: skip


def until_loaded(mesh: PlugMesh, scale: str, settings: Settings, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until an epoch with the state of all keys has been committed."""
    settings.progress(f"{KEYS[scale]:,} keys come")
    wanted = KEYS[scale] * PADDING_BYTES

    def is_loaded() -> bool | None:
        status = epoch_of(mesh)
        return True if status is not None and status["epoch"]["bytes"] >= wanted else None

    until(is_loaded, timeout_s, "an epoch with the whole state is committed")


def host_of_state(mesh: PlugMesh, random: RandomStream) -> AgentMachine:
    """Draw a host that has state and neither source nor sink. Waits until the job runs."""
    status = until(lambda: epoch_of(mesh), TIMEOUT_S, "the job runs again")
    hosts = [name for name in dict.fromkeys(status["placement"][STAGE]) if name not in ("a1", f"a{MACHINES}")]
    if not hosts:
        raise OperationFailed(f"{STAGE} runs on {status['placement'][STAGE]} only, where source and sink are")
    return mesh.machine(hosts[random.index(len(hosts))])


def _pull(mesh: PlugMesh, watch: SinkWatch, number: int, fault: str, random: RandomStream, settings: Settings) -> Row:
    """Inject one fault, wait for the next result, start the host again, and return a row."""
    victim = host_of_state(mesh, random)
    time.sleep(random.uniform() * INTERVAL[settings.scale])
    observers = [machine for machine in mesh.machines if fault == "executor" or machine is not victim]
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


def _goals(rows: list[Row], totals: dict[str, int], scale: str, fault: str) -> tuple[Goal, ...]:
    times = sorted(row["next_result_s"] for row in rows)
    p95 = times[min(len(times) - 1, int(len(times) * 0.95))]
    bound = QUICK_BOUND if (scale, fault) == ("small", "kill") else BOUND
    return (
        Goal(f"the next result within {bound:.0f} s in 95 % of {len(rows)} runs ({p95:.2f} s)", p95 <= bound),
        Goal(f"no row of {totals['rows']:,} is lost", totals["rows"] > 0 and not totals["lost"]),
        Goal("no row comes twice", not totals["twice"]),
        Goal("all rows in order", not totals["out_of_order"]),
    )
