"""A host of state dies together with those who keep its fragments: every choice of them, at once or while it is brought back.

One stage with one state; for each code a mesh of three machines more than hold it. Up to as many holders as there are parity
fragments may be lost: the run goes on by itself, and the file is exact. With one more it waits, names who is missing, and
shows no wrong row meanwhile; it goes on when they are back. A victim that has the source and the sink is started at once, the
others when the run has been brought back without them.
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
"""Bytes kept with a key: of 1,000 keys less than a state that is cut, of 4,000 three times as much."""

ENDS = "a1"
"""Where source and sink are."""

LOAD_MS = 1_000
ROWS_A_SECOND = 400
RUN_SECONDS = 150
"""Input for each run; a run takes a fifth of it."""

INTERVAL = 2
TIMEOUT_S = 120.0
LATER_SECONDS = 3.0
"""Within which the holders die when they do so later than the host: what a recovery takes."""

WAIT_SECONDS = 6.0
"""For which a run that cannot go on is looked at."""

FEW = 3
"""Choices that are tried when more die than may."""


def run(settings: Settings) -> ExperimentReport:
    """A row for each run. Raises `ConfigurationError` for a code that is not tried."""
    if settings.code and settings.code not in CODES:
        raise ConfigurationError(f"--code {settings.code}: pull-the-plug has {', '.join(CODES)}.")
    rows: list[Row] = []
    told: Counter[str] = Counter()
    for code in (settings.code,) if settings.code else CODES:
        told.update(_with_code(code, settings, rows))
    parameters = {
        "replica_nodes": settings.replica_nodes,
        "again": settings.again,
        "rows_a_second": ROWS_A_SECOND,
        "interval_s": INTERVAL,
        **told,
    }
    notes = (
        "holders are lost by the numbers of their fragments; lost and twice are of the whole file up to the end of the run",
        "during: whether they were lost before the run was brought back",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows, told), notes)


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
                _Trial(mesh, code, settings, random).run(watch, one, settings.replica_nodes <= parity)
                for one in choices
            ]
        mesh.ask("stop", "plug")
        return ledger(mesh.folder)


class _Trial:
    """One choice of holders."""

    def __init__(self, mesh: PlugMesh, code: str, settings: Settings, random: RandomStream) -> None:
        self._mesh, self._code, self._settings, self._random = mesh, code, settings, random
        self._data, self._parity = map(int, code.split("+"))

    def run(self, watch: SinkWatch, choice: Sequence[int], during_recovery: bool) -> Row:
        """Kill the host and these holders, see what follows, and start them again."""
        before = until(
            self._ready, TIMEOUT_S, f"the state is with {self._code} holders, and its host has neither source nor sink"
        )
        host, replica_nodes = before["host"], [before["replica_nodes"][index] for index in choice]
        self._settings.progress(f"{self._code}: {host.name} dies with {', '.join(one.name for one in replica_nodes)}")
        time.sleep(self._random.uniform() * INTERVAL)
        began = time.monotonic()
        host.signal(signal.SIGKILL)
        during = True
        if self._settings.again:
            time.sleep(self._random.uniform() * LATER_SECONDS)
            during = self._went_on(before) is None
        for holder in replica_nodes:
            holder.signal(signal.SIGKILL)
        dead = [host, *replica_nodes]
        for one in dead:
            one.kill_and_remove()
        row: Row = {"code": self._code, "choice": "-".join(map(str, choice)), "host": host.name, "during": during,
                    "with_ends": any(one.name == ENDS for one in replica_nodes)}  # fmt: skip
        if row["with_ends"] and during_recovery:
            self._mesh.machine(ENDS).start()
        waits = [] if during_recovery else self._wait(dead)
        if during_recovery:
            until(lambda: self._went_on(before), TIMEOUT_S, f"it goes on without {', '.join(one.name for one in dead)}")
        came = until(lambda: watch.next_result(began), TIMEOUT_S, "the next result") if during_recovery else None
        for one in dead:
            if not one.is_alive:
                one.start()
        until(lambda: self._went_on(before), TIMEOUT_S, "it goes on when all are back")
        return {
            **row,
            "next_result_s": came and round(came, 3),
            "waits_for": " ".join(waits),
            **_account(self._mesh.folder),
        }

    def _ready(self) -> dict[str, Any] | None:
        """The run undisturbed, with all fragments on machines that live and the state on one of its own."""
        status = status_of(self._mesh)
        if status is None or status["state"] != "running" or not status["epoch"]:
            return None
        (host,) = status["placement"][STAGE]
        with contextlib.suppress(OperationFailed):
            if host == ENDS:
                self._mesh.ask("move", "plug", STAGE, self._mesh.machines[-1].name)
                return None
            elements = self._mesh.ask("checkpoint", "list", "plug")["snapshots"]
            saved = [one for one in elements if one["fragments_needed"] and one["node"] == host]
            large = max(saved, key=lambda one: int(one["bytes"]), default=None)
            if large is None or large["bytes"] < KEYS[self._code] * PADDING_BYTES or large["fragments_needed"] != self._data:
                return None
            if (status["epoch"]["tolerated_losses"] or 0) <= self._parity or len(large["replica_nodes"]) != self._data + self._parity:
                return None
            found = [self._mesh.machine(name) for name in large["replica_nodes"]]
            if all(one.is_alive for one in found):
                return {"host": self._mesh.machine(host), "replica_nodes": found, "epoch": status["epoch"]}
        return None

    def _went_on(self, before: dict[str, Any]) -> bool | None:
        status = status_of(self._mesh)
        if status is None or status["state"] != "running" or not status["epoch"]:
            return None
        now, then = status["epoch"], before["epoch"]
        return True if now["attempt"] > then["attempt"] and now["committed"] > then["committed"] else None

    def _wait(self, dead: list[AgentMachine]) -> list[str]:
        """Names of those that the run says it waits for; it commits nothing meanwhile."""

        def waiting() -> dict[str, Any] | None:
            status = status_of(self._mesh)
            recovery = (status or {}).get("recovery") or {}
            return recovery if recovery.get("phase") == "waiting" and recovery["waits_for"] else None

        told = until(waiting, TIMEOUT_S, f"it waits for some of {', '.join(one.name for one in dead)}")
        time.sleep(WAIT_SECONDS)
        again = until(waiting, TIMEOUT_S, "it still waits")
        if again["from_epoch"] != told["from_epoch"]:
            raise OperationFailed(f"epoch {again['from_epoch']} was committed without the state")
        return sorted(again["waits_for"])


def _account(folder: Path) -> dict[str, int]:
    told = ledger(folder)
    return {name: told[name] for name in ("rows", "lost", "twice")}


def _goals(rows: list[Row], told: Counter[str]) -> tuple[Goal, ...]:
    waited = [row for row in rows if row["next_result_s"] is None]
    wrong = sum(row["lost"] + row["twice"] for row in rows)
    goals = [
        Goal(f"{len(rows) - len(waited)} of {len(rows)} runs went on without those who were lost", True),
        Goal(f"no row of {told['rows']:,} is lost or comes twice, at the end of any run either",
             told["rows"] > 0 and not told["lost"] + told["twice"] + told["out_of_order"] + wrong),
    ]  # fmt: skip
    if waited:
        named = all(row["waits_for"] for row in waited)
        goals.append(Goal(f"{len(waited)} runs waited for nodes that they named", named))
    return tuple(goals)
