"""Form `--real` of `dataflow-recovery`: `kill -9` of agents that share applications; time to each application's next commit.

Eight or sixteen agents act as separate machines. All applications read on the first and write on the second. Their sums are on the
four agents behind them, one or two applications on each; the other agents are spare. One to four of the four are killed at one
moment, with their executors. An application counts as recovered when a new attempt has committed an epoch. One that loses three of
its five voters waits for their return. Afterwards the killed agents start again, and the sums move back.
"""

import os
import signal
import time
from contextlib import ExitStack
from typing import Any, Final

from agiledart_control.agent_place import in_state_dir
from agiledart_control.control_client import ControlClient
from agiledart_experiments.overlay_recovery import line
from agiledart_experiments.recovery.plug_ledger import STAGE, put_job, write_input
from agiledart_experiments.recovery.plug_mesh import PlugMesh, plug_mesh, until
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.randomness import RandomStream
from agiledart_node.wire.commands import MoveStage, Status

FAILURES: Final = {"small": (1, 2), "paper": (1, 2, 4)}
ROUNDS: Final = {"small": 1, "paper": 2}
"""Times that each number of failures is repeated."""

AGENTS: Final = {"small": 8, "paper": 16}
"""Agents by scale. Four dead agents hold three of an application's voters in 6 of 100 cases with 16, and in 50 with 8."""

HOSTS: Final = ("a3", "a4", "a5", "a6")
APPLICATIONS: Final = {"small": 4, "paper": 8}
INTERVAL_S: Final = 1
KEYS: Final = 200
ROWS_A_SECOND: Final = 50
INPUT_S: Final = 1_800
TIMEOUT_S: Final = 120.0
COMMIT_S: Final = 60.0
"""Longest time to the next commit; an application without one counts as waiting."""

LIVE: Final = ("running", "recovering", "minority")
"""States in which an application goes on, or will once its lost voters return."""


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each number of failures. Raises ConfigurationError for more failures than hosts."""
    counts = settings.sizes_or(FAILURES[settings.scale])
    if counts[-1] > len(HOSTS):
        raise ConfigurationError(
            f"--failures {counts[-1]}: --real kills at most {len(HOSTS)} agents of one machine; leave out --real for more."
        )
    random = RandomStream(settings.seed, "real dataflow-recovery")
    rounds = settings.runs or ROUNDS[settings.scale]
    names = [f"sums-{number}" for number in range(APPLICATIONS[settings.scale])]
    with plug_mesh(AGENTS[settings.scale], INTERVAL_S) as mesh, ExitStack() as stack:
        place = in_state_dir(mesh.machines[0].state_dir)
        assert place is not None
        client = stack.enter_context(ControlClient(place))
        settings.progress(f"{len(names)} applications start on {AGENTS[settings.scale]} agents")
        _submit_all(mesh, names)
        rows = [_row(mesh, client, names, count, rounds, random, settings) for count in counts]
    base, slope = line([(row["failures"], row["recovery_seconds"]) for row in rows if row["recovery_seconds"]])
    goals = [Goal("every application commits again", not any(row["wait"] for row in rows))]
    if len(rows) > 1:
        goals.append(Goal(f"slope per failure below 5 % of the base ({base:.2f} s)", slope < 0.05 * base))
    parameters = {
        "agents": AGENTS[settings.scale],
        "failures": counts,
        "applications": len(names),
        "rounds": rounds,
        "interval_s": INTERVAL_S,
        "cores": os.cpu_count(),
        "slope_seconds": round(slope, 4),
        "base_seconds": round(base, 3),
    }
    notes = (
        "recovery_seconds: from kill -9 to the first commit of a new attempt, mean of the applications that lost a host",
        f"an epoch is due every {INTERVAL_S} s, which is part of the time; agents and executors share this machine's cores",
    )
    return ExperimentReport(parameters, tuple(rows), tuple(goals), notes)


def _submit_all(mesh: PlugMesh, names: list[str]) -> None:
    put_job(mesh)
    write_input(mesh.folder / "in.csv", KEYS, 1_000, INPUT_S * ROWS_A_SECOND, ROWS_A_SECOND)
    for name in names:
        mesh.ask(
            "submit", "plug_job.py:plug", "--name", name, "--set", "readings=csv:in.csv?speed=1@a1", "--set",
            "padding_bytes=64", "--set", f"report=csv:{mesh.folder / name}.csv@a2",
        )  # fmt: skip


def _status(client: ControlClient, name: str) -> dict[str, Any]:
    status: dict[str, Any] = client.ask(Status(name))
    if status["state"] not in LIVE:
        raise OperationFailed(f"{name} is {status['state']}: {status.get('reason', '')}")
    return status


def _at_home(client: ControlClient, name: str, home: str) -> dict[str, Any]:
    """Wait until an application runs with its sums on this host; return its epoch. Raises OperationFailed with the last refusal."""
    refusals: list[str] = []
    try:
        return until(lambda: _epoch_at_home(client, name, home, refusals), TIMEOUT_S, f"{name} runs on {home}")
    except OperationFailed as error:
        status = client.ask(Status(name))
        seen = {field: status.get(field) for field in ("state", "placement", "recovery", "epoch")}
        raise OperationFailed(f"{error}; {seen}; last refusal: {(refusals or ['none'])[-1]}") from None


def _epoch_at_home(client: ControlClient, name: str, home: str, refusals: list[str]) -> dict[str, Any] | None:
    """Return the epoch of an application that runs with its sums on this host; begin a move where they are elsewhere.

    Args:
        refusals: gets the text of a refused move.
    """
    status = _status(client, name)
    if status["state"] != "running" or status.get("recovery") or not status.get("epoch"):
        return None
    if status["placement"][STAGE][0] != home:
        try:
            client.ask(MoveStage(name, STAGE, home), timeout=TIMEOUT_S)
        except OperationFailed as error:  # another change goes on
            refusals.append(str(error))
            time.sleep(INTERVAL_S)
        return None
    epoch: dict[str, Any] = status["epoch"]
    return epoch if epoch["committed"] > 0 else None


def _row(
    mesh: PlugMesh,
    client: ControlClient,
    names: list[str],
    count: int,
    rounds: int,
    random: RandomStream,
    settings: Settings,
) -> Row:
    """Kill `count` hosts in each round; return the row."""
    seconds: list[float] = []
    waits = 0
    for number in range(rounds):
        homes = {name: HOSTS[place % len(HOSTS)] for place, name in enumerate(names)}
        before = {name: _at_home(client, name, home) for name, home in homes.items()}
        victims = _drawn(random, count)
        settings.progress(f"{count} failures, round {number + 1} of {rounds}: {', '.join(victims)} die")
        hit = {name: before[name] for name, home in homes.items() if home in victims}
        began = time.monotonic()
        for victim in victims:
            mesh.machine(victim).signal(signal.SIGKILL)
        came = _next_commits(client, hit, began)
        seconds += came.values()
        waits += len(hit) - len(came)
        for victim in victims:
            mesh.machine(victim).kill_and_remove()
            mesh.machine(victim).start()
    ordered = sorted(seconds)
    return {
        "failures": count,
        "hit": len(seconds) + waits,
        "recovery_seconds": round(sum(ordered) / len(ordered), 3) if ordered else None,
        "slowest_seconds": round(ordered[-1], 3) if ordered else None,
        "fastest_seconds": round(ordered[0], 3) if ordered else None,
        "wait": waits,
        "load": round(os.getloadavg()[0], 1),
    }


def _drawn(random: RandomStream, count: int) -> list[str]:
    hosts = list(HOSTS)
    return [hosts.pop(random.index(len(hosts))) for _ in range(count)]


def _next_commits(client: ControlClient, before: dict[str, dict[str, Any]], began: float) -> dict[str, float]:
    """Return the seconds to the first commit of a new attempt, by application; one that has none in time is missing."""
    came: dict[str, float] = {}
    while len(came) < len(before) and time.monotonic() < began + COMMIT_S:
        for name, old in before.items():
            if name in came:
                continue
            epoch = _status(client, name).get("epoch")
            if epoch and epoch["attempt"] > old["attempt"] and epoch["committed"] > old["committed"]:
                came[name] = time.monotonic() - began
    return came
