"""An operator's commands, against real agents: top, tap, doctor; and what agents log when nothing happens."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import Status
from tests.e2e.mesh import COMMAND, Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e]

CODE = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    value: int


def even(reading: Reading) -> bool:
    return reading.value % 2 == 0


def doubled(reading: Reading) -> Reading:
    return reading._replace(value=2 * reading.value)


def build(readings: Source[Reading], report: Sink[Reading]) -> Topology:
    topology = Topology("doubling")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.filter(even).map(doubled).sink("report", report)
    return topology
"""

ROWS = 60_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mesh, Path]]:
    """Three agents that log JSON, and an application to which 200 rows come each second for five minutes."""
    folder = tmp_path_factory.mktemp("operate")
    (folder / "doubling.py").write_text(CODE)
    (folder / "rows.csv").write_text("".join(f"{n * 5},{n}\n" for n in range(ROWS)))
    with mesh(3, "--log-format", "json") as ring:
        submitted = cli(
            "submit", f"{folder / 'doubling.py'}:build", "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1@a2",
            "--set", f"report=csv:{folder / 'out.csv'}@a3", "--agent", str(ring.agents[0].state_dir), cwd=folder,
        )  # fmt: skip
        assert submitted.returncode == 0, submitted.stderr
        yield ring, folder


def test_top_displays_correct_rates(running: tuple[Mesh, Path]) -> None:
    ring, _ = running

    def flows() -> bool:
        return bool(ring.agents[1].ask(Status("doubling"))["summary"].get("records_in", 0) > 200)

    wait_for(flows, 20, "rows flow")
    body: dict[str, Any] = {}

    def rates_are_right() -> bool:
        """A busy machine may hold rows back for longer than the time between two samples."""
        told = cli("top", "-o", "json", "--agent", str(ring.agents[1].state_dir))
        assert told.returncode == 0, told.stderr
        body.update(json.loads(told.stdout))
        by_step = {step["step"]: step for step in body["steps"]}
        assert by_step["report"]["nodes"] == ["a3"]
        return bool(100 < by_step["readings"]["out_rate"] < 320 and 50 < by_step["doubled"]["out_rate"] < 160)

    wait_for(rates_are_right, 30, "top displays the rates of the source")
    assert sorted(node["name"] for node in body["nodes"]) == ["a1", "a2", "a3"]
    once = cli("top", "--once", "--agent", str(ring.agents[1].state_dir))
    assert "doubling v1" in once.stdout
    assert "3 nodes   1 application running" in once.stdout


@pytest.mark.parametrize(("step", "factor"), [("readings", 1), ("even", 1), ("doubled", 2), ("report", 2)])
def test_tap_samples_rows_that_leave_each_step(running: tuple[Mesh, Path], step: str, factor: int) -> None:
    ring, _ = running
    told = cli("tap", "doubling", step, "--limit", "6", "--agent", str(ring.agents[0].state_dir))
    assert told.returncode == 0, told.stderr
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(rows) == 6
    for row in rows:
        assert row["node"] in ("a1", "a2", "a3")
        assert row["row"]["value"] == factor * row["row"]["at"] // 5
        if step != "readings":
            assert row["row"]["value"] % (2 * factor) == 0


def test_a_disconnected_tap_does_not_disturb_the_job(running: tuple[Mesh, Path]) -> None:
    ring, folder = running
    agent = str(ring.agents[0].state_dir)
    with subprocess.Popen([*COMMAND, "tap", "doubling", "doubled", "--agent", agent], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline()
        reader.kill()
    before = (folder / "out.csv").stat().st_size
    wait_for(lambda: (folder / "out.csv").stat().st_size > before + 1_000, 20, "the job goes on")
    lines = (folder / "out.csv").read_text().splitlines()[:-1]
    values = [int(line.split(",")[1]) for line in lines]
    assert values == list(range(0, 4 * len(values), 4))


def test_tap_of_an_unknown_step_or_by_a_reader(running: tuple[Mesh, Path]) -> None:
    ring, folder = running
    agent = ring.agents[0]
    wrong = cli("tap", "doubling", "double", "--agent", str(agent.state_dir))
    assert wrong.returncode == 2
    assert "Did you mean doubled?" in wrong.stderr
    token = folder / "reader.token"
    token.write_text(cli("token", "create", "--role", "reader", "--agent", str(agent.state_dir)).stdout.strip())
    refused = cli("tap", "doubling", "doubled", "--agent", agent.address, "--identity", f"@{token}")
    assert refused.returncode == 1
    assert "A reader may not tap" in refused.stderr


def test_the_submitter_may_stop_with_its_token_and_no_other_user_may(running: tuple[Mesh, Path]) -> None:
    ring, folder = running
    agent = ring.agents[0]

    def holder(name: str) -> tuple[str, ...]:
        token = folder / f"{name}.token"
        token.write_text(cli("token", "create", "--role", "submitter", "--agent", str(agent.state_dir)).stdout.strip())
        return ("--agent", agent.address, "--identity", f"@{token}")

    mine, others = holder("mine"), holder("others")
    submitted = cli(
        "submit", f"{folder / 'doubling.py'}:build", "--name", "mine",
        "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1@a2",
        "--set", f"report=csv:{folder / 'mine.csv'}@a3", *mine, cwd=folder,
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    refused = cli("stop", "mine", *others)
    assert refused.returncode == 1, refused.stdout
    assert "mine" in refused.stderr
    stopped = cli("stop", "mine", *mine)
    assert stopped.returncode == 0, stopped.stderr


def test_doctor_of_a_healthy_mesh(running: tuple[Mesh, Path]) -> None:
    ring, _ = running
    told = cli("doctor", "-o", "json", "--agent", str(ring.agents[2].state_dir))
    by_name = {check["name"]: check for check in json.loads(told.stdout)["checks"]}
    assert by_name["agent"]["level"] == "ok"
    assert by_name["applications"]["text"] == "1 running"
    assert by_name["ring"]["text"].startswith("3 nodes")
    gone = cli("doctor", "--agent", "127.0.0.1:1", "--identity", "adart1nonsense")
    assert gone.returncode == 1
    assert "Traceback" not in gone.stderr


def test_logs_are_one_object_a_line_and_a_quiet_node_adds_none(running: tuple[Mesh, Path]) -> None:
    ring, _ = running
    sizes = {agent.name: agent.log.stat().st_size for agent in ring.agents}
    records = ring.agents[0].ask(Status("doubling"))["summary"]["records_in"]
    wait_for(
        lambda: ring.agents[0].ask(Status("doubling"))["summary"]["records_in"] > records + 600, 20, "three seconds"
    )
    for agent in ring.agents:
        text = agent.log.read_bytes()
        events = [json.loads(line) for line in text.decode().splitlines()]
        assert all({"time", "level", "event", "node", "text"} <= set(event) for event in events)
        assert "started" in [event["event"] for event in events]
        new = [json.loads(line) for line in text[sizes[agent.name] :].decode().splitlines()]
        # A loaded machine may well be late, and then it is right to say so.
        assert [event for event in new if event["event"] not in ("node.timer_late", "node.suspected")] == []


def test_a_failure_of_user_code_ends_a_tap_and_is_one_warning(running: tuple[Mesh, Path]) -> None:
    ring, folder = running
    trigger = folder / "trigger"
    (folder / "bad.py").write_text(
        "import os\n"
        + CODE.replace(
            "return reading.value % 2 == 0", f"return 1 // (1 - os.path.exists({str(trigger)!r})) > 0"
        ).replace('Topology("doubling")', 'Topology("bad")')
    )
    agent = ring.agents[0]
    submitted = cli(
        "submit", f"{folder / 'bad.py'}:build", "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1@a2",
        "--set", f"report=csv:{folder / 'bad.csv'}@a3", "--agent", str(agent.state_dir), cwd=folder,
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    command = [*COMMAND, "tap", "bad", "even", "--agent", str(agent.state_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tap:
        assert tap.stdout is not None
        assert tap.stdout.readline()  # it looks on now, however busy the machine is
        trigger.touch()
        _, told = tap.communicate(timeout=60)
    assert tap.returncode == 1
    assert "bad is failed" in told
    events = [json.loads(line) for one in ring.agents for line in one.log.read_text().splitlines()]
    failures = [event for event in events if event["event"] == "application.failed"]
    assert len(failures) == 1
    assert "ZeroDivisionError" in failures[0]["text"]
