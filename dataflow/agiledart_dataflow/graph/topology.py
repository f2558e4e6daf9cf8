"""`Topology`: the graph that a user builds. Building runs nothing; the result is data plus the user's functions."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, get_args

from agiledart_dataflow.data.keying import Keying
from agiledart_dataflow.data.position import BEFORE_ALL_MS
from agiledart_dataflow.event_time.event_clock import Clock
from agiledart_dataflow.event_time.event_times import event_times
from agiledart_dataflow.event_time.judging import no_time
from agiledart_dataflow.expressions.expression import Expression
from agiledart_dataflow.graph.keyed_handle import span_ms
from agiledart_dataflow.graph.streams import Stream
from agiledart_dataflow.plan.connectors import Connector, Source, records_source
from agiledart_dataflow.plan.overload import Overload, overload_of
from agiledart_dataflow.plan.specification import Options, Specification
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.user_code.callsite import CallSite, annotated_row_type, call_site
from agiledart_dataflow.user_code.user_limits import UserLimits, user_limits
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import milliseconds
from agiledart_kernel.limits import MAX_APPLICATION_NAME

T = TypeVar("T")

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_BY_TIME = frozenset({"window", "keyed-window", "window-join", "interval-join", "pattern"})
"""Kinds of steps that make no sense without event times."""

MAX_STEPS = 1_024
"""Steps of one topology; a larger graph is a mistake in a loop."""


class Topology:
    """A dataflow graph under construction: `topology.source(…).map(…).sink(…)`.

    Args:
        name: of the application: letters, digits, `-`, `_`, `.`.

    Raises:
        TopologyError: from any method, with file and line of the call and how to mend it.
    """

    def __init__(self, name: str) -> None:
        where = call_site()
        if not name or len(name) > MAX_APPLICATION_NAME or not _is_name(name):
            raise where.error(
                f"{name!r} cannot name a topology: 1 to {MAX_APPLICATION_NAME} letters, digits, '-', '_'"
                " or '.', beginning with a letter or digit"
            )
        self.name = name
        self.where = where
        self.steps: list[Step] = []
        self.limits = UserLimits()

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, {len(self.steps)} steps)"

    def source(
        self,
        name: str,
        connector: Source[T] | Sequence[T] | Callable[[], Iterable[T]],
        *,
        event_time: Callable[[T], datetime | int] | str | Expression | None = None,
        rows: type[T] | None = None,
        check: Callable[[T], str | None] | None = None,
        at: str | None = None,
        max_out_of_order: timedelta = timedelta(0),
        overload: str | Overload | None = None,
        clock: Clock = "events",
        idle_timeout: timedelta | None = None,
        max_ahead: timedelta | None = None,
    ) -> Stream[T]:
        """A stream of rows from outside.

        Args:
            name: of the step; must be given, because what was read so far is remembered under it.
            connector: where rows come from; a list of rows, or a callable that returns them, will do for tests.
            event_time: row → when it happened: a datetime (without a zone: UTC) or milliseconds since 1970; or the name of
                that field, or an expression. Without it rows have no time, and no windows; they keep the order in which
                they are read.
            rows: the rows' type, when neither the connector nor the builder's annotation `Source[T]` says it.
            check: row → None, or a word that says why the row is malformed; such rows are counted by that word and left
                out.
            at: the node that runs it (over the connector's own `@node`).
            max_out_of_order: rows are sorted within this time; what comes later than that is late: counted and left
                out.
            overload: what to do while the mesh is slower than rows come: `block` (default), `spool`, `shed_oldest`,
                `shed_sample`, or an `Overload` with bounds; over what the connector says.
            clock: what lets time pass: the rows (`events`), or the clock of the source's node (`wall`), for live rows whose
                times are that clock's: then a row is late that comes more than `max_out_of_order` after its time.
            idle_timeout: after so long without a reading the source holds others back no more: time passes by the clock
                until it reads again. For live sources.
            max_ahead: a row whose time is further than this ahead of the node's clock pushes time no further than this, and
                waits until its time has come. For live rows from devices whose clocks may be wrong.
        """
        where = call_site()
        chosen = _source_connector(name, connector, where)
        row_type = rows or chosen.row_type or annotated_row_type(connector) or _type_of_first(chosen)
        if row_type is None:
            raise where.error(
                f"the rows of source {name!r} have no type yet: give rows=…, or annotate the builder's parameter, for example"
                f" trips: Source[Trip]"
            )
        if max_out_of_order < timedelta(0):
            raise where.error(f"max_out_of_order of source {name!r} is below zero: {max_out_of_order}")
        disorder = milliseconds(max_out_of_order)
        policy = _overload(name, overload, chosen, where)
        time_passes = _clock(clock, idle_timeout, max_ahead, where)
        time_of, times_of_columns = event_times(event_time, row_type, where)
        index = self.add(
            name,
            "source",
            (),
            row_type,
            where,
            function=time_of,
            options=(("max_out_of_order_ms", str(disorder)), *policy.options(), *_clock_options(time_passes)),
            connector=chosen,
            at=chosen.at if at is None else at,
            make={
                "check": check,
                "max_out_of_order_ms": disorder,
                "overload": policy,
                "clock": time_passes,
                "times_of_columns": times_of_columns,
            },
        )
        return Stream(self, index)

    def reference(
        self,
        name: str,
        connector: Source[T] | Sequence[T] | Callable[[], Iterable[T]],
        *,
        rows: type[T] | None = None,
        check: Callable[[T], str | None] | None = None,
        at: str | None = None,
    ) -> Stream[T]:
        """A table from outside, for `lookup` and `connect`: rows that were there before all events.

        It must end: who looks something up waits until it has been read.
        """
        return self.source(name, connector, event_time=_before_all, rows=rows, check=check, at=at)

    def stream(self, index: int) -> Stream[Any]:
        """The handle of a step's rows (used by the verbs of handles)."""
        return Stream(self, index)

    def limit(
        self,
        *,
        stuck_warning: timedelta | None = None,
        stuck_limit: timedelta | None = None,
        memory_mb: int | None = None,
    ) -> None:
        """Bounds on this application's own code; what is not said here is as the agents have it.

        Args:
            stuck_warning: one call that takes longer is told in the logs, with file and line.
            stuck_limit: one call that takes longer ends its executor, and the application fails; zero: never.
            memory_mb: of each executor; an agent's own bound stays when it is lower.
        """
        try:
            self.limits = user_limits(stuck_warning, stuck_limit, memory_mb)
        except ConfigurationError as error:
            raise call_site().error(f"{self.name}: {error}") from None

    def add(
        self,
        name: str,
        kind: str,
        inputs: tuple[int, ...],
        row_type: Any,
        where: CallSite,
        *,
        keying: Keying | None = None,
        function: Callable[..., Any] | None = None,
        options: Options = (),
        connector: Connector | None = None,
        at: str = "",
        make: dict[str, Any] | None = None,
    ) -> int:
        """Add a step (used by the methods of streams); returns its index."""
        if not isinstance(name, str) or not name or len(name) > MAX_APPLICATION_NAME or not _is_name(name):
            raise where.error(
                f"{name!r} cannot name a step: letters, digits, '-', '_' or '.', beginning with a letter or digit, at most"
                f" {MAX_APPLICATION_NAME}"
            )
        for step in self.steps:
            if step.name == name:
                raise where.error(
                    f"there is already a step {name!r} ({step.where}): state, statistics and restores are found by name, so each"
                    f" name can stand once; give this one another, for example name={name + '-2'!r}"
                )
        if len(self.steps) >= MAX_STEPS:
            raise where.error(f"more than {MAX_STEPS} steps: is a loop building them?")
        step = Step(
            len(self.steps),
            name,
            kind,
            inputs,
            row_type,
            where,
            keying,
            function,
            tuple(sorted(options)),
            connector,
            at,
            make or {},
        )
        step.specification()  # a type that cannot travel is told here, at the line that brought it in
        self.steps.append(step)
        return step.index

    def specification(self) -> Specification:
        """The graph as data. Raises `TopologyError` for one that does nothing."""
        if not any(step.kind == "source" for step in self.steps):
            raise self.where.error(f"{self.name} has no source: begin with topology.source(…)")
        read = [before for step in self.steps for before in step.inputs]
        for step in self.steps:
            if step.kind != "sink" and step.index not in read:
                raise step.where.error(f"nothing takes the rows of {step.name!r}: end the chain with .sink(…)")
        self._check_times()
        return Specification(self.name, tuple(step.specification() for step in self.steps))

    def _check_times(self) -> None:
        """Windows over rows without event times would never close; told at the line that asks for one."""
        timeless: dict[int, str] = {}
        for step in self.steps:
            if step.kind == "source" and step.function is no_time:
                timeless[step.index] = step.name
            for before in step.inputs:
                if before in timeless:
                    timeless[step.index] = timeless[before]
            if step.kind in _BY_TIME and step.index in timeless:
                source = timeless[step.index]
                raise step.where.error(
                    f"{step.name!r} goes by event time, and the rows of source {source!r} have none: give it event_time=…"
                )

    @property
    def local_only(self) -> list[str]:
        """Names of the sources and sinks whose data are objects of this process:

        Such a topology cannot be submitted.
        """
        return [step.name for step in self.steps if step.connector is not None and step.connector.is_local]


def _before_all(row: Any) -> int:
    return BEFORE_ALL_MS


def _clock(
    clock: Clock, idle_timeout: timedelta | None, max_ahead: timedelta | None, where: CallSite
) -> dict[str, Any]:
    """What `EventClock` needs beyond the tolerance; only what differs from the usual."""
    if clock not in get_args(Clock):
        raise where.error(f"a source's clock is 'events' or 'wall', not {clock!r}")
    given = {
        "clock": None if clock == "events" else clock,
        "idle_timeout_ms": span_ms("idle_timeout", idle_timeout, where),
        "max_ahead_ms": span_ms("max_ahead", max_ahead, where),
    }
    return {name: value for name, value in given.items() if value}


def _clock_options(given: dict[str, Any]) -> Options:
    return tuple((name, str(value)) for name, value in given.items())


def _is_name(name: str) -> bool:
    return all(c in _NAME_CHARACTERS for c in name) and name[0].isalnum()


def _source_connector(name: str, connector: object, where: CallSite) -> Connector:
    if isinstance(connector, Connector):
        return connector
    if callable(connector) and not isinstance(connector, type):
        return records_source(connector)
    if isinstance(connector, Sequence) and not isinstance(connector, str | bytes):
        return records_source(connector)
    hint = f"; did you mean csv({connector!r})?" if isinstance(connector, str) else ""
    raise where.error(f"source {name!r} needs a connector, a list of rows or a callable, not {connector!r}{hint}")


def _overload(name: str, given: str | Overload | None, connector: Connector, where: CallSite) -> Overload:
    """The policy of a source: as the builder says, else as its connector does, else to block."""
    try:
        if given is None:
            return overload_of(connector.options) or Overload()
        return given if isinstance(given, Overload) else Overload(given)
    except ConfigurationError as error:
        raise where.error(f"source {name!r}: {error}") from None


def _type_of_first(connector: Connector) -> Any:
    """The type of a list's first row; the last resort for tests that hand in a list."""
    if connector.kind == "list" and len(connector.payload):
        return type(connector.payload[0])
    return None
