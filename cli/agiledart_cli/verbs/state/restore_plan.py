"""Match of a checkpoint with a topology by the names of steps; pure functions.

| the checkpoint has | the topology has | |
|---|---|---|
| a source, or a step with state | the same step | taken |
| | a step of this name with other keys, of another kind or meaning | refused; with `--drop` it starts empty |
| | no such step, or one without state | refused; with `--drop` it is omitted |
| nothing | a source, or a step with state | it starts empty, and the command reports it |
| rows waiting to be merged | the same stages and numbers of instances | taken |
| | others | refused |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import msgspec

from agiledart_agent.checkpoints.checkpoint_file import ArchivedSnapshot
from agiledart_dataflow.plan.deployment import STEPS, WHOLE
from agiledart_dataflow.plan.specification import PATHS, Specification, StepSpecification
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_kernel.errors import ConfigurationError
from agiledart_node.wire.checkpoint_commands import ImportedSnapshot

HARMLESS: Final = (PATHS, "keep", "scale", "if_lost", "on_error", "time_to_live_ms")
"""Options of a step that do not change the meaning of its state."""


@dataclass(frozen=True)
class RestorePlan:
    """How a run starts from a checkpoint.

    Args:
        kind: `whole` or `steps`.
        taken: names of restored steps, each with a text about its state.
        dropped: names of steps of the checkpoint that are omitted; `empty`: steps of the topology that start empty.
        snapshots: the restored snapshots, by stages of the topology.
        sinks: names of the sinks that go on with their output.
    """

    kind: str
    taken: tuple[tuple[str, str], ...]
    dropped: tuple[str, ...]
    empty: tuple[str, ...]
    snapshots: tuple[ImportedSnapshot, ...]
    sinks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PlannedTopology:
    """A topology's specification and its plan of stages."""

    specification: Specification
    plan: StagePlan

    def stateful_steps(self) -> dict[str, tuple[Stage, StepSpecification]]:
        """Return sources (which have a position) and stages with state, by the name of their step."""
        heads = ((stage, self.specification.steps[stage.steps[0]]) for stage in self.plan.stages)
        return {step.name: (stage, step) for stage, step in heads if stage.kind == "source" or stage.has_state}

    @property
    def shape(self) -> object:
        """The properties that must be equal so that waiting rows keep their place."""
        stages = [
            (stage.name, stage.kind, stage.parallelism, stage.generation, stage.owners, stage.keyed, stage.has_state)
            for stage in self.plan.stages
        ]
        edges = [
            (edge.source, edge.target, edge.partitioning, edge.row_type, edge.carries, edge.side)
            for edge in self.plan.edges
        ]
        return stages, edges


def plan_restore(
    before: PlannedTopology,
    after: PlannedTopology,
    snapshots: Sequence[ArchivedSnapshot],
    waiting: Mapping[str, int],
    drops: Sequence[str],
) -> RestorePlan:
    """Return what a topology restores from a checkpoint.

    Args:
        snapshots: of the checkpoint.
        waiting: number of rows waiting to be merged, by the name of their stage.
        drops: steps whose state is omitted.

    Raises:
        ConfigurationError: it cannot be restored; the message names the step and what helps.
    """
    had, has = before.stateful_steps(), after.stateful_steps()
    _refuse_unknown(drops, had)
    faults = [fault for name in had if name not in drops and (fault := _fault(name, had, after, has))]
    if faults:
        raise ConfigurationError("\n".join(faults))
    is_same = before.shape == after.shape and not drops
    rows = {name: count for name, count in waiting.items() if count}
    if rows and not is_same:
        where = ", ".join(f"{count:,} before {name}" for name, count in rows.items())
        raise ConfigurationError(
            f"The checkpoint has rows that wait to be merged ({where}); they fit its own topology only: restore it with"
            " the same steps and numbers of instances (--parallelism)."
        )
    restored = [name for name in had if name not in drops]
    return RestorePlan(
        WHOLE if is_same else STEPS,
        tuple((name, _restored_text(*had[name], has[name][0], snapshots)) for name in restored),
        tuple(name for name in had if name in drops),
        tuple(name for name in has if name not in restored),
        _all_of(snapshots) if is_same else _of_steps(_targets(restored, before, after), snapshots),
        _sinks(before) & _sinks(after),
    )


def _sinks(topology: PlannedTopology) -> frozenset[str]:
    return frozenset(stage.name for stage in topology.plan.stages if stage.kind == "sink")


def _targets(restored: Sequence[str], before: PlannedTopology, after: PlannedTopology) -> dict[int, int]:
    """Return stage of the checkpoint → stage of the topology, for restored steps and for sinks, whose files are checked."""
    had, has = before.stateful_steps(), after.stateful_steps()
    sinks = [
        {stage.name: stage.index for stage in graph.plan.stages if stage.kind == "sink"} for graph in (before, after)
    ]
    same = {index: sinks[1][name] for name, index in sinks[0].items() if name in sinks[1]}
    return same | {had[name][0].index: has[name][0].index for name in restored}


def _refuse_unknown(drops: Sequence[str], had: Mapping[str, object]) -> None:
    for name in drops:
        if name not in had:
            near = get_close_matches(name, list(had), n=1)
            guess = f" Did you mean {near[0]}?" if near else ""
            raise ConfigurationError(
                f"--drop {name}: the checkpoint has no state of this step.{guess} It has: {', '.join(had)}"
            )


def _fault(
    name: str,
    had: Mapping[str, tuple[Stage, StepSpecification]],
    after: PlannedTopology,
    has: Mapping[str, tuple[Stage, StepSpecification]],
) -> str:
    stage, step = had[name]
    subject = "the position of source" if stage.kind == "source" else "the state of"
    drop = f"--drop {name}"
    if name not in has:
        is_there = any(step.name == name for step in after.specification.steps)
        why = "which has no state now" if is_there else "and the topology has no such step"
        return f"The checkpoint has {subject} {name}, {why}: rename a step, or omit it with {drop}."
    now_stage, now = has[name]
    if (stage.kind, step.kind) != (now_stage.kind, now.kind):
        return f"{name} was {_kind(step)} when it was saved, and is {_kind(now)} now: start it empty with {drop}."
    if step.key_type != now.key_type:
        return f"{name} had keys of type {step.key_type}, and now of {now.key_type}: start it empty with {drop}."
    connectors = [version.connector.kind if version.connector is not None else "" for version in (step, now)]
    if stage.kind == "source" and connectors[0] != connectors[1]:
        return f"{name} read from {connectors[0]}: when it was saved, and now from {connectors[1]}: start it empty with {drop}."
    if stage.kind != "source" and (changed := _changed(step, now)):
        return f"{name} has changed since it was saved ({changed}): start it empty with {drop}."
    return ""


def _kind(step: StepSpecification) -> str:
    return f"of the kind {step.kind}"


def _changed(before: StepSpecification, after: StepSpecification) -> str:
    then, now = dict(before.options), dict(after.options)
    names = [name for name in dict.fromkeys((*then, *now)) if name not in HARMLESS and then.get(name) != now.get(name)]
    return "; ".join(f"{name}: {then.get(name, 'none')}, now {now.get(name, 'none')}" for name in names)


def _restored_text(stage: Stage, step: StepSpecification, now: Stage, snapshots: Sequence[ArchivedSnapshot]) -> str:
    size = sum(snapshot.length for snapshot in snapshots if snapshot.stage == stage.index)
    if stage.kind == "source":
        return "continues reading"
    spread = (
        f", on {now.parallelism} instances instead of {stage.parallelism}"
        if now.parallelism != stage.parallelism
        else ""
    )
    return f"{size:,} bytes{spread}"


def _all_of(snapshots: Sequence[ArchivedSnapshot]) -> tuple[ImportedSnapshot, ...]:
    return tuple(ImportedSnapshot(saved.stage, saved.index, saved.digest, saved.length) for saved in snapshots)


def _of_steps(targets: Mapping[int, int], snapshots: Sequence[ArchivedSnapshot]) -> tuple[ImportedSnapshot, ...]:
    return tuple(
        ImportedSnapshot(targets[saved.stage], saved.index, saved.digest, saved.length)
        for saved in snapshots
        if saved.stage in targets
    )


def graph_of(specification: bytes, plan: bytes, where: str) -> PlannedTopology:
    """Decode the topology of a checkpoint. Raises ConfigurationError."""
    try:
        return PlannedTopology(
            msgspec.msgpack.decode(specification, type=Specification), msgspec.msgpack.decode(plan, type=StagePlan)
        )
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            f"{where}: its topology cannot be read by this version of agiledart ({error}). Use the version that wrote it."
        ) from None
