"""`Feed`: a log of this node that takes rows from writers, each batch once.

A feed's folder, `feeds/NAME/`, holds `feed.json` (owner and bounds), the stages, `publishing.json` while a batch is published, and
`published.json`, the last batches of each query with their offsets. The rows lie in an ordinary log.

A batch is published in this order: its offsets are written to `publishing.json`; its rows are appended and forced to the disk; one
COMMIT makes them visible; `published.json` is written. So an agent that is killed at any point finds by the log's committed end
whether the batch is published, and no reader sees a part of one.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.permissions import FEED_PREFIX
from agiledart_sink_log.feed_protocol import StagePart
from agiledart_sink_log.feed_rows import parse_fields, row_decoder, schema_text, schema_words
from agiledart_sink_log.feed_stages import FeedStages
from agiledart_sink_log.layout import log_directory, read_description, sync_directory
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.log_writer import LogOptions, LogWriter

T = TypeVar("T")

FEEDS: Final = "feeds"
"""Name of the folder below the state directory."""

DEFAULT_MAX_BYTES: Final = 256 << 20
MAX_AGE_MS: Final = 100 * 365 * 86_400_000
"""Rows of a feed are not dropped by age: an application that starts later needs them to build its state."""

SEGMENT_BYTES: Final = 4 << 20
MAX_QUERIES: Final = 1_024
"""Queries whose last batches are remembered; those that published longest ago are forgotten first."""

MAX_BATCHES: Final = 16
"""Batches remembered of each query. Spark repeats only the last one."""

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class SchemaMismatch(OperationFailed):
    """The rows of a writer have other fields than the feed, or are no rows of their schema."""


class FeedDescription(msgspec.Struct, frozen=True):
    """Content of `feed.json`.

    Args:
        owner: key of the submitter that created it, hex; empty: an admin did.
        max_bytes: size above which the log drops its oldest rows.
    """

    name: str
    owner: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")]
    created_ms: _Natural
    max_bytes: _Natural


class PublishedRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets of a published batch in the log."""

    batch: _Natural
    first: _Natural
    end: _Natural


class _Publishing(msgspec.Struct, frozen=True):
    query: str
    range: PublishedRange


class _Published(msgspec.Struct):
    at_ms: _Natural = 0
    queries: dict[str, list[PublishedRange]] = {}


class Feed:
    """One feed of this node; used by one thread at a time.

    Args:
        root: the state directory.
        wall_ns: wall time.

    Raises:
        OperationFailed: there is no such feed here, or its files cannot be read.
    """

    def __init__(self, root: Path, name: str, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._root, self._wall_ns = root, wall_ns
        self.folder = root / FEEDS / name
        self.description = _read(self.folder / "feed.json", FeedDescription)
        self.stages = FeedStages(self.folder / "stages")
        self._published: _Published | None = None
        self._decoders: dict[bytes, msgspec.msgpack.Decoder[list[tuple[object, ...]]]] = {}

    @property
    def name(self) -> str:
        """Name of the feed, and of its log."""
        return self.description.name

    @property
    def owner(self) -> bytes:
        """Key of the owner; empty: an admin created the feed."""
        return bytes.fromhex(self.description.owner)

    @property
    def published_ms(self) -> int:
        """Wall time of the last publication, 0 before the first."""
        return self._ledger().at_ms

    def log_end(self) -> int:
        """Return the number of published rows, with those that were trimmed."""
        directory = log_directory(self._root, self.name)
        return LogReader(directory).ends(0).committed if read_description(directory) is not None else 0

    def stage(
        self, query: str, batch: int, part: tuple[int, int], piece: int, schema: bytes, body: bytes, rows: int
    ) -> None:
        """Stage a piece of the rows of one task, after a check that it holds rows of its schema.

        Raises:
            SchemaMismatch: it does not, or the feed has another schema.
            FeedStages.add: as it says.
        """
        if self._known(query, batch) is not None:
            return  # the batch is published already
        self._check_rows(schema, body, rows)
        self.stages.add(query, batch, part, piece, body, rows)

    def _check_rows(self, schema: bytes, body: bytes, rows: int) -> None:
        decoder = self._decoders.get(schema)
        if decoder is None:
            fields = self._checked_fields(schema)
            self._decoders = {schema: (decoder := row_decoder(fields))}
        try:
            count = len(decoder.decode(body))
        except (msgspec.MsgspecError, ValueError, ArithmeticError) as error:
            raise SchemaMismatch(f"A row does not fit the schema that its writer names: {error}") from None
        if count != rows:
            raise SchemaMismatch(f"A piece holds {count:,} rows and not the {rows:,} that its writer names.")

    def _checked_fields(self, schema: bytes) -> list[dict[str, object]]:
        """Return the fields of a writer's schema. Raises `SchemaMismatch` when the feed has others."""
        try:
            fields = parse_fields(schema)
        except OperationFailed as error:
            raise SchemaMismatch(str(error)) from None
        there = read_description(log_directory(self._root, self.name))
        if there is not None and there.schema != schema_text(fields):
            raise SchemaMismatch(
                f"The feed {self.name} has the fields {schema_words(there.fields)}; the rows have {schema_words(fields)}. "
                f"Select those fields with those types, or create another feed."
            )
        return fields

    def publish(
        self, query: str, batch: int, schema: bytes, parts: tuple[StagePart, ...]
    ) -> tuple[PublishedRange, bool]:
        """Publish the stages of a batch together. Return its offsets, and whether it was published before.

        Raises:
            StageLost: staged rows are gone.
            SchemaMismatch: the feed has another schema.
            OperationFailed, OSError: the disk refuses; the batch is not published and can be published later.
        """
        self._finish_interrupted()
        if (known := self._known(query, batch)) is not None:
            self.stages.drop(query, batch)
            return known, True
        fields = self._checked_fields(schema)
        total = sum(part.rows for part in parts)
        for _ in self.stages.pieces(query, batch, parts):
            pass  # all is there, before anything is written
        log = self._open_log(schema_text(fields), fields)
        try:
            partition = log.partitions[0]
            published = PublishedRange(batch, partition.end, partition.end + total)
            _write(self.folder / "publishing.json", _Publishing(query, published))
            for body, rows in self.stages.pieces(query, batch, parts):
                partition.append(body, rows)
            log.commit_up_to(log.prepare(), 0)
        finally:
            log.close(commits=False)
        self._remember(query, published)
        self.stages.drop(query, batch)
        return published, False

    def _open_log(self, schema: str, fields: Sequence[dict[str, object]]) -> LogWriter:
        options = LogOptions(1, self.description.max_bytes, MAX_AGE_MS, SEGMENT_BYTES)
        application = f"{FEED_PREFIX}{self.name}"
        return LogWriter(
            self._root, self.name, options, schema, list(fields), application, 1, self._wall_ns, owner=self.owner
        )

    def _finish_interrupted(self) -> None:
        """Finish or forget a batch that an agent was publishing when it ended."""
        path = self.folder / "publishing.json"
        if not path.exists():
            return
        publishing = _read(path, _Publishing)
        there = read_description(log_directory(self._root, self.name))
        if there is not None:
            log = self._open_log(there.schema, there.fields)  # cuts off rows without a COMMIT
            end = log.partitions[0].end
            log.close(commits=False)
            if end >= publishing.range.end > publishing.range.first:
                self._remember(publishing.query, publishing.range)
                return
        path.unlink(missing_ok=True)

    def _known(self, query: str, batch: int) -> PublishedRange | None:
        """Return the offsets of a batch that is published; of one that is forgotten, an empty range."""
        ranges = self._ledger().queries.get(query, [])
        for known in ranges:
            if known.batch == batch:
                return known
        return PublishedRange(batch, 0, 0) if ranges and batch < ranges[0].batch else None

    def _ledger(self) -> _Published:
        if self._published is None:
            path = self.folder / "published.json"
            self._published = _read(path, _Published) if path.exists() else _Published()
        return self._published

    def _remember(self, query: str, published: PublishedRange) -> None:
        ledger = self._ledger()
        newest = [*ledger.queries.get(query, []), published][-MAX_BATCHES:]
        queries = {name: ranges for name, ranges in ledger.queries.items() if name != query}
        queries[query] = newest
        while len(queries) > MAX_QUERIES:
            del queries[next(iter(queries))]
        written = _Published(self._wall_ns() // 1_000_000, queries)
        _write(self.folder / "published.json", written)
        self._published = written
        (self.folder / "publishing.json").unlink(missing_ok=True)


def create_feed(root: Path, description: FeedDescription) -> None:
    """Create a feed. Raises OperationFailed when there is one, or a log, of this name."""
    folder = root / FEEDS / description.name
    if (folder / "feed.json").exists():
        raise OperationFailed(f"there is a feed {description.name} here already")
    if read_description(log_directory(root, description.name)) is not None:
        raise OperationFailed(f"{description.name} is the log of an application already; choose another name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "feed.json", description)
    except OSError as error:
        raise OperationFailed(f"{folder} cannot be written: {(error.strerror or '').lower()}") from None


def remove_feed(root: Path, name: str) -> None:
    """Remove a feed with its rows. `feed.json` goes last, so that a removal that was interrupted can be repeated."""
    folder = root / FEEDS / name
    shutil.rmtree(log_directory(root, name), ignore_errors=True)
    for path in folder.iterdir():
        if path.name != "feed.json":
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    (folder / "feed.json").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def feeds_in(root: Path) -> list[str]:
    """Return the names of the feeds of a node."""
    return sorted(path.parent.name for path in (root / FEEDS).glob("*/feed.json"))


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {(error.strerror or '').lower()}") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise OperationFailed(f"{path} is damaged ({error}). Remove the feed and create it again.") from None


def _write(path: Path, document: msgspec.Struct) -> None:
    """Replace a file as a whole, and force it to the disk. Raises OSError."""
    temporary = path.with_name(f"{path.name}.new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(document))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)
