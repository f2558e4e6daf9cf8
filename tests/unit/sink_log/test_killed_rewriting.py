"""Death of the process that rewrites segments, at any system call and by real kills: no row is lost, doubled or changed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agiledart_sink_log import segment_rewriter
from agiledart_sink_log.columns_program import rewritten
from agiledart_sink_log.layout import segments_of
from tests.unit.sink_log.test_segment_rewriter import append, comparable, log_of, rows_of

pytest.importorskip("pyarrow")


class KilledError(BaseException):
    """Death at a system call: nothing after it is carried out, no `finally` either."""


class DyingSystem:
    """The module `os` for the rewriter: it dies at the call of a number, and carries out nothing from then on."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("write", "utime", "fsync", "replace"):
            return real

        def call(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise KilledError
            return real(*arguments, **more)

        return call


def test_a_death_at_any_system_call_leaves_the_old_segment_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path)
    append(log, 1_000)
    before = [comparable(row) for row in rows_of(tmp_path)]
    unlink = Path.unlink
    monkeypatch.setattr(segment_rewriter, "BATCH_ROWS", 50)
    deaths = 0
    for number in range(200):
        dying = DyingSystem(number)
        with monkeypatch.context() as patch:
            patch.setattr(segment_rewriter, "os", dying)
            patch.setattr(Path, "unlink", lambda path, d=dying, **how: unlink(path, **how) if d.left >= 0 else None)
            try:
                rewritten(tmp_path, 1, frozenset())
            except KilledError:
                deaths += 1
        assert [comparable(row) for row in rows_of(tmp_path)] == before, number
        if dying.left >= 0 and not list(segment_rewriter.full_segments(tmp_path)):
            break
    assert deaths > 8
    assert not list((log.directory / "0").glob(f"*{segment_rewriter.NEW}"))
    log.close()
    again = log_of(tmp_path)
    assert (again.notes(), again.partitions[0].end) == ([], 1_000)
    again.close()


REWRITER = """
import sys
from pathlib import Path
from agiledart_sink_log import column_form, segment_rewriter
from agiledart_sink_log.columns_program import rewritten
import pyarrow.compute
print("ready", flush=True)
sys.stdin.readline()
rewritten(Path(sys.argv[1]), 1_000, frozenset())
"""


@pytest.mark.slow
def test_twenty_kills_of_the_rewriting_process_while_a_writer_appends_and_trims(tmp_path: Path) -> None:
    dice = random.Random(7)
    log = log_of(tmp_path, max_bytes=400 << 10)
    append(log, 4_000)
    kills = 0
    while kills < 20:
        process = subprocess.Popen(
            [sys.executable, "-c", REWRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"\n")
        process.stdin.flush()
        end = time.monotonic() + dice.random() * 0.3
        while time.monotonic() < end:
            append(log, 50)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        process.stdin.close()
        process.stdout.close()
        first, last = log.partitions[0].first, log.partitions[0].end
        assert [row[0] for row in rows_of(tmp_path)] == list(range(first, last))
        append(log, 500)
    assert log.partitions[0].trimmed_rows > 0
    log.close()
    again = log_of(tmp_path, max_bytes=400 << 10)
    assert again.notes() == []
    while rewritten(tmp_path, 100, frozenset()).segments:
        pass
    assert [row[0] for row in rows_of(tmp_path)] == list(range(again.partitions[0].first, again.partitions[0].end))
    assert not list((again.directory / "0").glob(f"*{segment_rewriter.NEW}"))
    assert len(segments_of(again.directory / "0")) > 5
    again.close()
