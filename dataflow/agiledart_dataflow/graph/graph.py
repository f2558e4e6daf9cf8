"""`Graph`: the steps of a topology under construction. `Rows` and `KeyedRows`: the output of one of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from agiledart_dataflow.data.keying import Keying
from agiledart_dataflow.event_time.event_times import no_time
from agiledart_dataflow.plan.losses import IF_LOST, WAIT
from agiledart_dataflow.plan.paths import AUTO, Paths, paths_from, written
from agiledart_dataflow.plan.placement_rules import with_slo
from agiledart_dataflow.plan.specification import PATHS, Options, Specification, StepSpecification
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.user_code.callsite import CallSite, call_site
from agiledart_kernel.instants import milliseconds
from agiledart_kernel.limits import MAX_APPLICATION_NAME

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")

MAX_STEPS = 1_024
"""Steps of one topology; a larger graph is a mistake in a loop."""


class Graph:
    """Steps, each of which takes the rows of earlier ones.

    Args:
        name: name of the application.

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
        self.paths: Paths = (AUTO,)
        self.slo_ms: float | None = None
        self.if_lost: Mapping[str, str] = {}  # by kind of stage: the policy when its node or state is lost
        # By step: the paths of its rows, where they differ from the topology's.
        self.paths_behind: dict[int, Paths] = {}

    def add(
        self, name: str, kind: str, inputs: tuple[int, ...], row_type: Any, *, options: Options = (), **parts: Any
    ) -> "Rows":
        """Add a step and return its output; `parts` are further attributes of `Step`."""
        where = call_site()
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
            raise where.error(f"more than {MAX_STEPS} steps: does a loop build them?")
        step_options = tuple(sorted(options))
        step = Step(len(self.steps), name, kind, inputs, row_type, where, options=step_options, **parts)
        step.specification()  # report a type that cannot travel here, at the line that introduced it
        self.steps.append(step)
        return Rows(self, step)

    def specification(self) -> Specification:
        """Return the graph as data. Raises `TopologyError` for a graph without a source or with unused rows."""
        if not any(step.source is not None for step in self.steps):
            raise self.where.error(f"{self.name} has no source: begin with topology.source(…)")
        read = [before for step in self.steps for before in step.inputs]
        for step in self.steps:
            if step.traits.stage != "sink" and step.index not in read:
                raise step.where.error(f"no step takes the rows of {step.name!r}: end the chain with .sink(…)")
        self._check_times()
        return Specification(self.name, tuple(self._as_written(step.specification()) for step in self.steps))

    def _as_written(self, step: StepSpecification) -> StepSpecification:
        """Return the step with the loss policy of all steps of its kind, and a sink with the topology's service level."""
        if self.slo_ms is not None and step.traits.stage == "sink":
            step = msgspec.structs.replace(step, options=with_slo(step.options, self.slo_ms))
        if_lost = self.if_lost.get(step.traits.stage, WAIT)
        if if_lost == WAIT or (step.traits.stage == "operator" and not step.traits.has_state):
            return self._with_paths(step)
        options = tuple(sorted((*step.options, (IF_LOST, if_lost))))
        return self._with_paths(msgspec.structs.replace(step, options=options))

    def _with_paths(self, step: StepSpecification) -> StepSpecification:
        """Return the step with the paths that its rows may take, where these are not `auto`."""
        paths = self.paths_behind.get(step.index, self.paths)
        if paths == (AUTO,) or step.traits.stage == "sink":
            return step
        return msgspec.structs.replace(step, options=tuple(sorted((*step.options, (PATHS, written(paths))))))

    def paths_given(self, value: str | Sequence[str], where: CallSite) -> Paths:
        """Parse the user's `paths`. Raises `TopologyError`."""
        try:
            return paths_from(value)
        except ValueError as error:
            raise where.error(str(error)) from None

    def _check_times(self) -> None:
        """Reject windows over rows without event times, at the line of the window: they would never close."""
        timeless: dict[int, str] = {}
        for step in self.steps:
            if step.is_at_source:
                self._check_alone(step)
            if step.source is not None and step.function is no_time:
                timeless[step.index] = step.name
                if "clock" in step.source.clock or "idle_timeout_ms" in step.source.clock:
                    option = "clock" if "clock" in step.source.clock else "idle_timeout"
                    raise step.where.error(
                        f"source {step.name!r} has {option}=, and its rows have no event times that could pass by a clock:"
                        " give it event_time=…, or leave it out"
                    )
            for before in step.inputs:
                if before in timeless:
                    timeless[step.index] = timeless[before]
            if step.traits.by_event_time and step.index in timeless:
                source = timeless[step.index]
                raise step.where.error(
                    f"{step.name!r} uses event time, and the rows of source {source!r} have none: give it event_time=…"
                )

    def _check_alone(self, step: Step) -> None:
        """Reject another reader of the rows that enter a step at the source: they have no times yet."""
        (before,) = step.inputs
        for other in self.steps:
            if before in other.inputs and other is not step and not other.is_side:
                raise other.where.error(
                    f"{other.name!r} reads the rows of {self.steps[before].name!r}, which have no times before"
                    f" {step.name!r}: let it read the rows of the step with event_time="
                )


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that leave a step."""

    graph: Graph
    step: Step

    @property
    def type(self) -> Any:
        """Return the type of the rows."""
        return self.step.row_type

    def add(self, name: str, kind: str, row_type: Any, *others: "Rows", **parts: Any) -> "Rows":
        """Return the rows of a new step that takes these, and others beside them."""
        inputs = tuple(rows.step.index for rows in (self, *others))
        return self.graph.add(name, kind, inputs, row_type, **parts)


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows that leave a step, with a key."""

    rows: Rows
    keying: Keying

    @property
    def type(self) -> Any:
        """Return the type of the rows."""
        return self.rows.type

    @property
    def key_of(self) -> Callable[[Any], Any]:
        """Return the function row → key."""
        return self.keying.function

    @property
    def key_type(self) -> Any:
        """Return the type of the key."""
        return self.keying.key_type

    def add(self, name: str, kind: str, row_type: Any, *others: Rows, key_type: Any = None, **parts: Any) -> Rows:
        """Return the rows of a new step that takes these by key; `key_type` is the type that the step's own code declares."""
        keying = self.keying if key_type is None else Keying(self.key_of, key_type)
        return self.rows.add(name, kind, row_type, *others, keying=keying, function=self.key_of, **parts)


def _is_name(name: str) -> bool:
    return all(c in _NAME_CHARACTERS for c in name) and name[0].isalnum()


def needs_name(name: object, verb: str, example: str) -> None:
    """Raise `TopologyError` where a step with state has no name."""
    if not isinstance(name, str):
        raise call_site().error(
            f"{verb}() keeps state and needs a name, so that its state is found again after you edit the code:"
            f'  .{verb}("{example}", …)'
        )


def span_ms(what: str, span: timedelta | None, *, least: int | None = 1) -> int:
    """Return a duration in whole milliseconds; 0 for None. Raises `TopologyError` below `least` or for a broken number."""
    if span is None:
        return 0
    if not isinstance(span, timedelta):
        raise call_site().error(f"{what} is a timedelta, not {span!r}")
    length = milliseconds(span)
    if timedelta(milliseconds=length) != span or (least is not None and length < least):
        raise call_site().error(
            f"{what} must be a whole number of milliseconds{' above zero' if least == 1 else ''}, not {span}"
        )
    return length
