"""Snapshots: written whole or not at all; whatever happened to the file, what is read is what was written, or is refused."""

from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agiledart_executor.snapshots.snapshot_file import (
    DamagedSnapshot,
    SnapshotHeader,
    _SnapshotPieces,
    read_snapshot,
    run_folder,
    snapshot_path,
    stored_snapshot,
    write_snapshot,
)
from agiledart_kernel.errors import OperationFailed

HEADER = SnapshotHeader(7, 2, 5, 1, 0, ("sums", "some"))
quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(st.lists(st.binary(min_size=1, max_size=200), max_size=5), st.booleans())
def test_a_snapshot_is_read_back(tmp_path: Path, blocks: list[bytes], ended: bool) -> None:
    header = SnapshotHeader(7, 2, 5, 1, 0, ("sums",), ended)
    digest, size = write_snapshot(tmp_path, header, blocks)
    assert snapshot_path(tmp_path, digest).stat().st_size == size
    assert read_snapshot(tmp_path, digest) == (header, blocks)


@quick
@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4))
def test_a_block_of_several_pieces_is_reassembled(tmp_path: Path, blocks: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agiledart_executor.snapshots.snapshot_file.PIECE_BYTES", 8)
        digest, _ = write_snapshot(tmp_path, HEADER, blocks)
        raw = snapshot_path(tmp_path, digest).read_bytes()
        assert read_snapshot(tmp_path, digest) == (HEADER, blocks)
    assert read_snapshot(tmp_path, digest) == (HEADER, blocks), "however long pieces are here"
    assert raw.startswith(b"ADARTEL1")


@quick
@given(st.data())
def test_a_changed_file_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    digest, size = write_snapshot(tmp_path, HEADER, [b"state" * 20, b"more"])
    raw = bytearray(snapshot_path(tmp_path, digest).read_bytes())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, size - 1)) :]
    else:
        raw[data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    snapshot_path(tmp_path, digest).write_bytes(raw)
    with pytest.raises(DamagedSnapshot):
        read_snapshot(tmp_path, digest)


@pytest.mark.parametrize("place", ["header", "block"])
def test_a_damaged_length_allocates_no_memory(tmp_path: Path, place: str) -> None:
    asked: list[int] = []

    class File(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(-1 if size is None else size)
            return super().read(size)

    piece = b"state" * 20
    digest, size = write_snapshot(tmp_path, HEADER, [piece])
    raw = bytearray(snapshot_path(tmp_path, digest).read_bytes())
    at = len(b"ADARTEL1") if place == "header" else raw.index(piece) - 8
    raw[at] |= 0x7F
    snapshot_path(tmp_path, digest).write_bytes(raw)
    with pytest.raises(DamagedSnapshot, match="block 0 is" if place == "header" else "block 1 is"):
        list(_SnapshotPieces(File(raw), "this file"))
    assert 0 <= min(asked) <= max(asked) <= size
    with pytest.raises(DamagedSnapshot):
        stored_snapshot(tmp_path, digest)


def test_another_snapshot_under_a_committed_ones_name_is_refused(tmp_path: Path) -> None:
    digest, _ = write_snapshot(tmp_path, HEADER, [b"state"])
    other, _ = write_snapshot(tmp_path, HEADER, [b"other"])
    snapshot_path(tmp_path, other).replace(snapshot_path(tmp_path, digest))
    with pytest.raises(DamagedSnapshot, match="hash does not match"):
        read_snapshot(tmp_path, digest)


def test_a_missing_snapshot_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match=r"runs/taxi\.3/elements/0707 cannot be read: no such file"):
        read_snapshot(run_folder(tmp_path, "taxi", 3), b"\7\7")


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def blocks() -> object:
        yield b"first"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_snapshot(tmp_path, HEADER, blocks())  # type: ignore[arg-type]
    assert list((tmp_path / "elements").iterdir()) == []


def test_a_stored_snapshot_is_read_piece_by_piece(tmp_path: Path) -> None:
    large = bytes(range(256)) * 10_000
    digest, _ = write_snapshot(tmp_path, HEADER, [large, b"end"])
    header, blocks = stored_snapshot(tmp_path, digest)
    assert (header, [block.whole() for block in blocks]) == (HEADER, [large, b"end"])
    assert [len(piece) for piece in blocks[0]] == [1 << 20, 1 << 20, len(large) - (2 << 20)]
    assert b"".join(blocks[0]) == large, "asked again it begins anew"
    snapshot_path(tmp_path, digest).unlink()
    with pytest.raises(OperationFailed, match="no such file"):
        blocks[1].whole()
