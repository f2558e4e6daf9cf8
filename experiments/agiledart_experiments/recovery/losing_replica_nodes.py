"""Trials that kill a host of state together with replica nodes of that state, at once or while the state is being restored.

There is one stage with one state, and for each code a mesh with three machines more than replica nodes. The trials cover every
choice of replica nodes. With at most as many losses as parity fragments, the run recovers by itself and the file is exact. With
one more loss the run waits, names the missing nodes, and emits no wrong row; it continues when they are back. The trial starts a
victim with the source and the sink again at once, and the other victims after the run has recovered without them.
"""

import contextlib
import itertools
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agiledart_experiments.recovery.plug_ledger import STAGE, ledger, put_job, status_of, write_input
from agiledart_experiments.recovery.plug_mesh import AgentMachine, PlugMesh, plug_mesh, until
from agiledart_experiments.recovery.sink_watch import SinkWatch
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.randomness import RandomStream

CODES = ("1+2", "2+2", "4+2")
KEYS = {"1+2": 1_000, "2+2": 4_000, "4+2": 4_000}
PADDING_BYTES = 800
"""Bytes of state for a key: 1,000 keys stay below the size at which a state is cut, 4,000 keys make three times that size."""

ENDS = "a1"
"""Agent that runs the source and the sink."""

LOAD_MS = 1_000
ROWS_A_SECOND = 400
RUN_SECONDS = 150
"""Seconds of input for each run; a run takes a fifth of it."""

INTERVAL = 2
TIMEOUT_S = 120.0
LATER_SECONDS = 3.0
"""Seconds after the host within which later replica nodes are killed: the duration of a recovery."""

WAIT_SECONDS = 6.0
"""Seconds for which a trial observes a run that cannot continue."""

FEW = 3
"""Number of choices to try when more replica nodes die than the code tolerates."""


def run(settings: Settings) -> ExperimentReport:
    """Run the trials: return a row for each run. Raises `ConfigurationError` for an unknown code."""
    if settings.code and settings.code not in CODES:
        raise ConfigurationError(f"--code {settings.code}: pull-the-plug has {', '.join(CODES)}.")
    rows: list[Row] = []
    totals: Counter[str] = Counter()
    for code in (settings.code,) if settings.code else CODES:
        totals.update(_with_code(code, settings, rows))
    parameters = {
        "replica_nodes": settings.replica_nodes,
        "again": settings.again,
        "rows_a_second": ROWS_A_SECOND,
        "interval_s": INTERVAL,
        **totals,
    }
    notes = (
        "choice: fragment numbers of the lost replica nodes; lost and twice count the whole file up to the end of the run",
        "during: whether the replica nodes were lost before the run was restarted",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows, totals), notes)


def _with_code(code: str, settings: Settings, rows: list[Row]) -> dict[str, int]:
    data, parity = map(int, code.split("+"))
    choices = list(itertools.combinations(range(data + parity), settings.replica_nodes))
    if not choices:
        raise ConfigurationError(f"--replica-nodes {settings.replica_nodes}: {code} has {data + parity}.")
    random = RandomStream(settings.seed, f"losing-holders-{code}")
    most = settings.runs or (len(choices) if settings.replica_nodes <= parity else FEW)
    while len(choices) > most:
        choices.pop(random.index(len(choices)))
    with plug_mesh(data + parity + 3, INTERVAL, code) as mesh:
        put_job(mesh)
        write_input(
            mesh.folder / "in.csv", KEYS[code], LOAD_MS, (len(choices) + 2) * RUN_SECONDS * ROWS_A_SECOND, ROWS_A_SECOND
        )
        mesh.ask(
            "submit", "plug_job.py:plug", "--set", f"readings=csv:in.csv?speed=1@{ENDS}", "--set", f"padding_bytes={PADDING_BYTES}",
            "--set", f"report=csv:{mesh.folder / 'out.csv'}@{ENDS}",
        )  # fmt: skip
        with SinkWatch(mesh.folder / "out.csv") as watch:
            rows += [
                _Trial(mesh, code, settings, random).run(watch, choice, settings.replica_nodes <= parity)
                for choice in choices
            ]
        mesh.ask("stop", "plug")
        return ledger(mesh.folder)


class _Trial:
    """Trial of one choice of replica nodes."""

    def __init__(self, mesh: PlugMesh, code: str, settings: Settings, random: RandomStream) -> None:
        self._mesh, self._code, self._settings, self._random = mesh, code, settings, random
        self._data, self._parity = map(int, code.split("+"))

    def run(self, watch: SinkWatch, choice: Sequence[int], during_recovery: bool) -> Row:
        """Kill the host and these replica nodes, observe the run, start the machines again, and return a row."""
        before = until(
            self._ready, TIMEOUT_S, f"the state has {self._code} fragments, and its host has neither source nor sink"
        )
        host, replica_nodes = before["host"], [before["replica_nodes"][index] for index in choice]
        self._settings.progress(
            f"{self._code}: {host.name} dies with {', '.join(machine.name for machine in replica_nodes)}"
        )
        time.sleep(self._random.uniform() * INTERVAL)
        began = time.monotonic()
        host.signal(signal.SIGKILL)
        during = True
        if self._settings.again:
            time.sleep(self._random.uniform() * LATER_SECONDS)
            during = self._went_on(before) is None
        for machine in replica_nodes:
            machine.signal(signal.SIGKILL)
        dead = [host, *replica_nodes]
        for machine in dead:
            machine.kill_and_remove()
        row: Row = {"code": self._code, "choice": "-".join(map(str, choice)), "host": host.name, "during": during,
                    "with_ends": any(machine.name == ENDS for machine in replica_nodes)}  # fmt: skip
        if row["with_ends"] and during_recovery:
            self._mesh.machine(ENDS).start()
        waits = [] if during_recovery else self._wait(dead)
        if during_recovery:
            until(
                lambda: self._went_on(before),
                TIMEOUT_S,
                f"it runs without {', '.join(machine.name for machine in dead)}",
            )
        came = until(lambda: watch.next_result(began), TIMEOUT_S, "the next result") if during_recovery else None
        for machine in dead:
            if not machine.is_alive:
                machine.start()
        until(lambda: self._went_on(before), TIMEOUT_S, "the run continues when all machines are back")
        return {
            **row,
            "next_result_s": came and round(came, 3),
            "waits_for": " ".join(waits),
            **_account(self._mesh.folder),
        }

    def _ready(self) -> dict[str, Any] | None:
        """Return the host, its replica nodes and the epoch once the run is undisturbed and ready for a fault, else None.

        All fragments must be on live machines, and the state on another machine than source and sink.
        """
        status = status_of(self._mesh)
        if status is None or status["state"] != "running" or not status["epoch"]:
            return None
        (host,) = status["placement"][STAGE]
        with contextlib.suppress(OperationFailed):
            if host == ENDS:
                self._mesh.ask("move", "plug", STAGE, self._mesh.machines[-1].name)
                return None
            snapshots = self._mesh.ask("checkpoint", "list", "plug")["snapshots"]
            saved = [snapshot for snapshot in snapshots if snapshot["fragments_needed"] and snapshot["node"] == host]
            large = max(saved, key=lambda snapshot: int(snapshot["bytes"]), default=None)
            if (
                large is None
                or large["bytes"] < KEYS[self._code] * PADDING_BYTES
                or large["fragments_needed"] != self._data
            ):
                return None
            if (status["epoch"]["tolerated_losses"] or 0) <= self._parity or len(
                large["replica_nodes"]
            ) != self._data + self._parity:
                return None
            replica_nodes = [self._mesh.machine(name) for name in large["replica_nodes"]]
            if all(machine.is_alive for machine in replica_nodes):
                return {"host": self._mesh.machine(host), "replica_nodes": replica_nodes, "epoch": status["epoch"]}
        return None

    def _went_on(self, before: dict[str, Any]) -> bool | None:
        status = status_of(self._mesh)
        if status is None or status["state"] != "running" or not status["epoch"]:
            return None
        now, then = status["epoch"], before["epoch"]
        return True if now["attempt"] > then["attempt"] and now["committed"] > then["committed"] else None

    def _wait(self, dead: list[AgentMachine]) -> list[str]:
        """Wait until the run reports the nodes that it waits for; return their names. Raises when it commits an epoch meanwhile."""

        def waiting() -> dict[str, Any] | None:
            status = status_of(self._mesh)
            recovery = (status or {}).get("recovery") or {}
            return recovery if recovery.get("phase") == "waiting" and recovery["waits_for"] else None

        reported = until(waiting, TIMEOUT_S, f"the run waits for some of {', '.join(machine.name for machine in dead)}")
        time.sleep(WAIT_SECONDS)
        again = until(waiting, TIMEOUT_S, "the run still waits")
        if again["from_epoch"] != reported["from_epoch"]:
            raise OperationFailed(f"epoch {again['from_epoch']} was committed without the state")
        return sorted(again["waits_for"])


def _account(folder: Path) -> dict[str, int]:
    totals = ledger(folder)
    return {name: totals[name] for name in ("rows", "lost", "twice")}


def _goals(rows: list[Row], totals: Counter[str]) -> tuple[Goal, ...]:
    waited = [row for row in rows if row["next_result_s"] is None]
    wrong = sum(row["lost"] + row["twice"] for row in rows)
    goals = [
        Goal(f"{len(rows) - len(waited)} of {len(rows)} runs continued without the lost nodes", True),
        Goal(f"no row of {totals['rows']:,} is lost or comes twice, at the end of each run",
             totals["rows"] > 0 and not totals["lost"] + totals["twice"] + totals["out_of_order"] + wrong),
    ]  # fmt: skip
    if waited:
        named = all(row["waits_for"] for row in waited)
        goals.append(Goal(f"{len(waited)} runs waited for nodes that they named", named))
    return tuple(goals)
