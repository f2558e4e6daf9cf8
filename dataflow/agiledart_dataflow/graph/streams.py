"""Stream language on one page: `Stream`, `KeyedStream`, their windows, and keyed rows with a broadcast stream.

Handles carry no rows: a verb adds a step to the graph and returns the handle of its output. The modules of verbs, by theme,
contain the checks and the steps of each verb.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from agiledart_dataflow.aggregation.aggregators import Aggregator, Count
from agiledart_dataflow.aggregation.running_aggregate import Reduction
from agiledart_dataflow.data.rows import Change, DeadLetter, Joined, Match, Pane, Ranking
from agiledart_dataflow.event_time.windows import ClosingWindow, Panes, Sliding
from agiledart_dataflow.expressions.aggregates import Aggregate
from agiledart_dataflow.expressions.expression import Expression
from agiledart_dataflow.graph import (
    columnar_verbs,
    join_verbs,
    keyed_verbs,
    row_verbs,
    scoring_verbs,
    side_verbs,
    window_verbs,
)
from agiledart_dataflow.graph.graph import KeyedRows, Rows
from agiledart_dataflow.graph.keyed_verbs import Keep, StateOptions, itself
from agiledart_dataflow.graph.missing_verbs import missing_verbs
from agiledart_dataflow.operators.keyed import BroadcastOperator, KeyedOperator
from agiledart_dataflow.operators.patterns import Never
from agiledart_dataflow.plan.connectors import Sink
from agiledart_dataflow.user_code.callsite import call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy
from agiledart_dataflow.user_code.explained_calls import explained

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
S = TypeVar("S")
B = TypeVar("B")
G = TypeVar("G")


class Ranked(TypedDict, Generic[V], total=False):
    """Options of a ranking besides its places and the time of output."""

    rank: Callable[[V], float | Decimal] | None
    ties: Literal["newest", "key"]
    compare: Literal["values", "keys"]
    on_error: ErrorPolicy


@explained
class Stream(Generic[T]):
    """Stream of rows of type T.

    Steps of expressions (`where`, `with_columns`, `select`) need no name; they get the verb's, numbered from the second on.
    `name` gives another. They mix freely with functions of rows.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    if not TYPE_CHECKING:  # with it a type checker would accept any verb
        __getattr__ = missing_verbs("Stream")

    # ---- single rows

    def map(
        self,
        function: Callable[[T], U],
        name: str | None = None,
        *,
        returns: type[U] | None = None,
        on_error: ErrorPolicy = "fail",
        event_time: "Callable[[U], datetime | int] | str | Expression | None" = None,
    ) -> "Stream[U]":
        """Replace each row by the function's result. The new type comes from the function's annotation, or from `returns`.

        `on_error`, here and in `filter` and `flat_map`, decides about a row at which the function raises. `fail`: the application
        fails. `skip`: the row is dropped and counted. `dead_letter`: the row is counted and put aside with the error;
        `.errors(name)` reads it.

        `event_time`, here and in `flat_map`, takes the event times from the new rows, as a source does from its own: for rows
        that have none before, such as lines of text. The step then runs at its source, which must have no event times, and only
        steps of single rows may stand between. The source's `max_out_of_order`, `idle_timeout`, `clock` and `max_ahead` hold for
        these times; `.late(name)` behind the step reads the late rows.
        """
        return Stream(row_verbs.mapped(self._rows, function, name, returns, on_error, event_time))

    def filter(
        self, function: Callable[[T], object], name: str | None = None, *, on_error: ErrorPolicy = "fail"
    ) -> "Stream[T]":
        """Keep the rows for which the function is true."""
        return Stream(row_verbs.filtered(self._rows, function, name, on_error))

    @overload
    def flat_map(
        self,
        function: Callable[[T], Iterable[U]],
        name: str | None = None,
        *,
        returns: type[U] | None = None,
        on_error: ErrorPolicy = "fail",
        event_time: "Callable[[U], datetime | int] | str | Expression | None" = None,
    ) -> "Stream[U]": ...
    @overload
    def flat_map(
        self,
        function: Callable[[T], U | None],
        name: str | None = None,
        *,
        returns: type[U] | None = None,
        on_error: ErrorPolicy = "fail",
        event_time: "Callable[[U], datetime | int] | str | Expression | None" = None,
    ) -> "Stream[U]": ...
    def flat_map(
        self, function: Any, name: Any = None, *, returns: Any = None, on_error: Any = "fail", event_time: Any = None
    ) -> "Stream[Any]":
        """Replace each row by one or none (`-> X | None`), or by any number of rows (`-> Iterable[X]`, `list[X]` …).

        With a lambda, `returns=X` gives the type of the rows, and the lambda returns an iterable of them.
        """
        return Stream(row_verbs.flat_mapped(self._rows, function, name, returns, on_error, event_time))

    def union(self, *others: "Stream[T]", name: str) -> "Stream[T]":
        """Merge the rows of several streams of one type, in order of position."""
        return Stream(row_verbs.union(self._rows, [_rows_of(other) for other in others], name))

    def sink(self, name: str, connector: Sink[T], *, at: str | None = None) -> None:
        """Write the rows to a sink. `at` is the node that runs it; it overrides the connector's own `@node`."""
        row_verbs.sink(self._rows, name, connector, at)

    def paths(self, paths: str | Sequence[str]) -> "Stream[T]":
        """Set the paths of this step's rows to other nodes, in place of the topology's.

        `auto`, `warm`, `direct`, or names of nodes that act as relays.
        """
        return Stream(row_verbs.with_paths(self._rows, paths))

    # ---- expressions, and many rows at once

    def where(self, condition: Expression, name: str | None = None, *, on_error: ErrorPolicy = "fail") -> "Stream[T]":
        """Keep the rows for which a condition is True; drop those for which it is False or None."""
        return Stream(columnar_verbs.chosen(self._rows, condition, name, on_error))

    def with_columns(
        self, *, name: str | Expression | None = None, on_error: ErrorPolicy = "fail", **columns: object
    ) -> "Stream[Any]":
        """Add fields, or replace values of fields: `.with_columns(ratio=col("tip") / col("fare"))`.

        `name`, here and in `select`, names the step when it is a text; it is a field of that name when it is an expression.
        """
        return Stream(columnar_verbs.with_columns(self._rows, columns, name, on_error))

    def select(
        self,
        *fields: str | Expression,
        name: str | Expression | None = None,
        on_error: ErrorPolicy = "fail",
        **columns: object,
    ) -> "Stream[Any]":
        """Keep only these fields: `.select("zone", ratio=col("tip") / col("fare"))`."""
        return Stream(columnar_verbs.selected(self._rows, fields, columns, name, on_error))

    def map_batches(
        self,
        function: Callable[[Any], Any],
        name: str | None = None,
        *,
        returns: type[U] | None = None,
        resizes: bool = False,
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[U]":
        """Apply a function to many rows at once; it returns as many rows, of the type `returns` (or of the same type).

        The function gets a pyarrow.RecordBatch, or the type that its parameter is annotated with: `dict` (field → NumPy array) or
        `polars.DataFrame`. It may return any of these types. With `resizes=True` it returns fewer or more rows with their
        origins, `(rows, origins)`. The origin of a row is the number of the row of the batch from which it was made; origins
        count up. The new row has that row's time.

        The end of a batch depends on timing, so a row's result must not depend on its neighbours. With another `on_error` than
        "fail" the function is called again for ever smaller parts of a batch at which it raises, so that only the rows at fault
        are dropped.
        """
        return Stream(columnar_verbs.mapped_batches(self._rows, function, name, returns, resizes, on_error))

    def score(
        self,
        name: str,
        models: "Stream[bytes]",
        *,
        inputs: Sequence[str],
        output: str = "score",
        returns: type[float] | type[int] = float,
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[Any]":
        """Add the score of a model in ONNX, and the model's version: the fields `output` and `output_version`.

        Args:
            name: name of the step; required, because the step keeps the model.
            models: bytes of ONNX files, such as `topology.reference("models", whole_file("quality.onnx"), rows=bytes)`. Of a
                stream with event times, each valid model replaces the one before from its time on.
            inputs: fields that are the model's input, in its order; where one is None the score is None.
            output: name of the new field.
            returns: int or float.
            on_error: treatment of rows before the first model, and of models that are damaged or take other inputs. With
                `skip` they are counted and reported, and the model in use stays.
        """
        models_rows = models._rows if isinstance(models, Stream) else models  # noqa: SLF001  the handles' own helper
        return Stream(scoring_verbs.scored(self._rows, name, models_rows, inputs, output, returns, on_error))

    # ---- keys

    @overload
    def key_by(self, function: Expression, *more: Expression) -> "KeyedStream[Any, T]": ...
    @overload
    def key_by(self, function: Callable[[T], K], *, returns: type[K] | None = None) -> "KeyedStream[K, T]": ...
    def key_by(self, function: Any, *more: Any, returns: Any = None) -> "KeyedStream[Any, T]":
        """Give rows a key: a function of a row, or one or more expressions, `.key_by(col("zone"))`.

        Equal keys meet on the same instance. This is not a step of its own, so it has no name.
        """
        return KeyedStream(keyed_verbs.keyed_by(self._rows, function, more, returns))

    def distinct(self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory") -> "Stream[T]":
        """Drop rows that are equal, as tuples are, to an earlier row; the step remembers every row."""
        return self.key_by(itself, returns=self._rows.type).distinct(name, keep=keep, on_error=on_error)

    def deduplicate(
        self,
        name: str,
        *,
        by: Callable[[T], Any],
        time_to_live: timedelta | None = None,
        returns: Any = None,
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[T]":
        """Drop rows whose `by` equals that of an earlier row.

        Args:
            name: name of the step; required, because the step keeps state.
            by: row → value that makes two rows duplicates.
            time_to_live: a row passes again this much event time after the last equal row that passed. Without it every row is
                remembered for ever.
            returns: the type of `by`'s values, where it is unknown.
            on_error: treatment of a row at which `by` raises.
            keep: place of the state.
        """
        return self.key_by(by, returns=returns).distinct(name, time_to_live=time_to_live, keep=keep, on_error=on_error)

    # ---- values that change

    @overload
    def top(
        self: "Stream[Change[K, V, R]]",
        name: str,
        *,
        n: int,
        emit: Literal["on_record"] = ...,
        **rest: Unpack[Ranked[V]],
    ) -> "Stream[Ranking[R, K, V]]": ...
    @overload
    def top(
        self: "Stream[Change[K, V, R]]", name: str, *, n: int, emit: Literal["on_change"], **rest: Unpack[Ranked[V]]
    ) -> "Stream[Ranking[R | None, K, V]]": ...
    def top(
        self: "Stream[Change[Any, Any, Any]]",
        name: str,
        *,
        n: int,
        rank: Callable[[Any], Any] | None = None,
        ties: Literal["newest", "key"] = "newest",
        compare: Literal["values", "keys"] = "values",
        emit: Literal["on_record", "on_change"] = "on_record",
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[Any]":
        """Put out the n keys of greatest value, as a `Ranking` at each source record that changed it.

        Args:
            name: name of the step; required, because the step keeps state.
            n: number of places.
            rank: value → number by which to rank; by default the value itself.
            ties: `newest`: the key whose value a record renewed last comes first, then the smaller key; `key`: the smaller key.
            compare: a change is any change of a value among the n, or only of the keys and their places.
            emit: `on_change` also puts out a ranking that time alone changed; `cause` is None then.
            on_error: when `rank` raises, the job fails, or the change is skipped and counted (the key keeps its place), or it
                also goes to `.errors(name)`.
        """
        return Stream(window_verbs.top(self._rows, name, n, rank, ties, compare, emit, on_error))

    # ---- side outputs of the step behind this stream

    def late(self, name: str) -> "Stream[Any]":
        """Read the rows that came too late for a source, or for a window with `allowed_lateness`, in order of arrival.

        Their positions are those of their arrival, so time does not run backwards in later steps.
        """
        return Stream(side_verbs.late(self._rows, name))

    def errors(self, name: str) -> "Stream[DeadLetter[Any]]":
        """Read the records at which the step's user code raised, when its policy is `on_error="dead_letter"`.

        For a source with `malformed="dead_letter"` they are the malformed records: texts as they came, or the row that `check`
        refused, as Python shows it.

        A join of rows of two types gives each as `Either(left, right)`, with None for the side that the row did not come from.
        """
        return Stream(side_verbs.errors(self._rows, name))

    def side(self, name: str, tag: str, *, rows: type[U]) -> "Stream[U]":
        """Read the rows of a type that a `KeyedOperator` puts out with `context.emit_to(tag, row)`."""
        return Stream(side_verbs.side(self._rows, name, tag, rows))


@explained
class KeyedStream(Generic[K, R]):
    """Stream of rows of type R with a key of type K; the verbs treat the rows of each key one after the other.

    In the verbs with a second stream, rows of equal time come in the order of their sources in the topology.
    """

    def __init__(self, rows: KeyedRows) -> None:
        self._rows = rows

    if not TYPE_CHECKING:  # with it a type checker would accept any verb
        __getattr__ = missing_verbs("KeyedStream")

    @overload
    def window(self, window: Sliding) -> "SlidingStream[K, R]": ...
    @overload
    def window(self, window: ClosingWindow) -> "PaneStream[K, R]": ...
    def window(self, window: Any) -> Any:
        """Divide each key's rows by event time or by number.

        By event time: `sliding(size)`, `hopping(size, every)`, `tumbling(size)`, `session(gap)`; by number: `counted(size)`.
        """
        if isinstance(window, Sliding):
            return SlidingStream(self._rows, window)
        if isinstance(window, ClosingWindow):
            return PaneStream(self._rows, window)
        raise call_site().error(
            f"window() takes sliding(…), hopping(…), tumbling(…), session(…) or counted(…), not {window!r}"
        )

    # ---- a state for each key

    def stateful(
        self,
        name: str,
        operator: KeyedOperator[K, R, S, U],
        *,
        time_to_live: timedelta | None = None,
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> Stream[U]:
        """Run user code with state by key and timers in event time.

        Args:
            name: name of the step; required, because the step keeps state.
            operator: an instance of your `KeyedOperator`.
            time_to_live: a key's state is dropped this long (in event time) after its last record.
            on_error: when the operator raises, the job fails, or the record is skipped and counted, or it also goes to
                `.errors(name)`. Changes of the state before the error stay.
            keep: place of the state.
        """
        return Stream(keyed_verbs.stateful(self._rows, name, operator, time_to_live, on_error=on_error, keep=keep))

    def reduce(
        self, name: str, function: Callable[[R, R], R], *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> Stream[Change[K, R, R]]:
        """Join all rows of a key so far two by two, `function(so far, next)`, anew at each row.

        `on_error`, here and in `running`, `distinct` and `pattern`, decides about a row at which a function of the step or of its
        key raises. The state of the key stays as it was before that row.
        """
        return Stream(keyed_verbs.reduced(self._rows, name, function, on_error=on_error, keep=keep))

    @overload
    def running(
        self, name: str, aggregator: Aggregator[R, Any, V], *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> Stream[Change[K, V, R]]: ...
    @overload
    def running(self, name: str, **results: Aggregate) -> Stream[Any]: ...
    @overload
    def running(
        self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory", **results: Aggregate
    ) -> Stream[Any]: ...
    def running(
        self, name: str, aggregator: Any = None, *, on_error: Any = "fail", keep: Any = "memory", **results: Any
    ) -> Stream[Any]:
        """Compute a value of all rows of a key so far, anew at each row.

        An aggregator gives rows of type `Change`. Named results, `trips=count(), fares=col("fare").sum()`, give the rows
        themselves with the results as further fields (SQL: `SUM(fare) OVER (PARTITION BY key ROWS UNBOUNDED PRECEDING)`). Sums of
        floats are then added up in the order of the rows, and columns stay columns.
        """
        return Stream(keyed_verbs.running(self._rows, name, aggregator, results, on_error=on_error, keep=keep))

    def running_count(
        self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> Stream[Change[K, int, R]]:
        """Count the rows of a key so far, anew at each row."""
        return self.running(name, Count(), keep=keep, on_error=on_error)

    def distinct(
        self, name: str, *, time_to_live: timedelta | None = None, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> Stream[R]:
        """Keep the first row of each key. With `time_to_live` the key is new again this long after the row that passed."""
        return Stream(keyed_verbs.distinct(self._rows, name, time_to_live, on_error=on_error, keep=keep))

    def pattern(
        self,
        name: str,
        *elements: Callable[[R], object] | Never[R],
        within: timedelta,
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> Stream[Match[K, R]]:
        """Find rows of a key that follow each other: `pattern("alarm", is_hot, is_hotter, never(is_cooled), within=…)`.

        Each element is a predicate, or `never(predicate)` for rows that must not come there. Each row that the first element
        accepts begins a match. Each element takes the first later row that it accepts. The last row comes at most `within` after
        the first. A pattern that ends with `never` is complete when `within` is over.
        """
        return Stream(keyed_verbs.pattern(self._rows, name, elements, within, on_error=on_error, keep=keep))

    # ---- a second stream

    @overload
    def window_join(
        self,
        name: str,
        other: "KeyedStream[K, U]",
        window: Panes,
        *,
        how: Literal["inner"] = ...,
        **state_options: Unpack[StateOptions],
    ) -> Stream[Joined[K, R, U]]: ...
    @overload
    def window_join(
        self,
        name: str,
        other: "KeyedStream[K, U]",
        window: Panes,
        *,
        how: Literal["left"],
        **state_options: Unpack[StateOptions],
    ) -> Stream[Joined[K, R, U | None]]: ...
    @overload
    def window_join(
        self,
        name: str,
        other: "KeyedStream[K, U]",
        window: Panes,
        *,
        how: Literal["outer"],
        **state_options: Unpack[StateOptions],
    ) -> Stream[Joined[K, R | None, U | None]]: ...
    def window_join(
        self, name: str, other: Any, window: Any, *, how: Any = "inner", on_error: Any = "fail", keep: Any = "memory"
    ) -> Stream[Any]:
        """Join all pairs of rows of one key and one tumbling or hopping window, when the window closes.

        Args:
            name: name of the step.
            other: the right side, keyed too; its rows may be of another type.
            window: tumbling(…) or hopping(…).
            how: `left` also passes rows of this side without a partner in their window, `outer` those of both sides.
            on_error: treatment of a row at which a key function raises.
            keep: place of the rows of open windows.
        """
        return Stream(
            join_verbs.window_join(self._rows, name, _rows_of(other), window, how, on_error=on_error, keep=keep)
        )

    @overload
    def interval_join(
        self,
        name: str,
        other: "KeyedStream[K, U]",
        *,
        earliest: timedelta,
        latest: timedelta,
        how: Literal["inner"] = ...,
        **state_options: Unpack[StateOptions],
    ) -> Stream[Joined[K, R, U]]: ...
    @overload
    def interval_join(
        self,
        name: str,
        other: "KeyedStream[K, U]",
        *,
        earliest: timedelta,
        latest: timedelta,
        how: Literal["left"],
        **state_options: Unpack[StateOptions],
    ) -> Stream[Joined[K, R, U | None]]: ...
    def interval_join(
        self,
        name: str,
        other: "KeyedStream[Any, Any]",
        *,
        earliest: timedelta,
        latest: timedelta,
        how: Any = "inner",
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> Stream[Any]:
        """Join pairs of rows of one key: the other row is from `earliest` to `latest` after this one, both included.

        Times below zero mean before it. A pair comes out at the later of its rows. With `how="left"` a row of this side without a
        partner comes out when no partner can come any more.
        """
        rows = join_verbs.interval_join(
            self._rows, name, _rows_of(other), earliest, latest, how, on_error=on_error, keep=keep
        )
        return Stream(rows)

    @overload
    def lookup(
        self,
        name: str,
        table: "KeyedStream[K, U]",
        *,
        how: Literal["inner"] = "inner",
        **state_options: Unpack[StateOptions],
    ) -> Stream[Joined[K, R, U]]: ...
    @overload
    def lookup(
        self, name: str, table: "KeyedStream[K, U]", *, how: Literal["left"], **state_options: Unpack[StateOptions]
    ) -> Stream[Joined[K, R, U | None]]: ...
    def lookup(
        self, name: str, table: Any, *, how: Any = "inner", on_error: Any = "fail", keep: Any = "memory"
    ) -> Stream[Any]:
        """Join each row with the newest row of the table that has its key, as the table stood at the row's position.

        The table is a stream: a `topology.reference(…)`, read to its end before the first lookup, or any other stream whose rows
        replace each other as time passes. `how="left"` also passes rows whose key the table does not have.
        """
        return Stream(join_verbs.lookup(self._rows, name, _rows_of(table), how, on_error=on_error, keep=keep))

    def connect(self, broadcast: Stream[B]) -> "ConnectedStream[K, R, B]":
        """Combine these rows with a small stream that every instance gets in full: `.connect(rules).stateful("apply", …)`."""
        return ConnectedStream(self._rows, join_verbs.check_broadcast(self._rows, _rows_of(broadcast)))


@explained
class SlidingStream(Generic[K, R]):
    """Rows of each key within a sliding window."""

    def __init__(self, keyed: KeyedRows, window: Sliding) -> None:
        self._keyed = keyed
        self._window = window

    if not TYPE_CHECKING:  # with it a type checker would accept any verb
        __getattr__ = missing_verbs("window")

    def count(self, name: str, *, on_error: ErrorPolicy = "fail") -> Stream[Change[K, int, R]]:
        """Count the rows in each key's window, whenever the number changes."""
        return self.aggregate(name, Count(), on_error=on_error)

    def aggregate(
        self, name: str, aggregator: Aggregator[R, Any, V], *, on_error: ErrorPolicy = "fail"
    ) -> Stream[Change[K, V, R]]:
        """Compute an aggregate of each key's window, whenever a row enters or leaves.

        `on_error` decides about a row at which the aggregator or the key function raises. `fail`: the application fails. `skip`:
        the row is ignored and counted. `dead_letter`: the row is counted and put aside. A result that raises when a row leaves is
        not put out.
        """
        return Stream(window_verbs.aggregated(self._keyed, self._window, name, aggregator, {}, on_error, "memory"))

    def reduce(
        self, name: str, function: Callable[[R, R], R], *, on_error: ErrorPolicy = "fail"
    ) -> Stream[Change[K, R, R]]:
        """Join the rows of each key's window two by two, `function(so far, next)`, whenever a row enters or leaves."""
        return self.aggregate(name, Reduction(function), on_error=on_error)


@explained
class PaneStream(Generic[K, R]):
    """Rows of each key in windows that close."""

    def __init__(self, keyed: KeyedRows, window: ClosingWindow) -> None:
        self._keyed = keyed
        self._window = window

    if not TYPE_CHECKING:  # with it a type checker would accept any verb
        __getattr__ = missing_verbs("window")

    def count(self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory") -> Stream[Pane[K, int]]:
        """Count the rows of each key in a window, when it closes."""
        return self.aggregate(name, Count(), on_error=on_error, keep=keep)

    @overload
    def aggregate(
        self, name: str, aggregator: Aggregator[R, Any, V], *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> Stream[Pane[K, V]]: ...
    @overload
    def aggregate(self, name: str, **results: Aggregate) -> Stream[Any]: ...
    @overload
    def aggregate(
        self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory", **results: Aggregate
    ) -> Stream[Any]: ...
    def aggregate(
        self, name: str, aggregator: Any = None, *, on_error: Any = "fail", keep: Any = "memory", **results: Any
    ) -> Stream[Any]:
        """Compute a value of each key's rows in a window, when it closes.

        An aggregator gives rows of type `Pane`. Named results, `trips=count(), fares=col("fare").sum()`, give flat rows: the
        key's fields, `start_ms`, `end_ms` and the results.

        `on_error`, here and in `count` and `reduce`, decides about a row at which the aggregator, a value or the key raises, also
        about a value that cannot be summed or compared. `fail`: the application fails. `skip`: the row is ignored and counted.
        `dead_letter`: the row is counted and put aside. A pane whose result raises is not put out. `keep` is the place of open
        windows: on `disk` there may be more of them than memory holds.
        """
        return Stream(window_verbs.aggregated(self._keyed, self._window, name, aggregator, results, on_error, keep))

    def reduce(
        self, name: str, function: Callable[[R, R], R], *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> Stream[Pane[K, R]]:
        """Join the rows of each key and window two by two, `function(so far, next)`, when the window closes."""
        return self.aggregate(name, Reduction(function), on_error=on_error, keep=keep)


@explained
class ConnectedStream(Generic[K, R, B]):
    """Keyed rows with a broadcast stream."""

    def __init__(self, keyed: KeyedRows, broadcast: Rows) -> None:
        self._keyed = keyed
        self._broadcast = broadcast

    def stateful(
        self,
        name: str,
        operator: BroadcastOperator[K, R, S, U, B, G],
        *,
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> Stream[U]:
        """Run user code with state by key, timers, and the value built from the broadcast stream so far (`context.shared`)."""
        return Stream(
            join_verbs.stateful_beside(self._keyed, self._broadcast, name, operator, on_error=on_error, keep=keep)
        )


def _rows_of(stream: object) -> object:
    """Return the rows of a stream or keyed stream; None for any other object, which the verb refuses."""
    return stream._rows if isinstance(stream, Stream | KeyedStream) else None  # noqa: SLF001  the handles' own helper
