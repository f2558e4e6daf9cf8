"""Each verb against an agent that only answers, and `run` without one."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_dataflow.plan.specification import Specification
from agiledart_executor.user_code.user_builder import build_bundle, decode_bundle
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_node.wire.commands import Command, CreateToken, Logs, Submit, TraceRoute
from tests.unit.cli.fake_agent import FakeAgent

CODE = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology, csv


class Row(NamedTuple):
    at: int
    value: float


def positive(row: Row) -> bool:
    return row.value > 0


def build(rows: Source[Row], report: Sink[Row] = csv("out.csv")) -> Topology:
    topology = Topology("small")
    topology.source("rows", rows, event_time=lambda row: row.at).filter(positive).sink("report", report)
    return topology
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.py").write_text(CODE)
    (tmp_path / "rows.csv").write_text("1,1.5\n2,-1\nnonsense\n3,2.5\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


Ask = Callable[..., tuple[int, list[Command]]]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Run a verb against an agent that gives these answers in turn; exit code and what it was asked."""
    folder = tmp_path / "agent"
    folder.mkdir()

    def run(arguments: list[str], *answers: Any) -> tuple[int, list[Command]]:
        waiting = iter(answers)
        with FakeAgent(folder, lambda _: next(waiting)) as agent:
            code = run_cli([*arguments, "--agent", str(folder)])
        (folder / "control.sock").unlink()
        return code, agent.asked

    return run


def test_run_writes_results_and_prints_figures(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["run", "small.py:build", "--set", "rows=csv:rows.csv"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "small: done in" in told.err
    assert "malformed: wrong number of columns or line too long: 1" in told.err
    assert "positive: 3 in, 2 out, 1 dropped" in told.err
    assert len((project / "out.csv").read_text().splitlines()) == 2


def test_run_reports_malformed_input_and_fails_when_all_of_it_is(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "small.py:build", "--set", "rows=csv:rows.csv"]
    assert run_cli(words) == 0
    assert "rows: rows.csv:3 1 column, not 2 (at, value): 'nonsense'" in capsys.readouterr().err
    (project / "rows.csv").write_text("1;1.5\n" * 21)
    assert run_cli(words) == 1
    told = capsys.readouterr().err
    assert told.count("1 column, not 2") == 5
    assert "rows: 21 of 21 records malformed: 21 columns" in told
    assert "rows: all records were malformed" in told
    assert run_cli([*words, "-o", "json"]) == 1
    (project / "rows.csv").write_text("")
    assert run_cli(words) == 0


def test_run_prints_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["run", "small.py", "--set", "rows=csv:rows.csv", "--parallelism", "3", "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["name"] == "small"
    assert body["records_in"] == 4
    assert body["malformed"] == {"columns": 1}
    assert body["results"] == {"report": 2}
    counts = body["steps"]["positive"]
    assert (counts["rows_in"], counts["rows_out"], counts["dropped"], counts["skipped"]) == (3, 2, 1, 0)
    assert body["interrupted"] is False


def test_run_without_its_input_names_the_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["run", "small.py:build", "--set", "rows=csv:nothing.csv"]) == 1
    assert f"{project}/nothing.csv" in capsys.readouterr().err


@pytest.mark.e2e
def test_run_is_interrupted_cleanly(project: Path) -> None:
    command = [sys.executable, "-m", "agiledart_cli.main", "run", "agiledart_examples.debs2015:frequent_routes"]
    settings = ["--set", "trips=taxi:?speed=600", "--set", "report=csv:routes.csv"]
    with subprocess.Popen([*command, *settings], stderr=subprocess.PIPE, text=True) as process:
        routes = project / "routes.csv"
        while process.poll() is None and not (routes.exists() and routes.stat().st_size):
            pass
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "frequent-routes: interrupted after" in talk
    assert "Traceback" not in talk


def test_submit_sends_a_bundle_that_builds_the_same_graph(
    project: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {
        "name": "small",
        "version": 3,
        "state": "running",
        "placement": {"rows": ["a1"], "positive": ["a2", "a2"], "report": ["a1"]},
        "paths": [["a1", "a2"]],
        "seconds_to_running": 0.41,
        "strategy": "along_path",
    }
    arguments = ["submit", "small.py:build", "--set", "rows=csv:rows.csv@a1", "--parallelism", "2", "--executors", "3"]
    code, asked = ask(arguments, ["placing", answer])
    assert code == 0
    (command,) = asked
    assert isinstance(command, Submit)
    assert command.parallelism == {"positive": 2}
    assert command.executors == 3
    sent = Codec[Specification](Specification, MAX_RECORD_BYTES).decode(command.specification)
    assert build_bundle(decode_bundle(command.bundle)).specification().digest() == sent.digest()
    told = capsys.readouterr()
    assert "  placing\n" in told.err
    assert "small v3: 3 stages on a1, a2; running after 0.41 s." in told.out
    arguments[5] = "positive=1..8"
    (command,) = ask(arguments, [answer])[1]
    assert isinstance(command, Submit)
    assert Codec[Submit](Submit, MAX_RECORD_BYTES).decode(encode(command)).parallelism == {"positive": (1, 8)}
    assert "a2 ×2" in told.out
    assert "path a1 → a2 (1 hop)" in told.out


def test_submit_waits_when_requested(project: Path, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    started = {"name": "small", "version": 1, "state": "running", "placement": {}, "seconds_to_running": 0.1}
    failed = {**started, "state": "failed", "reason": "small.py:10 in positive: TypeError"}
    code, _ = ask(["submit", "small.py", "--set", "rows=csv:rows.csv", "--wait"], [started], [started], [failed])
    assert code == 1
    assert "FAILED: small.py:10 in positive: TypeError" in capsys.readouterr().out


def test_interrupting_a_wait_prints_that_the_application_continues(
    project: Path, ask: Ask, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    started = {"name": "small", "version": 1, "state": "running", "placement": {}, "seconds_to_running": 0.1}
    monkeypatch.setattr("agiledart_control.polling.time.sleep", interrupt)
    assert ask(["submit", "small.py", "--set", "rows=csv:rows.csv", "--wait"], [started], [started])[0] == 130
    assert "small keeps running. Stop it: agiledart stop small" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_a_function_that_builds_nothing_needs_no_parameters(
    verb: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli([verb, "small.py:positive"]) == 2
    told = capsys.readouterr().err
    assert told == "positive builds no topology: it takes row and returns bool. Builders in small.py: build\n"


def test_submit_refuses_objects_of_this_process(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "local_run.py").write_text(CODE + "\ndef here() -> Topology:\n    return build([Row(1, 2.0)])\n")
    assert run_cli(["submit", "local_run.py:here"]) == 2
    assert "rows of small read or write objects of this process" in capsys.readouterr().err


def test_submit_refuses_a_result_over_its_input(project: Path, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    same = ["submit", "small.py", "--set", "rows=csv:rows.csv@pi2", "--set"]
    assert run_cli([*same, "report=csv:../" + project.name + "/rows.csv@pi2"]) == 2
    assert "report would overwrite what rows reads (csv:" in capsys.readouterr().err
    plan = {"name": "small", "version": 1}
    code, asked = ask([*same, "report=csv:rows.csv@pi3", "-o", "json"], [plan])
    assert (code, len(asked)) == (0, 1)  # another node's file


def test_run_reports_that_user_code_exits(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "quits.py").write_text(CODE.replace("return row.value > 0", "raise SystemExit"))
    assert run_cli(["run", "quits.py:build", "--set", "rows=csv:rows.csv"]) == 1
    assert "quits.py:13 in positive: SystemExit for record Row(at=1" in capsys.readouterr().err


def test_nodes_and_route_are_printed(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    one = {
        "name": "a1", "node_id": "12" * 16, "incarnation": 1, "address": "127.0.0.1:1", "zone": "attic", "host": "",
        "is_this_node": True, "rtt_ms": None, "answers": True, "instances": 3, "capacity": 64, "executors": 1,
        "applications": ["small"], "is_leaving": False,
    }  # fmt: skip
    two = {**one, "name": "a2", "is_this_node": False, "rtt_ms": 1.25, "answers": False}
    assert ask(["nodes"], [{"nodes": [one, two], "known": 2}])[0] == 0
    table = capsys.readouterr().out
    assert "a1 (asked)" in table
    rows = [line.split() for line in table.splitlines()]
    used = rows[0].index("used")  # the asked node's name is two words, so its figures are one further
    assert (rows[0][used + 1], rows[1][-3:-1]) == ("free", ["3", "61"])
    assert "does not answer" in table
    hop = {**one, "rtt_from_here_ms": None}
    body = {"key": "ab" * 16, "hops": 1, "path": [hop, {**hop, "name": "a2"}], "round_trip_ms": 2.0}
    code, asked = ask(["route", "name:x"], [body])
    assert code == 0
    assert asked == [TraceRoute("name:x")]
    assert "1 hop, there and back 2.0 ms" in capsys.readouterr().out


def test_logs_follow_until_the_end(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"node": "a1", "number": 1, "at_ms": 5, "step": "", "text": "hello"}
    first = {"name": "small", "state": "running", "lines": [line], "after": {"a1": 1}, "silent_nodes": []}
    last = {**first, "state": "finished", "lines": [], "silent_nodes": ["a2"]}
    code, asked = ask(["logs", "-f", "small"], [first], [last])
    assert code == 0
    assert asked == [Logs("small", {}), Logs("small", {"a1": 1})]
    told = capsys.readouterr()
    assert told.out == "a1  hello\n"
    assert "No answer from a2" in told.err


def test_logs_as_json_is_one_document(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"node": "a1", "number": 1, "at_ms": 5, "step": "", "text": "hello"}
    first = {"name": "small", "state": "running", "lines": [line], "after": {"a1": 1}, "silent_nodes": []}
    second = {**first, "lines": [{**line, "number": 2}], "after": {"a1": 2}}
    last = {**second, "lines": [], "silent_nodes": ["a2"]}
    assert ask(["logs", "small", "-o", "json"], [first], [second], [last])[0] == 0
    assert json.loads(capsys.readouterr().out) == {**last, "lines": [line, {**line, "number": 2}]}
    assert ask(["logs", "small", "-o", "json"], [last])[0] == 0
    assert json.loads(capsys.readouterr().out) == last
    ended = {**last, "state": "finished"}
    assert ask(["logs", "-f", "small", "-o", "json"], [first], [second], [ended])[0] == 0
    assert [json.loads(text)["number"] for text in capsys.readouterr().out.splitlines()] == [1, 2]


def test_token_create_prints_the_token_alone_on_stdout(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = ask(["token", "create", "--role", "reader", "--uses", "1", "--expires", "2h"], [{"token": "adart1x"}])
    assert code == 0
    assert asked == [CreateToken("reader", 1, 7200, 31_536_000, "")]
    told = capsys.readouterr()
    assert told.out == "adart1x\n"
    assert "1 use, for 2 h 0 min, role reader" in told.err


def test_token_show_hides_the_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import time

    from agiledart_agent.identity.identity import Identity
    from agiledart_agent.identity.tokens import create_token, parse_token

    identity = Identity.load_or_create(tmp_path / "state")
    identity.create_network()
    identity.keep_network()
    text = create_token(identity.issuer(), now_seconds=int(time.time()), addresses=("10.0.0.1:9464",), uses=7)
    (tmp_path / "token").write_text(text + "\n")
    assert run_cli(["token", "show", f"@{tmp_path}/token", "-o", "json"]) == 0
    told = capsys.readouterr().out
    assert json.loads(told)["uses"] == 7
    assert parse_token(text).secret.hex() not in told
    assert text not in told
    old = create_token(identity.issuer(), now_seconds=int(time.time()) - 90_000, addresses=(), expires=60)
    assert run_cli(["token", "show", old]) == 1
    assert "expired" in capsys.readouterr().out
    assert run_cli(["token", "show", "adart1nonsense"]) == 1
    identity.close()


def test_agent_check_displays_settings_and_their_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["agent", "--check", "--state-dir", str(tmp_path), "--name", "pi9", "--join", "adart1secret"]
    assert run_cli([*arguments, "-o", "json"]) == 0
    told = capsys.readouterr().out
    assert json.loads(told)["name"] == "pi9"
    assert "adart1secret" not in told
    assert run_cli([*arguments, "--listen", "nowhere"]) == 2
    assert "192.168.1.20:9464" in capsys.readouterr().err
    (tmp_path / "agent.toml").write_text("[agent]\nexecutors = 99\n")
    assert run_cli([*arguments, "--config", str(tmp_path / "agent.toml")]) == 2
    assert "1 to 64" in capsys.readouterr().err
