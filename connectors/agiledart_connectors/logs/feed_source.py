"""Source `feed:NAME`: rows that writers such as Spark have published to a feed, in the order of their publication.

    feed:usual-durations                                 all retained rows, then new ones; the source does not end

Made for broadcast state: `keyed.connect(topology.source("usual", "feed:usual-durations", …)).stateful(…)`. The node of the feed
need not be the source's. The agent reads it for the executor, once it has checked that the application may. A position is a log
and an offset, so a restarted run continues behind its last epoch. Fields of a row's type are those of the feed with the same
names; a field of type `ReadTime` gets the time at which the row was read.
"""

import contextlib
import os
from collections import deque
from typing import Any, Final

import msgspec

from agiledart_connectors.codecs.malformed_examples import TYPE, MalformedExamples
from agiledart_connectors.feed_requests import FeedRequests, FeedRows
from agiledart_connectors.options import ReadOptions
from agiledart_dataflow.data.schema import SchemaError, fields_of, is_named_tuple
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.feed_protocol import feed_name_fault
from agiledart_sink_log.feed_rows import parse_fields, row_decoder, schema_words, type_words
from agiledart_sink_log.row_form import RowForm, row_form

MAX_WAITING_ROWS: Final = 100_000
"""Rows that may wait in memory; the next request follows when they are fewer."""


class _FeedPosition(msgspec.Struct, array_like=True):
    """Position in a feed: the offset of the next row in a log."""

    log_id: str = ""
    offset: int = 0


class FeedReader:
    """Reader of a feed; the agent brings the rows, one request at a time.

    Args:
        feeds: requests by way of the agent.
    """

    stamps = True

    def __init__(self, connector: Connector, row_type: Any, feeds: FeedRequests) -> None:
        self._feed, self._row_type, self._feeds = connector.path, row_type, feeds
        try:
            self._form = row_form(row_type)
            self._types = fields_of(row_type)
        except SchemaError as error:
            raise ConfigurationError(f"{connector.url()}: {error}") from None
        if not self._types:
            raise ConfigurationError(
                f"{connector.url()}: rows of a feed are NamedTuples or dataclasses, not {row_type!r}"
            )
        self._position = _FeedPosition()
        self._next_offset = 0
        self._waiting: deque[tuple[int, tuple[Any, ...]]] = deque()  # with their offsets
        self._fields = b""
        self._decoder: msgspec.msgpack.Decoder[list[tuple[Any, ...]]] | None = None
        self._places: list[int | None] = []
        self._is_asking = self._closed = False
        self._away = self._refused = ""
        self._examples = MalformedExamples()
        self.on_malformed = self._examples.on_malformed
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        if self._refused:
            raise OperationFailed(self._refused)
        taken = [self._waiting.popleft() for _ in range(min(max_rows, len(self._waiting)))]
        malformed: dict[str, int] = {}
        rows = []
        for offset, values in taken:
            try:
                rows.append(self._row(values, wall_ns))
            except (msgspec.ValidationError, TypeError, ValueError) as error:
                malformed[TYPE] = malformed.get(TYPE, 0) + 1
                self._examples.add(TYPE, f"{self._feed}@{offset}:", str(error), repr(values)[:1_000])
            self._position.offset = offset + 1
        self._ask()
        return Reading(rows, len(taken), malformed, False, not self._waiting, self._examples.take())

    def _row(self, values: tuple[Any, ...], wall_ns: int) -> Any:
        own = [wall_ns if place is None else values[place] for place in self._places]
        if is_named_tuple(self._row_type):
            return msgspec.convert(own, self._row_type)
        return msgspec.convert(
            {field.name: value for field, value in zip(self._types, own, strict=True)}, self._row_type
        )

    def _ask(self) -> None:
        if self._is_asking or self._closed or len(self._waiting) > MAX_WAITING_ROWS:
            return
        self._is_asking = True
        self._feeds.fetch(self._feed, self._next_offset, self._take)

    def _take(self, answer: FeedRows) -> None:
        """Take the agent's answer; called on the event loop, as `read` is."""
        self._is_asking = False
        if self._closed:
            return
        self._away, self._refused = answer.away, answer.refused
        if not (answer.away or answer.refused):
            try:
                self._take_rows(answer)
            except OperationFailed as error:
                self._refused = str(error)
        os.eventfd_write(self._wake, 1)

    def _take_rows(self, answer: FeedRows) -> None:
        position = self._position
        if position.log_id not in ("", answer.log_id):
            self._examples.note(f"feed {self._feed} was created anew: its rows are read from the beginning")
            self._waiting.clear()
            self._position, self._next_offset = _FeedPosition(answer.log_id), 0
            return
        position.log_id = answer.log_id
        if answer.fields != self._fields:
            self._learn(answer.fields)
            self._fields = answer.fields
        if answer.first > self._next_offset:
            if self._next_offset:
                lost = answer.first - self._next_offset
                self._examples.note(f"feed {self._feed}: {lost:,} rows were removed before they were read")
            self._next_offset = answer.first
            return
        assert self._decoder is not None
        for batch in answer.batches:
            rows = self._decoder.decode(batch.body)
            self._waiting += [
                (batch.offset + place, values)
                for place, values in enumerate(rows)
                if batch.offset + place >= self._next_offset
            ]
            self._next_offset = max(self._next_offset, batch.offset + len(rows))

    def _learn(self, schema: bytes) -> None:
        """Learn the feed's fields. Raises OperationFailed when the row's type has others."""
        fields = parse_fields(schema)
        there = {str(field["name"]): (place, field["type"]) for place, field in enumerate(fields)}
        self._places = []
        for own in self._form.fields:
            place, kind = there.get(str(own["name"]), (None, None))
            if place is None and own["type"] == "read_time":
                self._places.append(None)
                continue
            if place is None or not _fits(kind, own["type"]):
                raise OperationFailed(
                    f"the feed {self._feed} has the fields {schema_words(fields)}; its rows here need "
                    f"{own['name']}: {type_words(own['type'])}"
                )
            self._places.append(place)
        self._decoder = row_decoder(fields)

    def fileno(self) -> int:
        """Readable when an answer has come."""
        return self._wake

    def connection_status(self) -> str:
        """Return why the feed cannot be read now; empty when all is well."""
        return self._away

    def position(self) -> bytes:
        """Return the log and the offset of the next row."""
        return msgspec.msgpack.encode(self._position)

    def seek(self, position: bytes) -> None:
        """Go to a position, before the first reading."""
        if position:
            self._position = msgspec.msgpack.decode(position, type=_FeedPosition)
            self._next_offset = self._position.offset

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._wake)
            self._wake = -1


def _fits(there: object, own: object) -> bool:
    return there == own or (there, own) == ("int", "float")


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> FeedReader:
    """Return the reader of a `feed:` connector."""
    if fault := feed_name_fault(connector.path):
        raise ConfigurationError(f"{connector.url()}: {fault}")
    feeds = None if read_options.origin is None else read_options.origin.feeds
    if feeds is None:
        raise ConfigurationError(
            f"{connector.url()}: a feed is read on a mesh only: agiledart submit. Here, read a file in its place"
        )
    return FeedReader(connector, row_type, feeds)


def probe_source(connector: Connector, row_type: Any) -> str:
    """Check the name and the rows' type; the feed itself may be created later."""
    if fault := feed_name_fault(connector.path):
        raise ConfigurationError(f"{connector.url()}: {fault}")
    check_row_type(connector, row_type)
    return "can be read once it has rows"


def check_row_type(connector: Connector, row_type: Any) -> RowForm:
    """Return the form of rows of this type. Raises `ConfigurationError` when a feed has no such rows."""
    try:
        if fields_of(row_type):
            return row_form(row_type)
    except SchemaError as error:
        raise ConfigurationError(f"{connector.url()}: {error}") from None
    raise ConfigurationError(f"{connector.url()}: rows of a feed are NamedTuples or dataclasses, not {row_type!r}")
