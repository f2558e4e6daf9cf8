"""Writer of a whole log: description, lock, partitions."""

import contextlib
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from agiledart_kernel.errors import BusyError, OperationFailed
from agiledart_sink_log.layout import (
    AUTO,
    Description,
    lock,
    log_directory,
    partition_directory,
    read_description,
    write_description,
)
from agiledart_sink_log.partition_writer import BufferedBytes, Clock, PartitionWriter
from agiledart_sink_log.protocol import MAX_PARTITIONS

DEFAULT_MAX_BYTES: Final = 1 << 30
DEFAULT_MAX_AGE_MS: Final = 7 * 86_400_000
DEFAULT_SEGMENT_BYTES: Final = 16 << 20
MIN_SEGMENT_BYTES: Final = 4 << 10
LOCK_SECONDS: Final = 3.0
LOCK_PAUSE_SECONDS: Final = 0.05
SEGMENTS_IN_BOUND: Final = 4
"""Least number of segments in a partition's share of `max_bytes`; trimming removes a quarter of the share at the most."""


@dataclass(frozen=True)
class LogOptions:
    """Options of a log; 0 stands for the default (`partitions`: the present number, or 1).

    Attributes:
        columns: `AUTO` or `NEVER`: whether full segments are rewritten as columns; empty: as before, `AUTO` for a new log.
    """

    partitions: int = 0
    max_bytes: int = 0
    max_age_ms: int = 0
    segment_bytes: int = 0
    columns: str = ""


class LogBusyError(BusyError):
    """Another process is writing the log."""


class LogWriter:
    """The only writer of a log; creates the log when it is missing.

    Args:
        root: folder above `sink-logs`.
        schema, fields: of the rows (`row_form.py`).
        application, version: of the writing run, shown to readers.
        keep: committed end of each partition, when a register stores it; later rows are cut off if `cuts`.
        log_id: of a log that was on another node and continues here at these ends; "": a log of this node.
        owner: key of the owner, for a log without one. The agent checks the permission to write before.
        ended: reason of the end of the last run; then the writer only repairs the log and appends nothing.
        waits: as in `PartitionWriter`.
        busy_timeout_s: seconds of sleeping retries while another process writes the log. A process with an event loop passes
            0 and tries again later.

    Raises:
        LogBusyError: another process writes it.
        OperationFailed: it has rows of another schema, or a file cannot be written.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        options: LogOptions,
        schema: str,
        fields: list[dict[str, object]],
        application: str = "",
        version: int = 0,
        clock: Clock = time.time_ns,
        lock_timeout_s: float = LOCK_SECONDS,
        keep: Sequence[int] | None = None,
        log_id: str = "",
        owner: bytes = b"",
        ended: str = "",
        *,
        waits: bool = False,
        cuts: bool = True,
    ) -> None:
        self.directory = log_directory(root, name)
        self._lock = -1
        self.partitions: list[PartitionWriter] = []
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            held = _lock_with_retries(self.directory, lock_timeout_s)
        except OSError as error:
            raise OperationFailed(f"{self.directory} cannot be written: {(error.strerror or '').lower()}") from None
        if held is None:
            raise LogBusyError(f"the log {name} is being written by another application on this node; use another name")
        self._lock = held
        try:
            now_ms = clock() // 1_000_000
            if log_id and not options.partitions:
                options = replace(options, partitions=len(keep or ()))  # as many as it had where it came from
            self.description = self._describe(
                name, options, schema, fields, application, version, now_ms, log_id, owner.hex(), ended
            )
            self._open_partitions(options, clock, keep, waits=waits, cuts=cuts)
        except OSError as error:
            self.close()
            raise OperationFailed(f"{self.directory} cannot be written: {(error.strerror or '').lower()}") from None
        except BaseException:
            self.close()
            raise

    def _describe(
        self,
        name: str,
        options: LogOptions,
        schema: str,
        fields: list[dict[str, object]],
        application: str,
        version: int,
        now_ms: int,
        log_id: str,
        owner: str,
        ended: str,
    ) -> Description:
        """Check the existing log and write the description of this run."""
        there = read_description(self.directory)
        max_bytes, max_age_ms = options.max_bytes or DEFAULT_MAX_BYTES, options.max_age_ms or DEFAULT_MAX_AGE_MS
        if there is None:
            description = Description(
                1, log_id or secrets.token_hex(8), name, application, version, schema, fields,
                options.partitions or 1, now_ms, now_ms, max_bytes, max_age_ms, owner, columns=options.columns or AUTO,
            )  # fmt: skip
        else:
            if log_id not in ("", there.log_id):
                raise OperationFailed(
                    f"another log {name} lies on this node, so the one that was on another node cannot go on here. Move "
                    f"{self.directory} away, or write to another name"
                )
            if there.schema != schema:
                raise OperationFailed(
                    f"the log {name} holds rows of another type: {_shortened(there.schema)}, not {_shortened(schema)}. "
                    f"Write to another name, or move {self.directory} away"
                )
            if options.partitions not in (0, there.partitions):
                raise OperationFailed(
                    f"the log {name} has {there.partitions} partitions, not {options.partitions}; that cannot be changed. "
                    f"Write to another name, or move {self.directory} away"
                )
            description = msgspec.structs.replace(
                there, application=application, version=version, opened_ms=max(now_ms, there.opened_ms + 1),
                max_bytes=max_bytes, max_age_ms=max_age_ms, owner=there.owner or owner, ended=ended,
                columns=options.columns or there.columns or AUTO,
            )  # fmt: skip
        if not 1 <= description.partitions <= MAX_PARTITIONS:
            raise OperationFailed(f"a log has 1 to {MAX_PARTITIONS} partitions, not {description.partitions}")
        write_description(self.directory, description)
        return description

    def _open_partitions(
        self, options: LogOptions, clock: Clock, keep: Sequence[int] | None, *, waits: bool, cuts: bool
    ) -> None:
        description = self.description
        share, waiting = description.max_bytes // description.partitions, BufferedBytes()
        segment = options.segment_bytes or DEFAULT_SEGMENT_BYTES
        segment = max(MIN_SEGMENT_BYTES, min(segment, share // SEGMENTS_IN_BOUND))
        for partition in range(description.partitions):
            self.partitions.append(
                PartitionWriter(
                    partition_directory(self.directory, partition),
                    description.log_id,
                    partition,
                    schema=description.schema_id,
                    segment_bytes=segment,
                    max_bytes=share,
                    max_age_ms=description.max_age_ms,
                    clock=clock,
                    keep=None if keep is None else keep[partition],
                    waits=waits,
                    cuts=cuts,
                    waiting=waiting,
                )
            )

    def notes(self) -> list[str]:
        """Return the faults found at the opening of the log, one sentence for each partition."""
        name, faults = self.description.name, []
        for number, partition in enumerate(self.partitions):
            recovered = partition.recovered
            if recovered.cut_bytes:
                faults.append(
                    f"log {name} partition {number}: {recovered.cut_bytes:,} bytes that were not committed were cut off"
                )
            if recovered.lost_from is not None:
                rows = recovered.end - recovered.lost_from
                faults.append(
                    f"log {name} partition {number}: up to {rows:,} committed rows from offset {recovered.lost_from} "
                    f"on are damaged; it goes on at offset {recovered.end}"
                )
        return faults

    def flush(self) -> None:
        """Write all appended rows to the operating system, without committing them."""
        for partition in self.partitions:
            partition.flush()

    def commit(self) -> None:
        """Commit all appended rows, partition by partition."""
        for partition in self.partitions:
            partition.commit()

    def prepare(self) -> tuple[int, ...]:
        """End a checkpoint: force all appended rows to the disk, and return the end of each partition."""
        return tuple(partition.prepare() for partition in self.partitions)

    def commit_up_to(self, ends: Sequence[int], epoch: int) -> None:
        """Commit the rows before these ends, which `prepare` returned, with their checkpoint."""
        for partition, end in zip(self.partitions, ends, strict=True):
            partition.commit_up_to(end, epoch)

    def close(self, *, commits: bool = True) -> None:
        """Commit (without checkpoints), force to the disk, unlock; a second call has no effect.

        Raises the first error, after all partitions are closed.
        """
        wrong: OperationFailed | None = None
        for partition in self.partitions:
            try:
                partition.close(commits=commits)
            except OperationFailed as error:
                wrong = wrong or error
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                os.close(self._lock)
            self._lock = -1
        if wrong is not None:
            raise wrong


def _lock_with_retries(directory: Path, lock_timeout_s: float) -> int | None:
    """Take the lock with retries, because the last writer may be about to end after a stop and restart."""
    deadline = time.monotonic() + lock_timeout_s
    while (held := lock(directory)) is None and time.monotonic() < deadline:
        time.sleep(LOCK_PAUSE_SECONDS)
    return held


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:297]}…"
