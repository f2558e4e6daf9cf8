"""Small files that several threads write, and one reads, at the same time."""

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agiledart_agent.executors.work_owners import FOLDER, WorkOwners
from agiledart_agent.state_files.durable_file import durable_files

OWNER = b"k" * 32


def test_two_threads_may_write_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preparation of an application and its start write its owner at the same time."""
    both, sync = threading.Barrier(2, timeout=30), os.fsync

    def sync_together(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            both.wait()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_together)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: WorkOwners(tmp_path).claim("app", OWNER, is_used=False), range(2)))
    assert answers == ["", ""]
    assert durable_files(tmp_path / FOLDER) == list((tmp_path / FOLDER).iterdir())
    assert WorkOwners(tmp_path).names_of(OWNER) == {"app"}


def test_an_owners_file_that_is_being_written_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[frozenset[str]] = []
    owners = WorkOwners(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(owners.names_of(OWNER)))
    assert owners.claim("app", OWNER, is_used=False) == ""
    assert seen == [frozenset(), {"app"}]
