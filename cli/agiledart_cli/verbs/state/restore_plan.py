"""What a topology can begin with of a checkpoint: steps by their names. Pure functions.

| the checkpoint has | the topology has | |
|---|---|---|
| a source, or a step with state | the same step | taken |
| | a step of this name with other keys, of another kind or meaning | refused; with `--drop` it begins empty |
| | none, or one that keeps nothing | refused; with `--drop` it is left out |
| nothing | a source, or a step with state | it begins empty, which is said |
| rows that wait to be merged | the same stages and numbers of instances | taken |
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
from agiledart_node.wire.commands import ImportedSnapshot

HARMLESS: Final = (PATHS, "keep", "scale", "if_lost", "on_error", "time_to_live_ms")
"""Options of a step that say nothing of what its state means."""


@dataclass(frozen=True)
class RestorePlan:
    """How a run begins.

    Args:
        kind: `whole` or `steps`.
        taken: names of steps, each with what it brings, in words.
        dropped: names of steps of the checkpoint that are left out; `empty`: of the topology, that begin with nothing.
        elements: those that are taken, by stages of the topology.
    """

    kind: str
    taken: tuple[tuple[str, str], ...]
    dropped: tuple[str, ...]
    empty: tuple[str, ...]
    snapshots: tuple[ImportedSnapshot, ...]


@dataclass(frozen=True)
class PlannedTopology:
    """A topology as data, and the stages into which it is cut."""

    specification: Specification
    plan: StagePlan

    def stateful_steps(self) -> dict[str, tuple[Stage, StepSpecification]]:
        """By the name of their step: sources, which have a position, and stages with state."""
        heads = ((stage, self.specification.steps[stage.steps[0]]) for stage in self.plan.stages)
        return {step.name: (stage, step) for stage, step in heads if stage.kind == "source" or stage.has_state}

    @property
    def shape(self) -> object:
        """What must be the same so that rows that wait keep their place."""
        stages = [
            (one.name, one.kind, one.parallelism, one.generation, one.owners, one.keyed, one.has_state)
            for one in self.plan.stages
        ]
        edges = [
            (one.source, one.target, one.partitioning, one.row_type, one.carries, one.side) for one in self.plan.edges
        ]
        return stages, edges


def plan_restore(
    before: PlannedTopology,
    after: PlannedTopology,
    snapshots: Sequence[ArchivedSnapshot],
    waiting: Mapping[str, int],
    drops: Sequence[str],
) -> RestorePlan:
    """What of a checkpoint a topology begins with.

    Args:
        elements: of the checkpoint.
        waiting: rows that wait to be merged, by the name of the stage that they wait for.
        drops: steps whose state is to be left out.

    Raises:
        ConfigurationError: it cannot; says of which step, and what would help.
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
            f"In the checkpoint rows wait to be merged ({where}), which have their place in its own topology only: restore it with"
            " the same steps and numbers of instances (--parallelism)."
        )
    kept = [name for name in had if name not in drops]
    return RestorePlan(
        WHOLE if is_same else STEPS,
        tuple((name, _restored_text(*had[name], has[name][0], snapshots)) for name in kept),
        tuple(name for name in had if name in drops),
        tuple(name for name in has if name not in kept),
        _all_of(snapshots) if is_same else _of_steps(_targets(kept, before, after), snapshots),
    )


def _targets(kept: Sequence[str], before: PlannedTopology, after: PlannedTopology) -> dict[int, int]:
    """Stage of the checkpoint → stage of the topology: of what is taken, and of sinks, whose files are looked at."""
    had, has = before.stateful_steps(), after.stateful_steps()
    sinks = [
        {stage.name: stage.index for stage in graph.plan.stages if stage.kind == "sink"} for graph in (before, after)
    ]
    same = {index: sinks[1][name] for name, index in sinks[0].items() if name in sinks[1]}
    return same | {had[name][0].index: has[name][0].index for name in kept}


def _refuse_unknown(drops: Sequence[str], had: Mapping[str, object]) -> None:
    for name in drops:
        if name not in had:
            near = get_close_matches(name, list(had), n=1)
            guess = f" Did you mean {near[0]}?" if near else ""
            raise ConfigurationError(
                f"--drop {name}: the checkpoint has no state of such a step.{guess} It has: {', '.join(had)}"
            )


def _fault(
    name: str,
    had: Mapping[str, tuple[Stage, StepSpecification]],
    after: PlannedTopology,
    has: Mapping[str, tuple[Stage, StepSpecification]],
) -> str:
    stage, step = had[name]
    what = "the position of source" if stage.kind == "source" else "the state of"
    drop = f"--drop {name}"
    if name not in has:
        is_there = any(one.name == name for one in after.specification.steps)
        why = "which keeps none now" if is_there else "and the topology has no such step"
        return f"The checkpoint has {what} {name}, {why}: name it so, or leave that out with {drop}."
    now_stage, now = has[name]
    if (stage.kind, step.kind) != (now_stage.kind, now.kind):
        return f"{name} was {_kind(step)} when it was saved, and is {_kind(now)} now: begin it anew with {drop}."
    if step.key_type != now.key_type:
        return f"{name} had keys of type {step.key_type}, and now of {now.key_type}: begin it anew with {drop}."
    connectors = [one.connector.kind if one.connector is not None else "" for one in (step, now)]
    if stage.kind == "source" and connectors[0] != connectors[1]:
        return f"{name} read from {connectors[0]}: when it was saved, and now from {connectors[1]}: begin it anew with {drop}."
    if stage.kind != "source" and (changed := _changed(step, now)):
        return f"{name} means something else than when it was saved ({changed}): begin it anew with {drop}."
    return ""


def _kind(step: StepSpecification) -> str:
    return f"of the kind {step.kind}"


def _changed(before: StepSpecification, after: StepSpecification) -> str:
    then, now = dict(before.options), dict(after.options)
    names = [name for name in dict.fromkeys((*then, *now)) if name not in HARMLESS and then.get(name) != now.get(name)]
    return "; ".join(f"{name}: {then.get(name, 'none')}, now {now.get(name, 'none')}" for name in names)


def _restored_text(stage: Stage, step: StepSpecification, now: Stage, snapshots: Sequence[ArchivedSnapshot]) -> str:
    size = sum(one.length for one in snapshots if one.stage == stage.index)
    if stage.kind == "source":
        return "reads on"
    spread = (
        f", on {now.parallelism} instances in place of {stage.parallelism}"
        if now.parallelism != stage.parallelism
        else ""
    )
    return f"{size:,} bytes{spread}"


def _all_of(snapshots: Sequence[ArchivedSnapshot]) -> tuple[ImportedSnapshot, ...]:
    return tuple(ImportedSnapshot(one.stage, one.index, one.digest, one.length) for one in snapshots)


def _of_steps(targets: Mapping[int, int], snapshots: Sequence[ArchivedSnapshot]) -> tuple[ImportedSnapshot, ...]:
    return tuple(
        ImportedSnapshot(targets[one.stage], one.index, one.digest, one.length)
        for one in snapshots
        if one.stage in targets
    )


def graph_of(specification: bytes, plan: bytes, where: str) -> PlannedTopology:
    """As a checkpoint has it. Raises ConfigurationError."""
    try:
        return PlannedTopology(
            msgspec.msgpack.decode(specification, type=Specification), msgspec.msgpack.decode(plan, type=StagePlan)
        )
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            f"{where}: its topology cannot be read by this version of agiledart ({error}). Take the one that made it."
        ) from None
