"""Completion and missing arguments: the names that an agent knows; and the names of `up`'s agents for `--agent`."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from agiledart_cli import known_names
from agiledart_cli.main import GROUPS, VERBS, cli, run_cli
from agiledart_control.agent_place import AGENT_FILE, MESH_FILE, find_agent
from agiledart_kernel.errors import ConfigurationError
from agiledart_node.wire.commands import ListApplications, Nodes, Status
from tests.unit.cli.fake_agent import FakeAgent


def reply(command: Any) -> list[Any]:
    """Answers of an agent with two applications."""
    if isinstance(command, ListApplications):
        return [{"applications": [{"name": "taxi"}, {"name": "sums"}]}]
    if isinstance(command, Status):
        return [{"placement": {"read": ["a1"], "parse+count": ["a1"]}}]
    assert isinstance(command, Nodes)
    return [{"nodes": [{"name": "a1"}, {"name": "pi2"}]}]


def completed(*words: str) -> list[tuple[str, str]]:
    """The completions of the last word, with their types."""
    items = ShellComplete(cli, {}, "agiledart", "_X").get_completions(list(words[:-1]), words[-1])
    return [(item.type, item.value) for item in items]


def test_names_of_the_mesh_are_completed(tmp_path: Path) -> None:
    with FakeAgent(tmp_path, reply):
        agent = ("--agent", str(tmp_path))
        assert completed("status", *agent, "") == [("plain", "sums"), ("plain", "taxi")]
        assert completed("stop", *agent, "ta") == [("plain", "taxi")]
        assert completed("tap", *agent, "taxi", "") == [("plain", "count"), ("plain", "parse"), ("plain", "read")]
        assert completed("scale", *agent, "taxi", "p") == [("plain", "parse+count")]
        assert completed("move", *agent, "taxi", "read", "p") == [("plain", "pi2")]
        assert completed("drain", *agent, "") == [("plain", "a1"), ("plain", "pi2")]


def test_without_an_agent_nothing_is_completed_and_no_error_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed("status", "--agent", str(tmp_path), "") == []
    assert capsys.readouterr() == ("", "")


def test_files_are_completed_then_their_functions(tmp_path: Path) -> None:
    file = tmp_path / "taxi.py"
    file.write_text("raise SystemExit\ndef frequent(): ...\ndef busy(): ...\nclass F: ...\n")
    for verb in ("run", "submit"):
        assert completed(verb, "ta") == [("file", "ta")]
        assert completed(verb, f"{file}:f") == [("plain", f"{file}:frequent")]
    assert completed("run", f"{tmp_path}/nothing.py:f") == []


def test_parameters_of_the_builder_are_completed(tmp_path: Path) -> None:
    file = tmp_path / "taxi.py"
    file.write_text("raise SystemExit\ndef frequent(trips, report=None, *, top: int = 10): ...\n")
    target = f"{file}:frequent"
    names = [("plain", "trips="), ("plain", "report="), ("plain", "top=")]
    assert completed("run", target, "--set", "") == names
    assert completed("submit", str(file), "--set", "") == names  # the only function
    assert completed("submit", target, "--set", "trips=csv:x", "--set", "t") == [("plain", "top=")]
    assert completed("submit", target, "--set", "trips=csv:x") == [("file", "trips=csv:x")]
    assert completed("submit", f"{file}:none", "--set", "") == completed("submit", "--set", "") == []


def test_sources_and_sinks_of_a_file_of_sql_are_completed(tmp_path: Path) -> None:
    pytest.importorskip("sqlglot")
    file = tmp_path / "rooms.sql"
    file.write_text(
        "CREATE STREAM readings (room TEXT NOT NULL, celsius DOUBLE) WITH (source='csv:rooms.csv');\n"
        "CREATE STREAM warm WITH (sink='stdout:');\nINSERT INTO warm SELECT room, celsius FROM readings WHERE celsius > 15;\n"
    )
    assert completed("submit", str(file), "--set", "re") == [("plain", "readings=")]
    assert completed("run", str(file), "--set", "readings=csv:x", "--set", "") == [("plain", "warm=")]


@pytest.mark.parametrize(
    ("line", "parts", "expected"),
    [
        ("agiledart run rooms.py:bu", ["agiledart", "run", "rooms.py", ":", "bu"], ["build"]),
        ("agiledart run rooms.py:", ["agiledart", "run", "rooms.py", ":"], ["build"]),
        ("agiledart run rooms.py:build --set re", ["agiledart", "run", "rooms.py", ":", "build", "--set", "re"],
         ["readings=", "report="]),
        ("agiledart submit rooms.py --set readings=csv:r.csv --set rep",
         ["agiledart", "submit", "rooms.py", "--set", "readings", "=", "csv", ":", "r.csv", "--set", "rep"], ["report="]),
        ("agiledart submit --dr", ["agiledart", "submit", "--dr"], ["--drop", "--dry-run"]),
    ],
)  # fmt: skip
def test_bash_completes_words_that_it_splits(tmp_path: Path, line: str, parts: list[str], expected: list[str]) -> None:
    (tmp_path / "rooms.py").write_text("def build(readings, report): ...\n")
    (tmp_path / "agiledart").write_text(f'#!/bin/sh\nexec {sys.executable} -m agiledart_cli.main "$@"\n')
    (tmp_path / "agiledart").chmod(0o755)
    words = " ".join(f"'{part}'" for part in parts)
    script = (
        f"compopt() {{ :; }}; eval \"$(agiledart completion bash)\"; COMP_LINE='{line}' COMP_POINT={len(line)}"
        f" COMP_WORDS=({words}) COMP_CWORD={len(parts) - 1}; _agiledart_completion agiledart; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == expected, ran.stderr


def test_a_silent_agent_completes_nothing_and_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_names, "ASK_SECONDS", 0.2)
    with FakeAgent(tmp_path, lambda _: []) as agent:
        began = time.monotonic()
        assert completed("status", "--agent", str(tmp_path), "") == []
        assert time.monotonic() - began < 10  # the timeout of other commands is 60 s
        assert agent.asked == [ListApplications()]


def test_a_missing_argument_is_answered_with_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeAgent(tmp_path, reply):
        assert run_cli(["status", "--agent", str(tmp_path)]) == 2
        assert "Missing argument 'NAME'. Applications: sums, taxi." in capsys.readouterr().err
        assert run_cli(["tap", "taxi", "--agent", str(tmp_path)]) == 2
        assert "Missing argument 'STEP'. Steps: count, parse, read." in capsys.readouterr().err


def test_an_agent_of_up_is_found_by_its_name(tmp_path: Path) -> None:
    folders = [tmp_path / "m" / name for name in ("a1", "a2")]
    for folder in (tmp_path / "agiledart", *folders):
        folder.mkdir(parents=True)
        (folder / AGENT_FILE).write_text(json.dumps({"pid": os.getpid(), "name": folder.name}))
    (tmp_path / "agiledart" / MESH_FILE).write_text(json.dumps({"pid": os.getpid(), "agents": list(map(str, folders))}))
    environment = {"XDG_STATE_HOME": str(tmp_path), "HOME": "/"}
    assert find_agent("a2", environment).socket == folders[1] / "control.sock"
    assert find_agent(None, environment).name == "agiledart"
    with pytest.raises(ConfigurationError, match=r"name of an agent of `agiledart up`\. Agents of .*: a1, a2\."):
        find_agent("a9", environment)


def test_each_verb_is_in_one_section_of_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    grouped = [verb for verbs in GROUPS.values() for verb in verbs]
    assert sorted(set(grouped) & set(VERBS)) == sorted(grouped)
    assert run_cli(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{title}:\n" in printed for title in GROUPS)
    assert all(printed.count(f"\n  {verb} ") == 1 for verb in VERBS)
