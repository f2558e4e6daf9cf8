"""The command line as a whole: help, wrong usage, errors and exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from agiledart_cli import start
from agiledart_cli.main import VERBS, cli, run_cli
from agiledart_kernel.errors import InternalError, OperationFailed, TopologyError
from agiledart_node.wire.commands import Stop
from tests.unit.cli.fake_agent import FakeAgent


def test_the_overview_loads_no_verb() -> None:
    program = (
        "import sys; from agiledart_cli.main import run_cli; code = run_cli(['--help']); "
        "heavy = [n for n in sys.modules if n.split('.')[0] in "
        "('rich', 'asyncio', 'uvloop', 'cryptography', 'agiledart_dataflow', 'agiledart_agent', 'agiledart_transport')]; "
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", list(VERBS))
def test_each_verb_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text.split("Options:")[0]
    assert f"agiledart {verb}" in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_every_verb_that_prints_data_can_print_json() -> None:
    context = click.Context(cli)
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        leaves = list(command.commands.values()) if isinstance(command, click.Group) else [command]
        for leaf in leaves:
            if verb == "completion" or (verb, leaf.name) == ("place", "convert"):
                continue  # the one prints a shell's script, the other writes a file
            assert any("--output" in parameter.opts for parameter in leaf.params), f"{verb} {leaf.name}"


def test_an_unknown_verb_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["sumbit"]) == 2
    assert 'There is no verb "sumbit". Did you mean submit?' in capsys.readouterr().err


def test_wrong_options_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["demo", "--agents", "0"]) == 2
    assert run_cli(["run"]) == 2
    assert run_cli(["submit", "x.py:y", "--parallelism", "none"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["0", "129", "-1", "=4", "a=", "a=b", "٣", "a=8..1", "1..", "a=1..129"])
def test_invalid_parallelism_is_rejected(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["submit", "x.py:y", f"--parallelism={argument}"]) == 2
    assert "write --parallelism N or --parallelism STEP=N" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "x.py:y", "--set", "a=1", "--set", "a=2"], "a is set 2 times"),
        (["submit", "x.py:y", "--set", "a=1", "--set", "a =2"], "a is set 2 times"),
        (["submit", "x.py:y", "--name", ""], "'--name': the value is empty"),
        (
            ["list", "--identity", "adart1x"],
            "--identity is for an agent at HOST:PORT, but no --agent HOST:PORT is given",
        ),
    ],
)
def test_usage_errors_are_reported(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGILEDART_AGENT", raising=False)
    assert run_cli(arguments) == 2
    assert text in capsys.readouterr().err


def test_an_identity_is_refused_where_it_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeAgent(tmp_path, lambda _: [{"applications": []}]):
        assert run_cli(["list", "--agent", str(tmp_path), "--identity", "adart1x"]) == 2
    assert f"--agent {tmp_path} is on this machine" in capsys.readouterr().err


def test_an_empty_agent_option_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGILEDART_AGENT", str(tmp_path))
    with FakeAgent(tmp_path, lambda _: [{"applications": []}]):
        assert run_cli(["list", "--agent", ""]) == 0


def test_without_an_agent_the_exit_code_is_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("AGILEDART_AGENT", raising=False)
    for command in (
        ["list"],
        ["status", "x"],
        ["stop", "x"],
        ["nodes"],
        ["route", "x"],
        ["logs", "x"],
        ["token", "create"],
    ):
        assert run_cli(command) == 3, command
        assert capsys.readouterr().err.startswith("No agent answers: none in")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (OperationFailed("no such file"), 1, "no such file\n"),
        (TopologyError("taxi.py:14  needs a name"), 2, "taxi.py:14  needs a name\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 1, ""),
    ],
)
def test_errors_become_messages_and_exit_codes(
    error: BaseException,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "main", fail)
    assert run_cli([]) == code
    assert capsys.readouterr().err == text


@pytest.mark.parametrize("error", [InternalError("impossible"), ZeroDivisionError("division")])
def test_an_internal_error_leaves_a_trace_file_and_no_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "main", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_cli([]) == 1
    text = capsys.readouterr().err
    assert "This is a bug in AgileDart" in text
    assert "Traceback" not in text
    (trace,) = tmp_path.iterdir()
    assert "Traceback" in trace.read_text()


def test_a_closed_pipe_is_no_error_message(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "agiledart_cli.main", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(write)
    assert process.stderr == ""
    assert process.returncode in (0, 1)


def _started(arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Output of the console script in a shell with these arguments and redirections."""
    program = f"{sys.executable} -c 'from agiledart_cli.start import main; main()'"
    return subprocess.run(
        ["sh", "-c", f"{program} {arguments}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirected", "reason"), [(">/dev/full", "no space left on device"), (">&-", "bad file descriptor")]
)
def test_a_full_or_closed_standard_output_is_reported(
    tmp_path: Path, redirected: str, reason: str, unbuffered: str
) -> None:
    with FakeAgent(tmp_path, lambda _: [{"applications": []}]):
        for output in ("table", "json"):
            done = _started(f"list --agent {tmp_path} -o {output} {redirected}", PYTHONUNBUFFERED=unbuffered)
            assert done.stderr == f"standard output cannot be written: {reason}\n"
            assert done.returncode == 1


def test_a_closed_standard_output_is_ignored_when_nothing_is_printed() -> None:
    done = _started("nonsense >&-")
    assert done.returncode == 2
    assert 'no verb "nonsense"' in done.stderr
    assert _started("nonsense >&- 2>&-").returncode == 2


def test_ctrl_c_during_imports_leaves_no_traceback() -> None:
    program = """
import builtins, os, signal, sys
real = builtins.__import__
def interrupted(name, *rest):
    if name == "agiledart_cli.main":
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest)
builtins.__import__ = interrupted
{prelude}
from agiledart_cli.start import main
sys.argv = ["agiledart", "--version"]
main()
"""
    for prelude, code in (("", -signal.SIGINT), ("signal.signal(signal.SIGINT, signal.SIG_IGN)", 0)):
        done = subprocess.run(
            [sys.executable, "-c", program.format(prelude=prelude)], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (code, "")


def test_ctrl_c_raises_again_once_the_command_line_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(**_: object) -> None:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(cli, "main", interrupt)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(SystemExit) as ended:
            start.main()
        assert ended.value.code == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--version"]) == 0
    assert capsys.readouterr().out.startswith("agiledart 0.")


def test_list_and_status_print_tables_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        "name": "routes", "version": 2, "state": "failed", "reason": "pi3 is gone\nmore", "changed_ms": 1,
        "submitted_to": "pi1", "submitter": "uid 0", "placement": {"trips": ["pi1"], "count+top": ["pi2", "pi2", "pi3"]},
        "summary": {"records_in": 12345, "late": 1, "malformed": {"number": 2}, "outliers": 3, "paced": True,
                    "results": {"report": 7}, "latency_ms": {"report": {"p50": 1.25, "p95": 2.0, "p99": 3.0}},
                    "steps": {"count": {"rows_in": 12340, "rows_out": 12000, "dropped": 340}}},
    }  # fmt: skip
    with FakeAgent(tmp_path, lambda c: [{"applications": [record]} if "List" in type(c).__name__ else record]):
        assert run_cli(["list", "--agent", str(tmp_path)]) == 0
        table = capsys.readouterr().out
        assert run_cli(["status", "routes", "--agent", str(tmp_path)]) == 1
        shown = capsys.readouterr().out
        assert run_cli(["list", "--agent", str(tmp_path), "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["applications"][0]["version"] == 2
    assert "routes" in table
    assert "pi3 is gone" in table
    assert "more" not in table
    assert "FAILED" in shown
    assert "pi2 ×2 pi3" in shown
    assert "12,345" in shown
    assert "result after 1.2 ms, p99 3.0 ms" in shown


def test_stop_waits_until_it_has_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeAgent(tmp_path, lambda _: ["draining", {"name": "x", "version": 3, "state": "stopped"}]) as agent:
        assert run_cli(["stop", "x", "--now", "--agent", str(tmp_path)]) == 0
    assert agent.asked[0] == Stop("x", now=True)
    assert capsys.readouterr().err == "  draining\nx v3 is stopped.\n"


def test_no_color_disables_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    from agiledart_cli.output import paint, wants_colour

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())
    assert paint("x", "red", Terminal()) == "x"
