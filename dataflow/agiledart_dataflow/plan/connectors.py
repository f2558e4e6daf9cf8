"""What a source reads and a sink writes: described here as values, carried out by `agiledart_connectors`.

A connector is written as a URL, `kind:path?option=value&…@node`, for example `csv:trips.csv.gz?speed=60@pi2`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_kernel.errors import ConfigurationError

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

LOCAL_KINDS = ("list", "call", "batches", "collect")
"""Connectors whose data are objects of this process; they cannot be submitted to other nodes."""


class Source(Generic[T_co]):
    """Where rows of type T come from. Make one with `agiledart.csv`, `taxi`, `records`; never by hand."""


class Sink(Generic[T_contra]):
    """Where rows of type T go to.

    Make one with `agiledart.csv`, `jsonl`, `log`, `stdout`, `collect`, `null`; never by hand.
    """


@dataclass(frozen=True)
class Connector(Source[Any], Sink[Any]):
    """One source or sink as a value.

    Attributes:
        kind: which implementation, for example `csv`.
        path: what it reads or writes, in the words of its kind.
        options: (name, value) pairs in order of name.
        at: where it runs: a node's name, or "" for the agent that takes the submission.
        row_type: the type of its rows, where it is known; does not travel.
        payload: rows or a callable, for the kinds of `LOCAL_KINDS`; does not travel.
    """

    kind: str
    path: str = ""
    options: tuple[tuple[str, str], ...] = ()
    at: str = ""
    row_type: Any = field(default=None, compare=False)
    payload: Any = field(default=None, compare=False, repr=False)

    def option(self, name: str, default: str = "") -> str:
        """The value of an option."""
        return dict(self.options).get(name, default)

    @property
    def is_local(self) -> bool:
        """True when only this process can carry it out."""
        return self.kind in LOCAL_KINDS

    def url(self) -> str:
        """The text that `parse_connector` reads back to an equal connector."""
        text = f"{self.kind}:{quote(self.path, safe='/:+,-._~ ')}"
        if self.options:
            text += "?" + urlencode(self.options, safe="/:,", quote_via=quote)
        return f"{text}@{quote(self.at, safe='')}" if self.at else text

    def with_row_type(self, row_type: Any) -> "Connector":
        """The same connector for rows of a type; the command line uses it for parameters annotated `Source[T]`."""
        return replace(self, row_type=row_type)

    def with_path(self, path: str) -> "Connector":
        """The same connector with another path (the command line makes paths absolute)."""
        return replace(self, path=path)

    def described(self) -> "ConnectorSpecification":
        """What of it travels."""
        return ConnectorSpecification(self.kind, self.path, self.options, self.at)


class ConnectorSpecification(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The part of a connector that belongs to a specification."""

    kind: str
    path: str
    options: tuple[tuple[str, str], ...]
    at: str

    def connector(self) -> Connector:
        """The connector, without its row type."""
        return Connector(self.kind, self.path, self.options, self.at)


def connector(kind: str, path: str = "", *, at: str = "", **options: object) -> Connector:
    """A connector from Python values; options that are None are left out."""
    given = sorted((name, _option_text(value)) for name, value in options.items() if value is not None)
    return Connector(kind, path, tuple(given), at)


def _option_text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


_OF_FILES: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".txt": "lines",
    ".log": "lines",
    ".parquet": "parquet",
}
"""What files whose names end so are read by."""


def parse_connector(text: str) -> Connector:
    """The connector that a URL describes. Raises `ConfigurationError` when the text is none.

    A path may hold anything but `?`, `@` and `%` (write %3F, %40, %25); `@` before the last one must be written so too.
    """
    kind, colon, rest = text.partition(":")
    if not kind or not all(c.isalnum() or c in "-_" for c in kind) or (not colon and not kind.isidentifier()):
        file = text.partition("?")[0].removesuffix(".gz")
        meant = next((f"{one}:{text}" for ending, one in _OF_FILES.items() if file.endswith(ending)), "")
        advice = f"did you mean {meant} ?" if meant else "write KIND:PATH, for example csv:trips.csv.gz or stdout:"
        raise ConfigurationError(f"{text!r} is no connector: {advice}")
    rest, _, at = rest.rpartition("@") if "@" in rest else (rest, "", "")
    path, question, query = rest.partition("?")
    try:
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise ConfigurationError(f"{text!r}: options are written ?name=value&name=value, not {query!r}") from None
    if question and not query:
        raise ConfigurationError(f"{text!r}: nothing stands after the question mark")
    names = [name for name, _ in options]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{text!r}: the option {name} is given twice")
    return Connector(kind, unquote(path), tuple(sorted(options)), unquote(at))


def records_source(rows: Sequence[Any] | Callable[[], Iterable[Any]], row_type: Any = None) -> Connector:
    """A source of rows that this process already has (a sequence), or makes when asked (a callable)."""
    if callable(rows):
        return Connector("call", row_type=row_type, payload=rows)
    return Connector("list", row_type=row_type, payload=rows)


MALFORMED_POLICIES: Final = ("count", "fail", "dead_letter")
"""What becomes of malformed records: they are counted; the first of them ends the application; they are dead letters, too."""

REPORTED_PER_REASON = 5
"""Malformed records of each reason that users are told of, the first; the others are counted."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What one `SourceReader.read` brought.

    Attributes:
        rows: well-formed rows in the order in which they were read: a list, or `Columns`.
        lines: data lines read by this call, well-formed or not.
        malformed: how many of them were not well-formed, by reason.
        exhausted: True when nothing will ever follow.
        drained: True when there is nothing more now, so that `fileno` may be waited for without asking again.
        notes: what users should be told of what was read, each once: the first malformed records of each reason, a header.
        came_ns: of a reading that was kept in a log: when it came, in nanoseconds since 1970; 0: now.
    """

    rows: Any
    lines: int
    malformed: dict[str, int] = {}
    exhausted: bool = False
    drained: bool = False
    notes: tuple[str, ...] = ()
    came_ns: int = 0


class SourceReader(Protocol):
    """Carries out a source. Reads the world; used by one `SourceInstance`."""

    stamps: bool
    """True when `read` fills fields of type `ReadTime` itself."""

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """At most `max_rows` rows; fewer, also none, when no more can be had at once. Raises `OperationFailed`."""
        ...

    def close(self) -> None:
        """Give back what it holds; may be called twice."""
        ...

    # A reader may also have `fileno() -> int | None`: what to wait for when `read` brought nothing. None: nothing to wait
    # for now. Without it the reader is asked again after a few milliseconds.
    # And `on_malformed(take: Callable[[str, str], None])`: from now on `read` hands each malformed record to `take`, as a text,
    # with what is wrong with it. Without it malformed records cannot become dead letters.
    # One that tells where its rows come from that they are safe has `holds: bool`, which is set where rows go to a log,
    # `receipt() -> int`: a number for all that was handed out so far, and `acknowledge(receipt)`: that is on the disk. While it
    # does not hold it acknowledges what it handed out when it is asked for more.


class SinkWriter(Protocol):
    """Carries out a sink. Used by one `Instance`."""

    def write(self, rows: list[Any]) -> None:
        """Take rows in order. Raises `OperationFailed`."""
        ...

    def flush(self) -> None:
        """Hand what was taken to the outer world."""
        ...

    def close(self) -> None:
        """Flush and give back what it holds; may be called twice."""
        ...

    @property
    def latency(self) -> LatencyHistogram:
        """Time from reading to writing of the rows that have a `ReadTime`."""
        ...

    # A writer may also have `ready() -> bool`: whether it takes rows now. While it does not, it is given none and asked again
    # some 20 times a second, and pressure travels upstream. And `take_notices() -> list[str]`: what users should know.
    # Readers and writers may have `standing() -> str`: how their way to the outer world stands when it is not well, for `status`.
