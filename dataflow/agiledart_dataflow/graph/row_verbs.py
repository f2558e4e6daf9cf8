"""The verbs on rows by themselves: map, filter, flat_map, key_by, union, sink."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from agiledart_dataflow.data.inference import CannotTellError, element_type, return_annotation, traced_type
from agiledart_dataflow.data.schema import SchemaError, check_key
from agiledart_dataflow.graph.handles import StreamHandle, ask_returns, step_name
from agiledart_dataflow.graph.keyed_handle import Keep
from agiledart_dataflow.graph.keyed_stream import KeyedStream
from agiledart_dataflow.plan.connectors import Connector, Sink
from agiledart_dataflow.user_code.callsite import call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, error_policy

if TYPE_CHECKING:
    from agiledart_dataflow.graph.streams import Stream

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")


class RowVerbs(StreamHandle[T]):
    """Verbs that look at one row at a time."""

    def map(
        self,
        function: Callable[[T], U],
        name: str | None = None,
        *,
        returns: type[U] | None = None,
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[U]":
        """Each row becomes another. The new type comes from the function's annotation, or from `returns`.

        `on_error`, here and in `filter` and `flat_map`, says what becomes of a row for which the function raises: the application
        fails with it (`fail`), goes on without it and counts it (`skip`), or counts it and puts it aside with the error
        (`dead_letter`; `.errors(name)` reads them).
        """
        where = call_site()
        name = step_name(function, name, "map", where)
        policy = error_policy(on_error, where)
        row_type = self._returned(function, returns, "map", name, where)
        return self._topology.stream(self._add(name, "map", row_type, where, function=function, **policy))

    def filter(
        self, function: Callable[[T], object], name: str | None = None, *, on_error: ErrorPolicy = "fail"
    ) -> "Stream[T]":
        """Rows for which the function says yes."""
        where = call_site()
        name = step_name(function, name, "filter", where)
        policy = error_policy(on_error, where)
        return self._topology.stream(self._add(name, "filter", self._row_type, where, function=function, **policy))

    @overload
    def flat_map(
        self,
        function: Callable[[T], Iterable[U]],
        name: str | None = None,
        *,
        returns: type[U] | None = None,
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[U]": ...
    @overload
    def flat_map(
        self,
        function: Callable[[T], U | None],
        name: str | None = None,
        *,
        returns: type[U] | None = None,
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[U]": ...
    def flat_map(
        self,
        function: Callable[[T], Any],
        name: str | None = None,
        *,
        returns: Any = None,
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[Any]":
        """Each row becomes one or none (`-> X | None`), or any number (`-> Iterable[X]`, `list[X]` …).

        With a lambda, `returns=X` says the type of the rows, and the lambda returns an iterable of them.
        """
        where = call_site()
        name = step_name(function, name, "flat_map", where)
        many = True
        try:
            annotated, many = element_type(return_annotation(function))
        except CannotTellError as error:
            if returns is None:
                raise where.error(ask_returns("flat_map", name, error)) from None
            annotated = returns
        row_type = returns if returns is not None else annotated
        policy = error_policy(on_error, where)
        options = (("yields", "many" if many else "optional"), *policy["options"])
        make = {"many": many, **policy["make"]}
        return self._topology.stream(
            self._add(name, "flat_map", row_type, where, function=function, options=options, make=make)
        )

    def key_by(self, function: Callable[[T], K], *, returns: type[K] | None = None) -> "KeyedStream[K, T]":
        """Rows with a key: equal keys meet in the same place. Not a step of its own, so it has no name."""
        where = call_site()
        if returns is not None:
            key_type: Any = returns
        else:
            try:
                key_type = traced_type(function, self._row_type)
            except CannotTellError as error:
                raise where.error(
                    f"the type of the key cannot be told, {error}: write key_by(…, returns=str), for example"
                ) from None
        try:
            check_key(key_type)
        except SchemaError as error:
            raise where.error(f"the key: {error}") from None
        return KeyedStream(self._topology, self._index, function, key_type)

    def distinct(self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory") -> "Stream[T]":
        """The rows without those that were there before, as equal as tuples are; remembers every row."""
        return self.deduplicate(name, by=_itself, keep=keep, on_error=on_error)

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
        """The rows without those whose `by` was there before.

        Args:
            name: of the step; must be given, because it keeps state.
            by: row → what makes two rows the same.
            time_to_live: a row passes again when so much event time went by since the like of it passed; without it what was
                seen is remembered for ever.
            returns: the type of `by`'s values, where it cannot be told.
            on_error: what becomes of a row for which `by` raises.
            keep: where it is remembered.
        """
        given = self._row_type if by is _itself else returns
        return self.key_by(by, returns=given).distinct(name, time_to_live=time_to_live, keep=keep, on_error=on_error)

    def union(self, *others: "Stream[T]", name: str) -> "Stream[T]":
        """The rows of several streams of one type, in order of position."""
        where = call_site()
        if not others:
            raise where.error("union() needs at least one other stream")
        for other in others:
            if other._topology is not self._topology:  # noqa: SLF001  another handle of the same class
                raise where.error("union() joins streams of one topology; one of these belongs to another")
            if other._row_type != self._row_type:  # noqa: SLF001  as above
                raise where.error(f"union() joins rows of one type, not {self._row_type!r} and {other._row_type!r}")  # noqa: SLF001
        inputs = (self._index, *(other._index for other in others))  # noqa: SLF001  as above
        return self._topology.stream(self._topology.add(name, "union", inputs, self._row_type, where))

    def sink(self, name: str, connector: Sink[T], *, at: str | None = None) -> None:
        """Hand the rows to the outer world. `at` says which node runs it (over the connector's own `@node`)."""
        where = call_site()
        if not isinstance(connector, Connector):
            hint = f"; did you mean csv({connector!r})?" if isinstance(connector, str) else ""
            raise where.error(
                f"sink {name!r} needs a connector such as csv(…), jsonl(…), stdout(), not {connector!r}{hint}"
            )
        place = connector.at if at is None else at
        self._add(name, "sink", self._row_type, where, connector=connector, at=place)


def _itself(row: Any) -> Any:
    return row
