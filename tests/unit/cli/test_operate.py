"""`top`, `tap`, `doctor`, `config` and `completion`: their output, against an agent that only answers."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_cli.top.top_sample import Sample, compare
from agiledart_cli.top.top_view import picture, sorted_steps
from agiledart_cli.verbs import machine_checks
from agiledart_cli.verbs.machine_checks import BAD, OK, WATCH
from agiledart_node.wire.commands import Command, Info, ListApplications, Nodes, Status, Tap
from agiledart_node.wire.control_messages import ControlRefusal
from tests.unit.cli.fake_agent import FakeAgent

Out = pytest.CaptureFixture[str]


def node(name: str, *, asked: bool = False, answers: bool = True) -> dict[str, Any]:
    row = {"name": name, "node_id": name * 16, "incarnation": 1, "address": "x:1", "zone": "", "host": ""}
    row |= {"is_this_node": asked, "rtt_ms": None if asked else 1.25, "answers": answers}
    if answers:
        row |= {"instances": 2, "capacity": 64, "executors": 1, "applications": ["rooms"], "is_leaving": False}
    return row


def status(rows: int, busy_ms: int, at_ms: int, version: int = 1) -> dict[str, Any]:
    """An application with a source, a fused stage of two instances and a sink, after so many rows."""

    def instance(index: int, on: str, **steps: tuple[int, int]) -> dict[str, Any]:
        told = {name: {"rows_in": a, "rows_out": b, "dropped": a - b} for name, (a, b) in steps.items()}
        figures = {"busy_ns": busy_ms * 1_000_000, "queued_rows": 3, "blocked": False, "last_ms": at_ms}
        return {"index": index, "node": on, "steps": told, **figures}

    stages = [
        {"name": "readings", "kind": "source", "parallelism": 1,
         "instances": [instance(0, "a1", readings=(rows, rows))]},
        {"name": "warm+mean", "kind": "operator", "parallelism": 2,
         "instances": [instance(0, "a1", warm=(rows // 2, rows // 4), mean=(rows // 4, rows // 4)),
                       instance(1, "a2", warm=(rows // 2, rows // 4), mean=(rows // 4, rows // 4))]},
        {"name": "report", "kind": "sink", "parallelism": 1,
         "instances": [instance(0, "a2", report=(rows // 2, rows // 2))]},
    ]  # fmt: skip
    summary = {"records_in": rows, "late": 1, "malformed": {"columns": 2}, "results": {"report": rows // 2},
               "paced": True, "latency_ms": {"report": {"p50": 1.0, "p99": 7.5}},
               "steps": {"readings": {"rows_in": rows, "rows_out": rows, "dropped": 0}}}  # fmt: skip
    return {"name": "rooms", "version": version, "state": "running", "stages": stages, "summary": summary,
            "silent_nodes": []}  # fmt: skip


def listed(state: str = "running", name: str = "rooms", reason: str = "") -> dict[str, Any]:
    return {"name": name, "version": 1, "state": state, "reason": reason, "changed_ms": 1_000_000, "submitted_to": "a1"}


def sample(at: float, rows: int, busy_ms: int, at_ms: int, *, version: int = 1) -> Sample:
    nodes = {"nodes": [node("a1", asked=True), node("a2"), node("a3", answers=False)], "known": 3}
    old = listed("failed", "old", "a4 is gone\nmore")
    return Sample(at, nodes, [old, listed()], {"rooms": status(rows, busy_ms, at_ms, version)})


def test_rates_come_from_two_samples_and_the_instances_own_clock() -> None:
    # The agent was asked after 2 s, but between the reports lie 1.6 s of work: that is what counts.
    shown = compare(sample(10.0, 1_000, 100, 5_000), sample(12.0, 2_600, 900, 6_600), 2_000.0)
    by_step = {line.step: line for line in shown.steps}
    assert by_step["readings"].out_rate == 1_000
    assert by_step["warm"].in_rate == 1_000
    assert by_step["warm"].out_rate == by_step["mean"].in_rate == 500
    assert by_step["warm"].busy == pytest.approx(0.5)
    assert by_step["mean"].busy is None
    assert by_step["warm"].queue == 6
    (live, old) = shown.applications
    assert (live.name, live.in_rate, live.out_rate, live.records_in, live.malformed) == ("rooms", 1_000, 500, 2_600, 2)
    assert (live.p99_ms, live.since_seconds) == (7.5, 1_000.0)
    assert (old.state, old.reason) == ("failed", "a4 is gone")
    assert [line.busy for line in shown.nodes] == [pytest.approx(1.0), pytest.approx(1.0), None]


def test_there_is_no_rate_before_the_second_sample_or_for_a_new_version() -> None:
    first = compare(None, sample(10.0, 1_000, 100, 5_000), 2_000.0)
    assert all(line.in_rate is None and line.busy is None for line in first.steps)
    anew = compare(sample(10.0, 9_000, 900, 5_000), sample(12.0, 100, 10, 6_600, version=2), 2_000.0)
    assert all(line.in_rate is None for line in anew.steps)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 8), (40, 10), (200, 60)])
def test_the_picture_fits_the_terminal(width: int, height: int) -> None:
    shown = compare(sample(10.0, 1_000, 100, 5_000), sample(12.0, 2_600, 900, 6_600), 2_000.0)
    lines = picture(shown, width, height, "name")
    assert len(lines) <= height
    assert max(len(line.text) for line in lines) <= width
    assert "rooms" in "\n".join(line.text for line in lines)


def test_entries_that_do_not_fit_are_counted() -> None:
    shown = compare(None, sample(10.0, 1_000, 100, 5_000), 2_000.0)
    shown.steps.extend(shown.steps * 20)
    text = "\n".join(line.text for line in picture(shown, 80, 24, "name"))
    assert " more" in text
    assert "does not answer" in text


def test_steps_are_sorted_by_the_requested_column() -> None:
    shown = compare(sample(10.0, 1_000, 100, 5_000), sample(12.0, 2_600, 900, 6_600), 2_000.0)
    assert [line.step for line in sorted_steps(shown.steps, "name")] == ["readings", "warm", "mean", "report"]
    assert sorted_steps(shown.steps, "queue")[0].step == "warm"
    assert sorted_steps(shown.steps, "in")[-1].step in ("mean", "report")


Serve = Callable[[Callable[[Command], Any]], FakeAgent]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    folder = tmp_path / "agent"
    folder.mkdir()

    def start(answer: Callable[[Command], Any]) -> FakeAgent:
        return FakeAgent(folder, lambda command: [answer(command)])

    return start


def mesh_of_two(command: Command) -> Any:
    """Answers as a mesh in which 1,000 rows flow a second."""
    match command:
        case Nodes():
            return {"nodes": [node("a1", asked=True), node("a2")], "known": 2}
        case ListApplications():
            return {"applications": [listed()], "unreadable": 0}
        case Status():
            ms = int(time.monotonic() * 1000)
            return status(ms, ms, ms)
        case Info():
            return {"name": "a1", "address": "127.0.0.1:1", "joined": True, "is_leaving": False}
    return ControlRefusal(0, "no", 1)


def test_top_prints_once_and_as_json(serve: Serve, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_cli.top.top.FIRST_SECONDS", 0.1)
    with serve(mesh_of_two) as agent:
        assert run_cli(["top", "--once", "--agent", str(agent.folder)]) == 0
        told = capsys.readouterr().out
        assert run_cli(["top", "-o", "json", "--agent", str(agent.folder)]) == 0
    assert "2 nodes   1 application running" in told
    assert "\x1b" not in told
    body = json.loads(capsys.readouterr().out)
    assert [step["step"] for step in body["steps"]] == ["readings", "warm", "mean", "report"]
    assert body["steps"][0]["out_rate"] == pytest.approx(1_000, rel=0.5)
    assert body["applications"][0]["late"] == 1


def test_top_sorts_by_key_and_restores_the_terminal(serve: Serve) -> None:
    with serve(mesh_of_two) as agent:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "agiledart_cli.main", "top", "--agent", str(agent.folder), "--interval", "0.5"]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
            os.close(theirs)
            text = b""
            pressed = False
            end = time.monotonic() + 20
            while time.monotonic() < end:
                if not select.select([ours], [], [], 0.2)[0]:
                    continue
                try:
                    data = os.read(ours, 65_536)
                except OSError:  # the other end is closed
                    break
                if not data:
                    break
                text += data
                if not pressed and text.count(b"\x1b[H") >= 2:
                    pressed = True
                    os.write(ours, b"u")
                if pressed and text.count(b"\x1b[H") >= 4:
                    os.write(ours, b"q")
                    break
            assert process.wait(10) == 0
            while select.select([ours], [], [], 0.2)[0]:
                try:
                    text += os.read(ours, 65_536)
                except OSError:
                    break
        os.close(ours)
    screens = text.decode().split("\x1b[H")
    assert screens[0].startswith("\x1b[?1049h")
    first, last = screens[1], screens[-1]
    assert first.index("readings") < first.index("warm")
    assert last.index("warm") < last.index("readings")
    assert "\x1b[?1049l" in text.decode()
    assert "Traceback" not in text.decode()


def tapped(number: int, state: str = "running", rows: int = 2) -> dict[str, Any]:
    sampled = [
        {"node": "a1", "instance": 0, "time_ms": 1_357_023_600_000 + n, "row": {"room": "é, b", "value": n}}
        for n in range(rows)
    ]
    after = {"a1": number}
    return {"name": "rooms", "version": 1, "state": state, "step": "warm", "rows": sampled, "passed": 9,
            "after": after, "silent_nodes": []}  # fmt: skip


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_control.polling.TAP_POLL_SECONDS", 0.0)
    monkeypatch.setattr("agiledart_cli.verbs.tap.RATE_SECONDS", 0.01)


def in_turn(*answers: Any) -> Callable[[Command], Any]:
    waiting = iter(answers)
    return lambda _: next(waiting)


def test_tap_prints_a_json_line_for_each_row_and_resumes(serve: Serve, capsys: Out) -> None:
    with serve(in_turn(tapped(0, rows=0), tapped(2), tapped(4), tapped(4, "finished", 0))) as agent:
        assert run_cli(["tap", "rooms", "warm", "--agent", str(agent.folder)]) == 0
    told = capsys.readouterr()
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert len(lines) == 4
    assert lines[1] == {"time": "2013-01-01T07:00:00.001Z", "node": "a1", "instance": 0,
                        "row": {"room": "é, b", "value": 1}}  # fmt: skip
    assert "rooms is finished" in told.err
    assert agent.asked[:2] == [Tap("rooms", "warm"), Tap("rooms", "warm", {"a1": 0})]


def test_tap_ends_at_its_limit(serve: Serve, capsys: Out) -> None:
    with serve(in_turn(tapped(2), tapped(4))) as agent:
        assert run_cli(["tap", "rooms", "warm", "--limit", "3", "-o", "csv", "--agent", str(agent.folder)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == '2013-01-01T07:00:00.000Z,a1,0,"é, b",0'
    with serve_again(agent, in_turn(tapped(2))) as again:
        assert run_cli(["tap", "rooms", "warm", "--limit", "1", "-o", "table", "--agent", str(again.folder)]) == 0
    assert capsys.readouterr().out == "2013-01-01T07:00:00.000Z  a1.0  room=é, b  value=0\n"


def test_a_row_cannot_control_the_terminal(serve: Serve, capsys: Out) -> None:
    body = tapped(2, rows=1)
    body["rows"][0]["row"] = {"room": "\x1b[2Jgone\x9b1m"}
    with serve(lambda _: body) as agent:
        for output in ("table", "json"):
            assert run_cli(["tap", "rooms", "warm", "--limit", "1", "-o", output, "--agent", str(agent.folder)]) == 0
            told = capsys.readouterr().out
            assert "gone" in told
            assert "\x1b" not in told
            assert "\x9b" not in told


def serve_again(agent: FakeAgent, answer: Callable[[Command], Any]) -> FakeAgent:
    (agent.folder / "control.sock").unlink()
    return FakeAgent(agent.folder, lambda command: [answer(command)])


def test_tap_of_an_unknown_or_ended_application_fails(serve: Serve, capsys: Out) -> None:
    with serve(
        in_turn(ControlRefusal(0, "rooms has no step 'wram'. Did you mean warm?", 2), tapped(0, "stopped", 0))
    ) as agent:
        assert run_cli(["tap", "rooms", "wram", "--agent", str(agent.folder)]) == 2
        assert "Did you mean warm?" in capsys.readouterr().err
        assert run_cli(["tap", "rooms", "warm", "--agent", str(agent.folder)]) == 1
    assert "no rows to show" in capsys.readouterr().err


def test_tap_rate_is_parsed(serve: Serve, capsys: Out) -> None:
    with serve(mesh_of_two) as agent:
        words = ["tap", "rooms", "readings", "--rate", "--agent", str(agent.folder)]
        assert run_cli([*words, "--limit", "3"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(lines) == 3
        assert lines[-1]["rows"] > lines[0]["rows"]
        assert run_cli(["tap", "rooms", "reading", "--rate", "--agent", str(agent.folder)]) == 2
    assert "Did you mean readings?" in capsys.readouterr().err


# ---- doctor


def test_doctor_prints_a_line_for_each_check(
    serve: Serve, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGILEDART_AGENT__STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("AGILEDART_AGENT__LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("AGILEDART_AGENT__METRICS", "")
    with serve(mesh_of_two) as agent:
        assert run_cli(["doctor", "-o", "json", "--agent", str(agent.folder)]) == 0
        body = json.loads(capsys.readouterr().out)
        assert run_cli(["doctor", "--agent", str(agent.folder)]) == 0
    told = capsys.readouterr().out
    by_name = {check["name"]: check for check in body["checks"]}
    assert {"python", "packages", "clock", "port", "state directory", "disk", "memory", "open files", "spark", "agent",
            "ring", "applications"} <= set(by_name)  # fmt: skip
    assert by_name["ring"]["text"] == "2 nodes"
    assert body["bad"] == 0
    for check in body["checks"]:
        assert check["level"] in (OK, WATCH, BAD)
        assert bool(check["suggestion"]) is (check["level"] != OK), check
    assert "→" in told or body["watch"] == 0


def test_doctor_and_status_report_mostly_malformed_input(serve: Serve, capsys: Out) -> None:
    malformed: dict[str, int] = {}

    def answer(command: Command) -> Any:
        body = mesh_of_two(command)
        if isinstance(command, Status):
            body["summary"] |= {"records_in": 199, "malformed": malformed}
        return body

    with serve(answer) as agent:
        for number, told in ((100, True), (99, False)):
            malformed["number"] = number
            run_cli(["doctor", "-o", "json", "--agent", str(agent.folder)])
            checks_of_input = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["name"] == "input"]
            assert [one["level"] for one in checks_of_input] == [WATCH] * told
            assert all("100 of 199" in one["text"] for one in checks_of_input)
            assert run_cli(["status", "rooms", "--agent", str(agent.folder)]) == 0
            assert ("most records are malformed" in capsys.readouterr().out) is told


def test_doctor_works_without_an_agent_and_with_a_wrong_setting(
    capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGILEDART_AGENT__EXECUTORS", "many")
    assert run_cli(["doctor", "-o", "json", "--agent", str(tmp_path)]) == 1
    by_name = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert by_name["settings"]["level"] == BAD
    assert "agent.executors" in by_name["settings"]["text"]
    assert by_name["agent"]["level"] == BAD


def test_doctor_checks_the_clock() -> None:
    assert machine_checks.check_clock(0.0).level == BAD
    assert machine_checks.check_clock(1e11).level == BAD
    assert machine_checks.check_clock(1.8e9, synchronised=False).level == WATCH
    assert machine_checks.check_clock(1.8e9, synchronised=True).level == OK


@pytest.mark.parametrize(
    ("cores", "memory_mb", "nodes"), [(4, 16_000, 2), (8, 16_000, 3), (16, 64_000, 4), (8, 2_000, 1)]
)
def test_doctor_reports_the_share_of_the_ring_a_machine_can_take(cores: int, memory_mb: int, nodes: int) -> None:
    told = machine_checks.check_share(cores, memory_mb).text
    assert (f"enough for {nodes} nodes" in told) if nodes > 1 else ("one node" in told)


@pytest.mark.parametrize(
    ("wanted", "version", "level", "text"),
    [
        (True, 7, machine_checks.OK, "cannot reach this agent's keys and records (Landlock 7)"),
        (True, 2, machine_checks.WATCH, "cannot read this agent's keys, but can empty their files"),
        (True, 0, machine_checks.WATCH, "can read this agent's keys and act as it: the kernel has no Landlock"),
        (False, 7, machine_checks.WATCH, "can read this agent's keys and act as it: agent.confine is false"),
    ],
)
def test_doctor_checks_that_user_code_cannot_read_the_keys(wanted: bool, version: int, level: str, text: str) -> None:
    found = machine_checks.check_confinement(wanted, version)
    assert (found.level, found.text) == (level, text)
    assert bool(found.suggestion) == (level != machine_checks.OK)


@pytest.mark.parametrize(("is_confined", "level"), [(True, OK), (False, WATCH)])
def test_doctor_reports_a_writable_interpreter(tmp_path: Path, is_confined: bool, level: str) -> None:
    found = machine_checks.check_interpreter(is_confined, [tmp_path, tmp_path / "absent"])
    assert (found.name, found.level) == ("interpreter", level)
    assert f"may write into {tmp_path}" in found.text
    assert bool(found.suggestion) == (level == WATCH)
    assert machine_checks.check_interpreter(False, []).level == OK


@pytest.mark.parametrize(
    ("wanted", "reason", "level", "why"),
    [
        (True, "Function not implemented", WATCH, "Function not implemented"),
        (False, None, OK, "agent.fork_executors is false"),
    ],
)
def test_doctor_reports_the_cause_without_a_nursery(wanted: bool, reason: str | None, level: str, why: str) -> None:
    found = machine_checks.check_forking(wanted, reason)
    text = f"each starts an interpreter of its own, for more time and memory: {why}"
    assert (found.name, found.level, found.text) == ("executors", level, text)
    assert bool(found.suggestion) == (level == WATCH)


def test_doctor_reports_a_usable_nursery() -> None:
    found = machine_checks.check_forking(True, "")
    assert (found.level, found.text, found.suggestion) == (OK, "are forked from one process", "")


def test_doctor_checks_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = machine_checks.check_port("port", "127.0.0.1", port, None)
        assert found.level == WATCH
        assert f"pid {os.getpid()}" in found.text
        assert machine_checks.check_port("port", "127.0.0.1", port, os.getpid()).level == OK
    assert machine_checks.check_port("port", "127.0.0.1", 0, None).level == OK
    assert machine_checks.check_port("port", "192.0.2.1", 9464, None).level == BAD


def test_doctor_checks_state_directories(tmp_path: Path) -> None:
    def level(folder: Path) -> str:
        return machine_checks.check_state_directory(folder)[0].level

    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert [finding.name for finding in machine_checks.check_state_directory(private)][:2] == [
        "state directory",
        "disk",
    ]
    assert level(private) == OK
    private.chmod(0o755)
    assert level(private) == WATCH
    assert "will be made" in machine_checks.check_state_directory(tmp_path / "new" / "one")[0].text
    (tmp_path / "file").touch()
    assert level(tmp_path / "file") == BAD
    assert level(tmp_path / ("x" * 120)) == BAD


def test_doctor_checks_memory_and_limits(tmp_path: Path) -> None:
    table = "MemTotal: 1000000 kB\nMemAvailable: {} kB\n"
    assert machine_checks.check_memory(table.format(800_000), tmp_path).level == OK
    assert machine_checks.check_memory(table.format(200_000), tmp_path).level == WATCH
    (tmp_path / "memory.max").write_text("100000000\n")
    (tmp_path / "memory.current").write_text("90000000\n")
    assert machine_checks.check_memory(table.format(800_000), tmp_path).level == BAD
    assert [machine_checks.check_limits(soft).level for soft in (4_096, 512, 64)] == [OK, WATCH, BAD]


# ---- config, completion


def test_config_show_names_the_origin_of_each_setting_and_no_secret(
    capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[agent]\nexecutors = 2\nzone = "attic"\n')
    monkeypatch.setenv("AGILEDART_AGENT__ZONE", "cellar")
    monkeypatch.setenv("AGILEDART_AGENT__JOIN", "adart1secret")
    assert run_cli(["config", "show", "--config", str(file), "--origin", "-o", "json"]) == 0
    text = capsys.readouterr().out
    body = json.loads(text)
    assert body["agent.executors"] == {"value": 2, "origin": str(file)}
    assert body["agent.zone"] == {"value": "cellar", "origin": "AGILEDART_AGENT__ZONE"}
    assert body["agent.verbose"] == {"value": False, "origin": "default"}
    assert body["agent.join"]["value"] == "(hidden)"
    for words in (["config", "show"], ["config", "show", "--origin"]):
        assert run_cli(words) == 0
        told = capsys.readouterr().out
        assert "agent.zone" in told
        assert "secret" not in told
    assert "secret" not in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_variable(shell: str, capsys: Out) -> None:
    assert run_cli(["completion", shell]) == 0
    assert f"_AGILEDART_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "expected"), [("st", "status"), ("top --s", "--sort"), ("config ", "show")])
def test_a_shell_gets_completions(words: str, expected: str) -> None:
    typed = f"agiledart {words}"
    part = "" if typed.endswith(" ") else typed.split()[-1]
    environment = {**os.environ, "_AGILEDART_COMPLETE": "bash_complete", "COMP_LINE": typed, "COMP_PART": part,
                   "COMP_POINT": str(len(typed))}  # fmt: skip
    code = "import sys; sys.argv[0] = 'agiledart'; from agiledart_cli.main import main; sys.exit(main())"
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert f"plain,{expected}" in ran.stdout, ran.stderr
