"""Sources and sinks as values, described here and implemented by `agiledart_connectors`.

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

KEEPS_SESSIONS = ("mqtt", "mqtts")
"""Sources for which another system keeps input while they are away, until a run's end."""

LOCAL_KINDS = ("list", "call", "batches", "collect")
"""Connectors whose data are objects of this process; they cannot be submitted to other nodes."""


class Source(Generic[T_co]):
    """Origin of rows of type T. Create one with `agiledart.csv`, `taxi`, `records`; never call the class."""


class Sink(Generic[T_contra]):
    """Destination of rows of type T.

    Create one with `agiledart.csv`, `jsonl`, `log`, `stdout`, `collect`, `null`; never call the class.
    """


@dataclass(frozen=True)
class Connector(Source[Any], Sink[Any]):
    """One source or sink as a value.

    Attributes:
        kind: name of the implementation, for example `csv`.
        path: its input or output, in the form that its kind defines.
        options: (name, value) pairs in order of name.
        at: name of the node on which it runs, or "" for the agent that takes the submission.
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
        """Return the value of an option."""
        return dict(self.options).get(name, default)

    @property
    def is_local(self) -> bool:
        """True when only this process can run it."""
        return self.kind in LOCAL_KINDS

    def url(self) -> str:
        """Return the URL; `parse_connector` reads it back to an equal connector."""
        text = f"{self.kind}:{quote(self.path, safe='/:+,-._~ ')}"
        if self.options:
            text += "?" + urlencode(self.options, safe="/:,", quote_via=quote)
        return f"{text}@{quote(self.at, safe='')}" if self.at else text

    def with_row_type(self, row_type: Any) -> "Connector":
        """Return the connector for rows of a type; the command line uses it for parameters annotated `Source[T]`."""
        return replace(self, row_type=row_type)

    def with_path(self, path: str) -> "Connector":
        """Return the connector with another path (the command line makes paths absolute)."""
        return replace(self, path=path)

    def described(self) -> "ConnectorSpecification":
        """Return the part that travels."""
        return ConnectorSpecification(self.kind, self.path, self.options, self.at)


class ConnectorSpecification(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Part of a connector that belongs to a specification."""

    kind: str
    path: str
    options: tuple[tuple[str, str], ...]
    at: str

    def connector(self) -> Connector:
        """Return the connector, without its row type."""
        return Connector(self.kind, self.path, self.options, self.at)


def connector(kind: str, path: str = "", *, at: str = "", **options: object) -> Connector:
    """Return a connector made of Python values; options that are None are left out."""
    pairs = sorted((name, _option_text(value)) for name, value in options.items() if value is not None)
    return Connector(kind, path, tuple(pairs), at)


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
"""Kinds of source by the suffix of file names."""


def parse_connector(text: str) -> Connector:
    """Return the connector that a URL describes. Raises `ConfigurationError` when the text is not a connector URL.

    A path may hold any character but `?`, `@` and `%` (write %3F, %40, %25); only the last `@` separates the node.
    """
    kind, colon, rest = text.partition(":")
    if not kind or not all(c.isalnum() or c in "-_" for c in kind) or (not colon and not kind.isidentifier()):
        file = text.partition("?")[0].removesuffix(".gz")
        suggested = next(
            (f"{file_kind}:{text}" for ending, file_kind in _OF_FILES.items() if file.endswith(ending)), ""
        )
        advice = (
            f"did you mean {suggested} ?" if suggested else "write KIND:PATH, for example csv:trips.csv.gz or stdout:"
        )
        raise ConfigurationError(f"{text!r} is not a connector: {advice}")
    rest, _, at = rest.rpartition("@") if "@" in rest else (rest, "", "")
    path, question, query = rest.partition("?")
    try:
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise ConfigurationError(f"{text!r}: options are written ?name=value&name=value, not {query!r}") from None
    if question and not query:
        raise ConfigurationError(f"{text!r}: write an option after the question mark, or leave it out")
    names = [name for name, _ in options]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{text!r}: the option {name} is given twice")
    return Connector(kind, unquote(path), tuple(sorted(options)), unquote(at))


def records_source(rows: Sequence[Any] | Callable[[], Iterable[Any]], row_type: Any = None) -> Connector:
    """Return a source of rows: a sequence that this process holds, or a callable that makes them on demand."""
    if callable(rows):
        return Connector("call", row_type=row_type, payload=rows)
    return Connector("list", row_type=row_type, payload=rows)


MALFORMED_POLICIES: Final = ("count", "fail", "dead_letter")
"""Treatment of malformed records. `count`: they are counted; `fail`: the first one ends the application; `dead_letter`: they are
counted and become dead letters."""

REPORTED_PER_REASON = 5
"""Malformed records of each reason that are shown to users, the first ones; the others are counted."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """Result of one `SourceReader.read`.

    Attributes:
        rows: well-formed rows in the order in which they were read: a list, or `Columns`.
        lines: data lines read by this call, well-formed or not.
        malformed: number of malformed lines, by reason.
        exhausted: True when no rows will ever follow.
        drained: True when no more rows are there now, so that the caller may wait for `fileno` before the next read.
        notes: messages about the input for users, each sent once: the first malformed records of each reason, a header.
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
    """Implementation of a source. It does I/O; one `SourceInstance` uses it. `connector_abilities` has the rest."""

    stamps: bool
    """True when `read` fills fields of type `ReadTime` itself."""

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """Return at most `max_rows` rows; fewer, even none, when no more are there at once. Raises `OperationFailed`."""
        ...

    def close(self) -> None:
        """Release its resources; may be called twice."""
        ...


class SinkWriter(Protocol):
    """Implementation of a sink; one `Instance` uses it. `connector_abilities` has the rest."""

    def write(self, rows: list[Any]) -> None:
        """Take rows in order. Raises `OperationFailed`."""
        ...

    def flush(self) -> None:
        """Pass the rows taken so far to the outer world."""
        ...

    def close(self) -> None:
        """Flush and release its resources; may be called twice."""
        ...

    @property
    def latency(self) -> LatencyHistogram:
        """Time from reading to writing of the rows that have a `ReadTime`."""
        ...
