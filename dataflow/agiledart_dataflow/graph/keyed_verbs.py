"""The verbs on keyed rows that keep a state for each key: stateful, reduce, running, distinct, pattern."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from agiledart_dataflow.aggregation.aggregators import Aggregator, Count
from agiledart_dataflow.aggregation.named_running import named_running
from agiledart_dataflow.aggregation.operator_making import aggregate_state_type
from agiledart_dataflow.aggregation.running import Reduction, Running
from agiledart_dataflow.data.rows import Change, Match
from agiledart_dataflow.data.schema import SchemaError, check_travels, generic
from agiledart_dataflow.expressions.aggregates import Aggregate
from agiledart_dataflow.graph.handles import needs_name
from agiledart_dataflow.graph.keyed_handle import Keep, KeyedHandle, span_ms
from agiledart_dataflow.graph.windowed_streams import value_type
from agiledart_dataflow.operators.distinct import FirstOnly
from agiledart_dataflow.operators.keyed import BroadcastOperator, KeyedOperator
from agiledart_dataflow.operators.operator_types import operator_types
from agiledart_dataflow.operators.patterns import Never, Pattern
from agiledart_dataflow.user_code.callsite import CallSite, call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy

if TYPE_CHECKING:
    from agiledart_dataflow.graph.streams import Stream

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
S = TypeVar("S")
U = TypeVar("U")


class KeyedVerbs(KeyedHandle[K, R]):
    """Verbs that look at the rows of one key, one after the other."""

    def stateful(
        self,
        name: str,
        operator: KeyedOperator[K, R, S, U],
        *,
        time_to_live: timedelta | None = None,
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[U]":
        """User code with state by key and timers in event time.

        Args:
            name: of the step; must be given, because it keeps state.
            operator: an instance of your `KeyedOperator`.
            time_to_live: a key's state is forgotten so long (in event time) after its last record.
            on_error: what happens when the operator raises: the job fails, or the record is skipped and counted, or it
                also goes to `.errors(name)`. What the operator changed in the state before it raised stays.
            keep: where the state is kept.
        """
        where = call_site()
        needs_name(name, "stateful", "my-state", where)
        given: Any = operator
        if not isinstance(given, KeyedOperator):
            made = f"; did you mean {given.__name__}()?" if isinstance(given, type) else ""
            raise where.error(f"stateful() takes an instance of a KeyedOperator, not {given!r}{made}")
        if isinstance(given, BroadcastOperator):
            raise where.error(
                f"{type(given).__name__} also hears a broadcast stream: write .connect(rules).stateful({name!r}, …)"
            )
        time_to_live_ms = span_ms("time_to_live", time_to_live, where)
        key_type, state_type, row_type = operator_types(operator, where)
        try:
            check_travels(state_type)
        except SchemaError as error:
            raise where.error(f"the state of {name!r}: {error}") from None
        return self._operate(
            name,
            "stateful",
            operator,
            state_type,
            row_type,
            where,
            keep=keep,
            key_type=key_type,
            on_error=on_error,
            options=(("time_to_live_ms", str(time_to_live_ms)),),
            time_to_live_ms=time_to_live_ms,
        )

    def reduce(
        self, name: str, function: Callable[[R, R], R], *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> "Stream[Change[K, R, R]]":
        """All rows of a key so far joined two by two, `function(so far, next)`, anew at each row.

        `on_error`, here and in `running`, `distinct` and `pattern`: what becomes of a row for which a function of the step or
        of its key raises; the state of the key stays as it was before that row.
        """
        where = call_site()
        _, row_type = self.types
        operator = Running(Reduction(function))
        return self._operate(
            name,
            "running",
            operator,
            generic(list, generic(list, row_type)),
            self._change(row_type),
            where,
            keep=keep,
            on_error=on_error,
        )

    @overload
    def running(
        self, name: str, aggregator: Aggregator[R, Any, V], *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> "Stream[Change[K, V, R]]": ...
    @overload
    def running(self, name: str, **results: Aggregate) -> "Stream[Any]": ...
    @overload
    def running(
        self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory", **results: Aggregate
    ) -> "Stream[Any]": ...
    def running(
        self, name: str, aggregator: Any = None, *, on_error: Any = "fail", keep: Any = "memory", **results: Any
    ) -> "Stream[Any]":
        """What is made of all rows of a key so far, anew at each row.

        An aggregator gives rows of type `Change`. Named results, `trips=count(), fares=col("fare").sum()`, give the rows
        themselves with the results as further fields (SQL: `SUM(fare) OVER (PARTITION BY key ROWS UNBOUNDED PRECEDING)`);
        sums of floats are then added up in the order of the rows, and columns stay columns.
        """
        where = call_site()
        if results:
            return self._running_values(name, aggregator, results, on_error, keep, where)
        _, row_type = self.types
        value = value_type(aggregator, row_type, where)
        state_type = generic(list, aggregate_state_type(aggregator, row_type))
        options = (("aggregate", type(aggregator).__name__),)
        return self._operate(
            name,
            "running",
            Running(aggregator),
            state_type,
            self._change(value),
            where,
            options=options,
            keep=keep,
            on_error=on_error,
        )

    def _running_values(
        self, name: str, aggregator: Any, results: dict[str, Any], on_error: Any, keep: Any, where: CallSite
    ) -> "Stream[Any]":
        needs_name(name, "running", "totals", where)
        if aggregator is not None:
            raise where.error("running() takes one aggregator, or named results, not both")
        named = named_running(name, self.types[1], results, where)
        return self._operate(
            name,
            "running-values",
            named,
            named.state_type,
            named.row_type,
            where,
            options=(("results", repr(sorted(results.items()))),),
            keep=keep,
            on_error=on_error,
        )

    def running_count(
        self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> "Stream[Change[K, int, R]]":
        """How many rows of a key there were so far, anew at each row."""
        return self.running(name, Count(), keep=keep, on_error=on_error)

    def distinct(
        self, name: str, *, time_to_live: timedelta | None = None, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> "Stream[R]":
        """The first row of each key. With `time_to_live` the key counts as new again so long after the row that passed."""
        where = call_site()
        ttl_ms = span_ms("time_to_live", time_to_live, where)
        options = (("time_to_live_ms", str(ttl_ms)),)
        return self._operate(
            name,
            "distinct",
            FirstOnly(ttl_ms),
            list[bool],
            self.types[1],
            where,
            options=options,
            keep=keep,
            on_error=on_error,
        )

    def pattern(
        self,
        name: str,
        *elements: Callable[[R], object] | Never[R],
        within: timedelta,
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Match[K, R]]":
        """Rows of a key that follow each other: `pattern("alarm", is_hot, is_hotter, never(is_cooled), within=…)`.

        Each element is a predicate, or `never(predicate)` for rows that must not come there. Each row that the first one
        accepts begins a match of its own; each element takes the first later row that it accepts; the last row comes at
        most `within` after the first. A pattern that ends with `never` is complete when `within` is over.
        """
        where = call_site()
        wanted = [element for element in elements if not isinstance(element, Never)]
        if any(not callable(element) for element in wanted):
            raise where.error("pattern() takes predicates (row → yes or no) and never(predicate)")
        if len(elements) < 2 or isinstance(elements[0], Never):
            raise where.error("a pattern has two elements or more and begins with a row that comes, not with never(…)")
        within_ms = span_ms("within", within, where)
        shape = ",".join("never" if isinstance(element, Never) else "then" for element in elements)
        state_type = generic(list, generic(tuple, list[int], generic(list, self.types[1])))
        return self._operate(
            name,
            "pattern",
            Pattern(elements, within_ms),
            state_type,
            generic(Match, *self.types),
            where,
            options=(("elements", shape), ("within_ms", str(within_ms))),
            keep=keep,
            on_error=on_error,
        )

    def _change(self, value: Any) -> Any:
        return generic(Change, self._key_type, value, self.types[1])
