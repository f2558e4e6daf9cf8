"""Fast starts of Spark, as far as they need no JVM: archives of classes, measured times, and the end of a server that stays."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agiledart.spark_start import _wait_for_end, adopt_archive, need_connect, note_start, starting_message, watch_server
from agiledart_kernel.errors import OperationFailed


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_complete_archive_is_adopted(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    (tmp_path / f"classes.jsa.{os.getpid()}").write_bytes(b"\xa8\xba\x0b\xf0 the rest")
    assert not adopt_archive(archive)
    assert archive.read_bytes().startswith(b"\xa8")


def test_an_archive_without_its_header_waits_for_its_writer(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    written = tmp_path / f"classes.jsa.{ended_process()}"
    written.write_bytes(bytes(64))
    assert adopt_archive(archive)  # its process has ended, but the JVM may go on for a while
    os.utime(written, (0, 0))
    assert not adopt_archive(archive)
    assert not list(tmp_path.iterdir())


def test_the_time_of_the_last_start_is_named(tmp_path: Path) -> None:
    assert starting_message(tmp_path, "short") == "starting Spark …"
    note_start(tmp_path, "short", 7.24)
    note_start(tmp_path, "kept", 0.6)
    assert starting_message(tmp_path, "short") == "starting Spark (7 s the last time) …"
    assert json.loads((tmp_path / "spark-start.json").read_text()) == {"short": 7.2, "kept": 0.6}
    assert starting_message(tmp_path, "kept") == "starting Spark (0.6 s the last time) …"
    (tmp_path / "spark-start.json").write_text("damaged")
    assert starting_message(tmp_path, "short") == "starting Spark …"


def test_missing_packages_of_connect_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OperationFailed, match=r"--keep-spark needs grpc, .*agiledart\[spark,connect\]"):
        need_connect("--keep-spark")


def test_a_server_ends_once_no_session_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Path] = []
    monkeypatch.setattr("agiledart.spark_start.stop_server", stopped.append)
    (tmp_path / "server.json").write_text("{}")
    used = (tmp_path / "used.lock").open("a")
    fcntl.flock(used, fcntl.LOCK_SH)
    watcher = threading.Thread(target=watch_server, args=(tmp_path, 0.2, 0.05))
    watcher.start()
    watcher.join(0.6)
    assert watcher.is_alive()
    assert not stopped
    used.close()
    watcher.join(20)
    assert stopped == [tmp_path]


@pytest.mark.parametrize("ignores_the_end", [False, True])
def test_stopping_waits_for_the_end_of_the_process(ignores_the_end: bool) -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores_the_end else "import sys"
    waits = [sys.executable, "-c", f"{code}; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _wait_for_end(process.pid, 0.2)
        assert process.wait(0) == -(signal.SIGKILL if ignores_the_end else signal.SIGTERM)
