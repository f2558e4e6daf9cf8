"""Causes of waiting: measured figures of an application → what waits, for what, for how long, and what to do. Pure; a table.

Each rule of `RULES` reads figures that nodes report and makes rows of one kind of cause. An instance that is blocked by a receiver
is no cause itself: the chain of blocked receivers is followed to its end, and the instances on the way are named in `blocks`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from agiledart_node.records.application import DEPLOYING, MINORITY
from agiledart_node.wire.application_responses import StageRow, WaitingRow
from agiledart_node.wire.awaited_input_row import awaited_input_of
from agiledart_node.wire.recovery_responses import EpochRow, RecoveryRow

LEAST_MS: Final = 3_000
"""States that have lasted for less are no causes: every stream waits for moments."""

LATE_INTERVALS: Final = 3
"""A checkpoint is late when so many intervals have passed since the last commit, and at least `LATE_SECONDS`."""

LATE_SECONDS: Final = 10.0

MAX_ROWS: Final = 32
"""Most causes that are reported."""

_FULL_DISK: Final = ("no space left", "disk quota", "file too large")

Copy = tuple[int, int]
"""(stage, index) of an instance."""


@dataclass(frozen=True)
class WaitingFacts:
    """Figures of an application at one moment.

    Attributes:
        name, state, reason: of the application's record.
        stages: as in `status`, each instance with the figures of its last report.
        edges: (stage, stage it feeds), by index in `stages`.
        recovery, epoch: of its coordinator; None where there is none.
        silent_nodes: hosting nodes that do not answer.
    """

    name: str
    state: str
    reason: str
    stages: Sequence[StageRow]
    edges: Sequence[tuple[int, int]]
    recovery: RecoveryRow | None = None
    epoch: EpochRow | None = None
    silent_nodes: Sequence[str] = ()

    @cached_property
    def instances(self) -> dict[Copy, Mapping[str, Any]]:
        """All instances with their figures."""
        return {
            (number, instance["index"]): instance
            for number, stage in enumerate(self.stages)
            for instance in stage.instances
        }

    def where(self, copy: Copy) -> str:
        """Return the stage and node of an instance as text."""
        return f"{self.stages[copy[0]].name} on {self.instances[copy].get('node', '?')}"

    def row(self, cause: str, copy: Copy, text: str, advice: str, ms: object = None) -> WaitingRow:
        """Return a row about an instance. `ms`: for how long it has waited."""
        seconds = ms / 1000 if isinstance(ms, int | float) else None
        node = str(self.instances[copy].get("node", ""))
        return WaitingRow(cause, text, advice, self.stages[copy[0]].name, copy[1], node, seconds)


def waiting_causes(facts: WaitingFacts) -> list[WaitingRow]:
    """Return why an application does not move as fast as it could, the gravest cause first; empty: nothing waits."""
    return _with_blocked(facts, [row for rule in RULES for row in rule(facts)])[:MAX_ROWS]


# ---- causes of a whole application


def _no_capacity(facts: WaitingFacts) -> Iterator[WaitingRow]:
    if facts.state == DEPLOYING and facts.reason:
        advice = "stop another application, add a node, or raise the setting capacity"
        yield WaitingRow("capacity", facts.reason, advice)
    recovery = facts.recovery
    if recovery is not None and recovery.phase == "waiting" and not recovery.waits_for:
        text = f"{facts.name} waits for free capacity to continue from checkpoint {recovery.from_epoch}"
        yield WaitingRow(
            "capacity", text, "stop another application, add a node, or raise capacity", seconds=recovery.seconds
        )


def _missing_nodes(facts: WaitingFacts) -> Iterator[WaitingRow]:
    recovery = facts.recovery
    if recovery is not None and recovery.phase in ("waiting", MINORITY) and recovery.waits_for:
        names = ", ".join(recovery.waits_for)
        what = "commits nothing without" if recovery.phase == MINORITY else "waits for"
        advice = f"start the agents of {names} again, or mend the network to them"
        if recovery.remedy:
            advice += f"; if they are lost for good: {recovery.remedy}"
        yield WaitingRow("node", f"{facts.name} {what} {names}: {recovery.reason}", advice, seconds=recovery.seconds)
    for node in facts.silent_nodes:
        yield WaitingRow("node", f"{node} does not answer", f"see whether its agent runs: agiledart doctor on {node}")


def _late_checkpoint(facts: WaitingFacts) -> Iterator[WaitingRow]:
    epoch = facts.epoch
    if epoch is None or facts.recovery is not None or epoch.age_s is None or not epoch.interval_s:
        return
    if epoch.age_s > max(LATE_INTERVALS * epoch.interval_s, LATE_SECONDS):
        text = f"no checkpoint has been committed since number {epoch.committed}"
        advice = "results go on; a failure now would repeat the rows since then"
        yield WaitingRow("checkpoint", text, advice, seconds=epoch.age_s)


# ---- causes at an instance


def _pending_calls(facts: WaitingFacts) -> Iterator[WaitingRow]:
    names = [stage.name.split("+") for stage in facts.stages]
    for copy, figures in facts.instances.items():
        step = figures.get("user_call_step")
        if step not in names[copy[0]] and any(step in steps for steps in names):
            continue  # it is in another stage of the same process
        if isinstance(ms := figures.get("user_call_ms"), int) and ms >= LEAST_MS:
            place = figures.get("user_call") or ""
            text = f"{facts.where(copy)}: user code has not returned{f': {place}' if place else ''}"
            advice = "give the call a timeout of its own; after stuck_limit its process is stopped"
            yield facts.row("user call", copy, text, advice, ms)


def _lost_links(facts: WaitingFacts) -> Iterator[WaitingRow]:
    for copy, figures in facts.instances.items():
        if peers := figures.get("waits_for"):
            advice = f"see the network between the nodes: agiledart explain route {facts.name}"
            yield facts.row("link", copy, f"{facts.where(copy)} waits for {peers}", advice)


def _unsaved(facts: WaitingFacts) -> Iterator[WaitingRow]:
    for copy, figures in facts.instances.items():
        if reason := figures.get("unsaved"):
            is_full = any(text in str(reason) for text in _FULL_DISK)
            advice = (
                "free space on that disk: rows go on, and the next checkpoint tries again"
                if is_full
                else f"see agiledart logs {facts.name}; the next checkpoint tries again"
            )
            text = f"{facts.where(copy)} cannot be saved: {reason}"
            yield facts.row("disk" if is_full else "snapshot", copy, text, advice)


def _outside(facts: WaitingFacts) -> Iterator[WaitingRow]:
    for copy, figures in facts.instances.items():
        if status := figures.get("connection_status"):
            is_disk = any(text in str(status) for text in _FULL_DISK)
            advice = (
                "free space on that disk"
                if is_disk
                else "see whether that system runs and can be reached; rows go on when it is back"
            )
            yield facts.row("disk" if is_disk else "outside", copy, f"{facts.where(copy)}: {status}", advice)


def _slow_sinks(facts: WaitingFacts) -> Iterator[WaitingRow]:
    for copy, figures in facts.instances.items():
        ms = figures.get("sink_full_ms")
        if isinstance(ms, int) and ms >= LEAST_MS and not figures.get("connection_status"):
            text = f"{facts.where(copy)} takes rows more slowly than they come"
            advice = "the system behind it is the limit: make it faster, or write larger batches (batch=)"
            yield facts.row("slow sink", copy, text, advice, ms)


def _silent_inputs(facts: WaitingFacts) -> Iterator[WaitingRow]:
    """Make a row for each silent input that holds back others, whether rows wait for it or windows stay open for it."""
    named: dict[str, None] = {}
    for copy, figures in facts.instances.items():
        awaited = awaited_input_of(dict(figures))
        if awaited is None or awaited.silent_ms < LEAST_MS or all(source in named for source in awaited.sources):
            continue
        named |= dict.fromkeys(awaited.sources)
        held = ", ".join(awaited.held) or facts.stages[copy[0]].name
        yield _silent_row(facts, copy[0], held, awaited.sources, f"{awaited.rows:,} rows wait", awaited.silent_ms)
    sources = _sources_by_stage(facts)
    for number, stage in enumerate(facts.stages):
        entering = [sources[origin] for origin, target in facts.edges if target == number]
        if len(entering) < 2 or _is_finished(stage):
            continue
        for silent in dict.fromkeys(source for group in entering for source in group):
            name = facts.stages[silent].name.partition("+")[0]
            others = [other for group in entering if silent not in group for other in group]
            ms = _silent_ms(facts.stages[silent])
            if name not in named and ms is not None and ms >= LEAST_MS and _is_behind(facts, silent, others):
                named[name] = None
                yield _silent_row(facts, number, stage.name, [name], "", ms)


def _is_behind(facts: WaitingFacts, silent: int, others: Sequence[int]) -> bool:
    """Report whether the event time of a source is less than that of another one, which then waits for it."""
    at = _event_time(facts.stages[silent])
    return any(_event_time(facts.stages[other]) > at for other in others)


def _silent_row(facts: WaitingFacts, number: int, held: str, sources: Sequence[str], rows: str, ms: int) -> WaitingRow:
    epoch, names = facts.epoch, ", ".join(sources)
    is_saved = epoch is not None and (epoch.age_s or 0.0) <= max(LATE_INTERVALS * epoch.interval_s, LATE_SECONDS)
    details = [detail for detail in (rows, "saved meanwhile" if is_saved else "") if detail]
    more = f" ({', '.join(details)})" if details else ""
    text = f"{held} waits for {names}{more}, silent"
    advice = f"idle_timeout= of {names} lets {held} go on; rows that come afterwards may be late"
    return WaitingRow("silent input", text, advice, facts.stages[number].name, 0, "", ms / 1000)


# ---- blocked by a receiver


def _with_blocked(facts: WaitingFacts, rows: list[WaitingRow]) -> list[WaitingRow]:
    """Add what waits behind each cause, and a row for each receiver that is full without another cause."""
    caused = {(row.stage, row.index): position for position, row in enumerate(rows) if row.stage and row.node}
    blocks: dict[int, list[str]] = {}
    folded = {
        position: behind
        for position, row in enumerate(rows)
        if (behind := _call_behind(facts, row, caused, rows)) is not None
    }
    for position, behind in folded.items():
        blocks.setdefault(behind, []).append(rows[position].stage)
    full: dict[Copy, tuple[list[str], int]] = {}
    for copy, figures in facts.instances.items():
        ms = figures.get("blocked_ms")
        if not isinstance(ms, int) or ms < LEAST_MS:
            continue
        end = _end_of_chain(facts, copy, caused)
        name = facts.stages[copy[0]].name
        place = caused.get((facts.stages[end[0]].name, end[1]))
        if place is not None:
            blocks.setdefault(folded.get(place, place), []).append(name)
        elif end != copy:
            names, longest = full.get(end, ([], 0))
            full[end] = [*names, name], max(longest, ms)
    explained = [
        msgspec.structs.replace(row, blocks=sorted({*blocks.get(position, ())} - {row.stage}))
        for position, row in enumerate(rows)
        if position not in folded
    ]
    return explained + [_full_receiver(facts, end, names, ms) for end, (names, ms) in full.items()]


def _call_behind(
    facts: WaitingFacts, row: WaitingRow, caused: Mapping[tuple[str, int], int], rows: Sequence[WaitingRow]
) -> int | None:
    """Return the position of the user code because of which a link is silent: its process does not answer, the network does."""
    if row.cause != "link":
        return None
    number = next(number for number, stage in enumerate(facts.stages) if stage.name == row.stage)
    peers = str(facts.instances[number, row.index].get("waits_for"))
    for origin, target in facts.edges:
        for instance in facts.stages[target].instances if origin == number else ():
            position = caused.get((facts.stages[target].name, instance["index"]))
            if position is not None and rows[position].cause == "user call" and f"{rows[position].node}:" in peers:
                return position
    return None


def _end_of_chain(facts: WaitingFacts, copy: Copy, caused: Mapping[tuple[str, int], int]) -> Copy:
    """Return the instance that blocks this one: the last of the chain of blocked receivers, or the first with a cause."""
    passed = [copy]
    while (facts.stages[copy[0]].name, copy[1]) not in caused:
        receivers = [receiver for receiver in receivers_of(facts.instances[copy]) if receiver in facts.instances]
        following = next((receiver for receiver in receivers if receiver not in passed), None)
        if following is None:
            return copy
        passed.append(copy := following)
    return copy


def receivers_of(figures: Mapping[str, Any]) -> list[Copy]:
    """Return the receivers that give an instance no credit, as its report names them; [] when they cannot be read."""
    try:
        return msgspec.convert(figures.get("blocked_by", []), list[Copy])
    except msgspec.ValidationError:
        return []


def _full_receiver(facts: WaitingFacts, end: Copy, names: Sequence[str], ms: int) -> WaitingRow:
    stage = facts.stages[end[0]]
    waiting = ", ".join(sorted({*names} - {stage.name}))
    text = f"{facts.where(end)} is slower than its input{f'; {waiting} waits for it' if waiting else ''}"
    first = stage.name.partition("+")[0]
    advice = (
        f"more instances help: agiledart explain scaling {facts.name} {first}"
        if stage.kind == "operator"
        else f"see agiledart explain scaling {facts.name}"
    )
    row = facts.row("full receiver", end, text, advice, ms)
    return msgspec.structs.replace(row, blocks=sorted({*names} - {stage.name}))


# ---- figures of stages


def _sources_by_stage(facts: WaitingFacts) -> list[frozenset[int]]:
    """Return the sources that each stage gets rows of, itself for a source."""
    feeding = [
        frozenset([number]) if stage.kind == "source" else frozenset() for number, stage in enumerate(facts.stages)
    ]
    for _ in facts.stages:
        for origin, target in facts.edges:
            feeding[target] |= feeding[origin]
    return feeding


def _silent_ms(stage: StageRow) -> int | None:
    """Return for how long a source has brought nothing; None while it brings rows, or when it has ended."""
    silences = [instance.get("silent_ms") for instance in stage.instances if not instance.get("finished")]
    known = [ms for ms in silences if isinstance(ms, int)]
    return min(known) if known and len(known) == len(silences) else None


def _event_time(stage: StageRow) -> float:
    """Return the event time up to which a source is complete; before all times when it has read nothing."""
    times = [instance.get("event_time") for instance in stage.instances]
    return min(
        (float(time) if isinstance(time, int | float) else float("-inf") for time in times), default=float("-inf")
    )


def _is_finished(stage: StageRow) -> bool:
    return all(instance.get("finished") for instance in stage.instances)


RULES: Final[tuple[Callable[[WaitingFacts], Iterable[WaitingRow]], ...]] = (
    _missing_nodes,
    _no_capacity,
    _pending_calls,
    _unsaved,
    _outside,
    _lost_links,
    _slow_sinks,
    _silent_inputs,
    _late_checkpoint,
)
"""One rule a kind of cause, the gravest first; receivers that are only full come last."""
