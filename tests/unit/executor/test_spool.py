"""Chunks on disk: in order, bounded, gone with their process, and a disk that fails says what to do."""

import errno
import os
from pathlib import Path

import pytest

from agiledart_executor.spool.spool_log import SpoolLog
from agiledart_kernel.errors import OperationFailed

MIB = 1 << 20


def test_chunks_return_in_order_over_many_files(tmp_path: Path) -> None:
    spool = SpoolLog(tmp_path, MIB)
    chunks = [bytes([number]) * 50_000 for number in range(15)]
    for chunk in chunks:
        assert spool.has_space()
        spool.append(chunk, 3)
    assert spool.rows == 45
    assert [spool.next() for _ in chunks] == chunks
    assert spool.next() is None
    assert spool.rows == 0
    spool.append(b"again", 1)
    assert spool.next() == b"again"


def test_a_spool_is_bounded_and_frees_space(tmp_path: Path) -> None:
    spool = SpoolLog(tmp_path, MIB)
    while spool.has_space():
        spool.append(b"x" * 40_000, 1)
    full = spool.bytes_used
    assert full <= MIB
    for _ in range(10):
        spool.next()
    assert spool.has_space()
    assert spool.bytes_used < full
    while spool.next() is not None:
        pass
    assert spool.bytes_used < MIB // 4


def test_a_slow_trickle_does_not_grow_the_file(tmp_path: Path) -> None:
    spool = SpoolLog(tmp_path, MIB)
    for _ in range(100):
        spool.append(b"x" * 1000, 1)
        assert spool.next() is not None
        assert spool.next() is None
        assert spool.bytes_used == 0


def test_no_files_are_left_behind(tmp_path: Path) -> None:
    spool = SpoolLog(tmp_path, MIB)
    spool.append(b"x", 1)
    assert list(tmp_path.iterdir()) == []
    spool.close()
    spool.close()
    with pytest.raises(OperationFailed, match="is closed"):
        spool.append(b"x", 1)


def test_a_full_disk_error_suggests_a_fix_and_keeps_existing_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = SpoolLog(tmp_path, MIB)
    spool.append(b"first", 1)
    real = os.pwrite

    def half(descriptor: int, data: memoryview, position: int) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[: len(data) // 2], position)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(OperationFailed, match=r"is full: make room there, lower spool_bytes .* spool_full=shed"):
        spool.append(b"y" * 1000, 1)
    monkeypatch.undo()
    spool.append(b"second", 1)
    assert [spool.next(), spool.next(), spool.next()] == [b"first", b"second", None]


def test_a_flipped_bit_is_detected(tmp_path: Path) -> None:
    spool = SpoolLog(tmp_path, MIB)
    spool.append(b"hello", 1)
    os.pwrite(spool._segments[0].descriptor, b"j", 12)
    with pytest.raises(OperationFailed, match="came back damaged"):
        spool.next()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="nowhere cannot be written: no such file"):
        SpoolLog(tmp_path / "nowhere", MIB).append(b"x", 1)
