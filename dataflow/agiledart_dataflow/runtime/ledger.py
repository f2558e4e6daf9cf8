"""Where every record went. `audit` names each place where the counts of an application do not add up; `summarise` adds them up.

    a source    lines = records + late + malformed + shed + spooled + waiting
    a step      in = out + filtered + skipped + dead letters + late, where one row makes at most one
    with state  in = taken + filtered + skipped + dead letters + late; what is taken comes out of running values at once, of
                tumbling and hopping windows by the end, and leaves nothing behind there
    a stage     what came in and does not wait = in of its first step; out of a step = in of the next; out of the last = sent
    a channel   sent = received, at the end; channels of terms that have ended: so over each edge, all together

The first three hold at every moment for the figures of one instance; those of two instances belong together only when nothing is
under way any more. A loss, a repetition or a miscount anywhere between two counters breaks one of them.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import msgspec

from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.counts.statistics import DuplicatesBySink, InstanceStatistics, SourceCounts, StepCounts, Summary
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stage_plan import ERRORS, StagePlan, generation_of
from agiledart_dataflow.runtime.outbox import GONE


def audit(
    specification: Specification, statistics: Iterable[InstanceStatistics], plan: StagePlan | None = None
) -> list[str]:
    """Every imbalance in words; empty when all records are accounted for.

    Args:
        statistics: of all instances that are known; channels are compared when all of them have finished.
        plan: all instances of it are here; without it channels with both ends known are judged, and outputs are not.
    """
    known = {step.name: step for step in specification.steps}
    instances = list(statistics)
    if plan is not None:
        here = {(one.stage, one.index) for one in instances}
        instances = [_by_generations(plan, here, one) for one in instances]
    found: list[str] = []
    for one in instances:
        found += _of_instance(known, one)
        if plan is not None:
            found += _of_outputs(plan, one)
    if instances and all(one.finished for one in instances):
        found += _of_channels(instances, is_all=plan is not None)
        if plan is not None:
            found += _of_gone(instances, plan) + _of_sums(known, instances)
    return found


def _by_generations(plan: StagePlan, here: Collection[tuple[int, int]], one: InstanceStatistics) -> InstanceStatistics:
    """Figures in which instances that are not here any more are `GONE`, also those of a sender that had ended before they went."""
    stages = [edge.target for edge in plan.edges]
    sent = [(edge, to if (stages[edge], to) in here else GONE, rows) for edge, to, rows in one.sent]
    return msgspec.structs.replace(one, sent=sent)


def misses(one: InstanceStatistics) -> list[str]:
    """The imbalances within one instance that show without its topology: at its source, between its steps, at its inputs."""
    return _of_instance({}, one)


def _of_instance(known: dict[str, StepSpecification], one: InstanceStatistics) -> list[str]:
    found: list[str] = []
    if one.source is not None:
        (name,) = one.steps or ("source",)
        found += _of_source(name, one.source)
    names = list(one.steps)
    for name, counts in one.steps.items():
        if (
            name in known and generation_of(one.index) == 1
        ):  # else it may have taken over what others took in: `_of_sums`
            found += [f"{name} {one.index}: {text}" for text in _of_step(known[name], counts)]
            if one.finished and one.state_keys and known[name].panes:
                found.append(
                    f"{name} {one.index}: {one.state_keys} keys are left in windows after the end of the input"
                )
    for before, after in pairwise(names):
        put_out, took = one.steps[before].rows_out, one.steps[after].rows_in
        if put_out != took:
            found.append(f"{after} {one.index}: took {took} of the {put_out} rows that {before} put out")
    if one.source is None and names:
        came = sum(rows for _, _, rows in one.received) - one.queued_rows
        took = one.steps[names[0]].rows_in
        if came != took:
            found.append(f"{names[0]} {one.index}: took {took} of {came} rows that came and do not wait")
    return found


def _of_source(name: str, counts: SourceCounts) -> list[str]:
    parts = {
        "records": counts.records,
        "late": counts.late,
        "malformed": sum(counts.malformed.values()),
        "shed": sum(counts.shed.values()),
        "spooled": counts.spooled,
        "waiting": counts.waiting,
    }
    if counts.lines == sum(parts.values()):
        return []
    words = " + ".join(f"{number} {what}" for what, number in parts.items() if number)
    return [f"{name}: {counts.lines} lines, but {words or 'nothing'} is {sum(parts.values())}"]


def _of_step(step: StepSpecification, counts: StepCounts) -> list[str]:
    let_go = counts.dropped + counts.skipped + counts.dead_letters + counts.late
    accounted = counts.rows_out + let_go
    counting = step.traits.counting
    if step.makes_one_at_most and accounted != counts.rows_in:
        return [f"{counts.rows_in} rows in, {counts.rows_out} out and {let_go} let go"]
    if counting in ("takes", "each"):
        if counts.taken + let_go != counts.rows_in:
            return [f"{counts.rows_in} rows in, {counts.taken} taken and {let_go} let go"]
        if counting == "each" and counts.rows_out != counts.taken:
            return [f"{counts.rows_out} values out of {counts.taken} rows taken"]
        if step.panes and counts.rows_out + counts.failed > counts.taken * step.panes.most_at_once:
            return [f"{counts.rows_out} windows out of {counts.taken} rows taken"]
    elif counts.taken or counts.failed:
        return [f"{counts.taken} rows taken where nothing is kept"]
    if counting == "keeps" and counts.dropped:
        return [f"{counts.dropped} rows filtered where nothing filters"]
    if let_go > counts.rows_in:
        return [f"{let_go} rows let go of {counts.rows_in}"]
    return []


def _of_outputs(plan: StagePlan, one: InstanceStatistics) -> list[str]:
    """Did all that the last step put out leave, over each edge?"""
    if not one.steps:
        return []
    found: list[str] = []
    last, counts = list(one.steps.items())[-1]
    for edge in plan.outgoing(one.stage):
        sent = sum(rows for number, _, rows in one.sent if number == edge.index)
        step, _, tag = edge.side.rpartition("/")
        if edge.partitioning == "broadcast" and any(number == edge.index and to == GONE for number, to, _ in one.sent):
            continue  # there were more copies, or fewer
        if not edge.side:
            copies = len(plan.targets(edge.index, one.index)) if edge.partitioning == "broadcast" else 1
            expected = counts.rows_out * copies
        elif tag == ERRORS and step in one.steps:
            expected = one.steps[step].dead_letters if one.source is None else one.source.dead_letters
        else:
            continue
        if sent != expected:
            found.append(f"{last} {one.index}: sent {sent} of {expected} rows over edge {edge.index}")
    return found


def _of_channels(instances: Sequence[InstanceStatistics], *, is_all: bool) -> list[str]:
    """Did each channel bring what was put in? `is_all`: every instance is here, else only channels with both ends are judged."""
    sent = {(edge, one.index, target): rows for one in instances for edge, target, rows in one.sent if target != GONE}
    found: list[str] = []
    received: set[tuple[int, int, int]] = set()
    for one in instances:
        for edge, source, rows in one.received:
            if source == GONE:
                continue
            key = (edge, source, one.index)
            received.add(key)
            put_in = sent.get(key, 0 if is_all else rows)
            if put_in != rows:
                found.append(f"edge {edge} from instance {source} to {one.index}: {put_in} rows sent, {rows} received")
    for key, rows in sent.items():
        if is_all and key not in received and rows:
            edge, source, target = key
            found.append(f"edge {edge} from instance {source} to {target}: {rows} rows sent, and nobody took them")
    return found


def _of_sums(known: dict[str, StepSpecification], instances: Sequence[InstanceStatistics]) -> list[str]:
    """The figures of each step over all instances: who put a window out need not be who took its rows, when key groups moved."""
    sums: dict[str, StepCounts] = {}
    for one in instances:
        for name, counts in one.steps.items():
            sums.setdefault(name, StepCounts()).add(counts)
    return [
        f"{name}: {text}" for name, counts in sums.items() if name in known for text in _of_step(known[name], counts)
    ]


def _of_gone(instances: Sequence[InstanceStatistics], plan: StagePlan) -> list[str]:
    """Did the channels of terms that have ended bring what was put in? Whose rows waited then has changed, so only all together."""
    found: list[str] = []
    for edge in plan.edges:
        sent = sum(rows for one in instances for number, to, rows in one.sent if (number, to) == (edge.index, GONE))
        came = sum(rows for one in instances for number, by, rows in one.received if (number, by) == (edge.index, GONE))
        if (
            sent != came and edge.partitioning != "broadcast"
        ):  # of rows for all that waited there were as many copies as instances
            found.append(f"edge {edge.index}, before its stages changed: {sent} rows sent, {came} received")
    return found


def summarise(specification: Specification, statistics: Iterable[InstanceStatistics]) -> Summary:
    """Add up what all instances of an application counted."""
    steps = {step.name: StepCounts() for step in specification.steps}
    source = SourceCounts()
    malformed: dict[str, int] = {}
    shed: dict[str, int] = {}
    histograms: dict[str, LatencyHistogram] = {}
    sinks = {step.name for step in specification.sinks}
    duplicates = DuplicatesBySink()
    for one in statistics:
        for name, counts in one.steps.items():
            steps[name].add(counts)
            if one.duplicates is not None and name in sinks:
                duplicates.add(name, one.duplicates)
            if one.latency and name in sinks:
                histograms.setdefault(name, LatencyHistogram()).merge(LatencyHistogram.from_plain(one.latency))
        if one.source is not None:
            source.lines += one.source.lines
            source.late += one.source.late
            source.paced = source.paced or one.source.paced
            source.waiting += one.source.waiting
            source.spooled += one.source.spooled
            source.spooled_ever += one.source.spooled_ever
            for reason, count in one.source.shed.items():
                shed[reason] = shed.get(reason, 0) + count
            for reason, count in one.source.malformed.items():
                malformed[reason] = malformed.get(reason, 0) + count
    first_steps = [
        step
        for before in specification.sources
        for step in specification.consumers(before.index)
        if step.traits.is_stateless
    ]
    return Summary(
        records_in=source.lines,
        malformed=dict(sorted(malformed.items())),
        late=source.late,
        outliers=sum(steps[step.name].dropped for step in first_steps),
        results={step.name: steps[step.name].rows_in for step in specification.sinks},
        latency={name: histogram.summary() for name, histogram in sorted(histograms.items())},
        paced=source.paced,
        steps=steps,
        shed=dict(sorted(shed.items())),
        waiting=source.waiting,
        spooled=source.spooled,
        spooled_ever=source.spooled_ever,
        duplicated=dict(sorted(duplicates.rows.items())),
        duplicates_by_attempt=[(attempt, name, rows) for (attempt, name), rows in sorted(duplicates.attempts.items())],
        uncounted=sorted(duplicates.unknown),
    )
