"""Files in which a run records how its instances began: ends of sinks, fingerprints of input files, first positions of sources."""

from pathlib import Path

import msgspec

from agiledart_executor.checkpointing.file_fingerprint import FileFingerprint, check_unchanged, fingerprint_of
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.snapshots.checksummed_file import DamagedFile, add_checksum, verified_content
from agiledart_kernel.errors import OperationFailed

_FILE: msgspec.msgpack.Decoder[tuple[int, int, int]] = msgspec.msgpack.Decoder(tuple[int, int, int])
_BEGINNING: msgspec.msgpack.Decoder[tuple[int, bytes]] = msgspec.msgpack.Decoder(tuple[int, bytes])
_ENDS: msgspec.msgpack.Decoder[tuple[int, ...]] = msgspec.msgpack.Decoder(tuple[int, ...])


class OpeningRecords:
    """Records of the instances of one executor, a checksummed file for each.

    Args:
        folder: of the run, on this node's disk.
        run: number of the run; records of another run do not count.
    """

    def __init__(self, folder: Path, run: int) -> None:
        self._folder, self.run = folder, run

    def keep_ends(self, running: RunningInstance, ends: tuple[int, ...]) -> None:
        """Record the ends of a sink. Raises OSError."""
        self._write_file(self._opened_path(running.stage, running.index), msgspec.msgpack.encode(ends))

    def ends(self, stage: int, index: int) -> tuple[int, ...] | None:
        """Return the recorded ends of a sink; None without a readable record."""
        path = self._opened_path(stage, index)
        try:
            return _ENDS.decode(verified_content(path.read_bytes(), path.name))
        except (OSError, DamagedFile, msgspec.MsgspecError):
            return None

    def keep_file_fingerprint(self, running: RunningInstance, path: str) -> None:
        """Record the fingerprint of a source's file, or check it when this run has recorded one before.

        Raises:
            OperationFailed: the file has changed, or the fingerprint cannot be written, or the file cannot be read.
        """
        note = self._opened_path(running.stage, running.index).with_suffix(".file")
        try:
            run, length, crc = _FILE.decode(verified_content(note.read_bytes(), note.name))
        except (OSError, DamagedFile, msgspec.MsgspecError):
            run, length, crc = 0, 0, 0
        try:
            if run == self.run:
                check_unchanged(path, FileFingerprint(length, crc))
            elif (fingerprint := fingerprint_of(path)) is not None:
                self._write_file(note, msgspec.msgpack.encode((self.run, *fingerprint)))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise OperationFailed(f"{running.name}: {self._folder} cannot be written: {why}") from None
        except OperationFailed as error:
            raise OperationFailed(f"{running.name}: {error}") from None

    def beginning(self, running: RunningInstance) -> bytes:
        """Return the position at which a source of this run began; empty without a readable record."""
        path = self._opened_path(running.stage, running.index)
        try:
            run, position = _BEGINNING.decode(verified_content(path.read_bytes(), path.name))
        except (OSError, DamagedFile, msgspec.MsgspecError):
            return b""
        return position if run == self.run else b""

    def keep_beginning(self, running: RunningInstance, position: bytes) -> None:
        """Record the position at which a source begins. Raises OperationFailed."""
        try:
            self._write_file(
                self._opened_path(running.stage, running.index), msgspec.msgpack.encode((self.run, position))
            )
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise OperationFailed(f"{running.name}: {self._folder} cannot be written: {why}") from None

    def _opened_path(self, stage: int, index: int) -> Path:
        return self._folder / "opened" / f"{stage}.{index}"

    @staticmethod
    def _write_file(path: Path, content: bytes) -> None:
        """Replace a file by checksummed content, atomically. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(add_checksum(content, path.name))
        part.replace(path)
