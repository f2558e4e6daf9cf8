"""A dry run's own process: its answer may be larger than a pipe, and it may end without one."""

import asyncio
import sys
from pathlib import Path

import pytest

from agiledart_agent.executors.code_check import check_in_subprocess
from agiledart_executor.wire.agent_messages import CodeCheckRequest

ANSWERS = """#!{python}
import os, sys, msgspec
from agiledart_executor.wire.agent_messages import CodeCheckResult
sys.stdin.buffer.read()
os.write(2, b"heard")
with os.fdopen(int(sys.argv[-1]), "wb") as out:
    out.write(msgspec.msgpack.encode(CodeCheckResult({text})))
"""


def checked_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    program = tmp_path / "python"
    program.write_text(ANSWERS.format(python=sys.executable, text=text))
    program.chmod(0o700)
    monkeypatch.setattr("agiledart_agent.executors.isolated_python.sys.executable", str(program))
    wanted = CodeCheckRequest(plan=b"", bundle=b"", stages=())
    return asyncio.run(check_in_subprocess(wanted, str(tmp_path))).refusal


def test_an_answer_larger_than_a_pipe_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked_by(tmp_path, monkeypatch, "'x' * 300_000") == "x" * 300_000


def test_a_process_that_ends_without_an_answer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ended (code 7)" in checked_by(tmp_path, monkeypatch, "os._exit(7)")
