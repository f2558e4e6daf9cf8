"""Ledger of all records. `audit` names each place where an application's counts do not add up; `summarise` adds them up.

    a source    lines + rows that steps at the source made = records + late + malformed + shed + spooled + waiting
    a step      in = out + filtered + skipped + dead letters + late, where one row makes at most one
    a sink      in = written + rejected
    with state  in = taken + filtered + skipped + dead letters + late; rows taken come out of running values at once, of tumbling
                and hopping windows by the end, and none stay there
    a stage     rows received and not waiting = in of its first step; out of a step = in of the next; out of the last = sent
    a channel   sent = received, at the end; channels of ended generations: the same over each edge, all together

The first three hold at every moment for the figures of one instance. Those of two instances agree only when no rows are in flight
any more. A loss, a duplicate or a miscount anywhere between two counters breaks one of them.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import msgspec

from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.counts.service_compliance import of_sink
from agiledart_dataflow.counts.statistics import DuplicatesBySink, InstanceStatistics, SourceCounts, StepCounts, Summary
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stage_plan import ERRORS, StagePlan, generation_of
from agiledart_dataflow.runtime.outbox import GONE


def audit(
    specification: Specification, statistics: Iterable[InstanceStatistics], plan: StagePlan | None = None
) -> list[str]:
    """Return every imbalance as a text; empty when all records are accounted for.

    Args:
        statistics: of all instances that are known; channels are compared when all of them have finished.
        plan: all its instances are in `statistics`; without it only channels with both ends known are compared, and no outputs.
    """
    known = {step.name: step for step in specification.steps}
    instances = list(statistics)
    if plan is not None:
        known_instances = {(instance.stage, instance.index) for instance in instances}
        instances = [_by_generations(plan, known_instances, instance) for instance in instances]
    imbalances: list[str] = []
    for instance in instances:
        imbalances += _of_instance(known, instance)
        if plan is not None:
            imbalances += _of_outputs(plan, instance)
    if instances and all(instance.finished for instance in instances):
        imbalances += _of_channels(instances, is_all=plan is not None)
        if plan is not None:
            imbalances += _of_gone(instances, plan) + _of_sums(known, instances)
    return imbalances


def _by_generations(
    plan: StagePlan, known_instances: Collection[tuple[int, int]], instance: InstanceStatistics
) -> InstanceStatistics:
    """Return figures in which missing instances are `GONE`, also those of a sender that had ended before."""
    stages = [edge.target for edge in plan.edges]
    sent = [
        (edge, target if (stages[edge], target) in known_instances else GONE, rows)
        for edge, target, rows in instance.sent
    ]
    return msgspec.structs.replace(instance, sent=sent)


def misses(instance: InstanceStatistics) -> list[str]:
    """Return the imbalances within one instance that need no topology: at its source, between its steps, at its inputs."""
    return _of_instance({}, instance)


def _of_instance(known: dict[str, StepSpecification], instance: InstanceStatistics) -> list[str]:
    imbalances: list[str] = []
    if instance.source is not None:
        name = next(iter(instance.steps), "source")
        imbalances += _of_source(name, instance.source)
    names = list(instance.steps)
    for name, counts in instance.steps.items():
        if (
            name in known and generation_of(instance.index) == 1
        ):  # else it may have taken over rows that others took in: `_of_sums`
            imbalances += [f"{name} {instance.index}: {text}" for text in _of_step(known[name], counts)]
            if instance.finished and instance.state_keys and known[name].panes:
                imbalances.append(
                    f"{name} {instance.index}: {instance.state_keys} keys are left in windows after the end of the input"
                )
    for before, after in pairwise(names if instance.source is None else instance.source.steps):
        put_out, took = instance.steps[before].rows_out, instance.steps[after].rows_in
        if put_out != took:
            imbalances.append(f"{after} {instance.index}: took {took} of the {put_out} rows that {before} put out")
    if instance.source is None and names:
        came = sum(rows for _, _, rows in instance.received) - instance.queued_rows
        took = instance.steps[names[0]].rows_in
        if came != took:
            imbalances.append(f"{names[0]} {instance.index}: took {took} of {came} rows that came and do not wait")
    return imbalances


def _of_source(name: str, counts: SourceCounts) -> list[str]:
    parts = {
        "records": counts.records,
        "late": counts.late,
        "malformed": sum(counts.malformed.values()),
        "shed": sum(counts.shed.values()),
        "spooled": counts.spooled,
        "waiting": counts.waiting,
    }
    if counts.lines + counts.made == sum(parts.values()):
        return []
    words = " + ".join(f"{number} {part}" for part, number in parts.items() if number)
    lines = f"{counts.lines} lines" + (f" and {counts.made:+} rows of its steps" if counts.made else "")
    return [f"{name}: {lines}, but {words or 'nothing'} is {sum(parts.values())}"]


def _of_step(step: StepSpecification, counts: StepCounts) -> list[str]:
    dropped = counts.dropped + counts.skipped + counts.dead_letters + counts.late + counts.rejected
    accounted = counts.rows_out + dropped
    counting = step.traits.counting
    if step.makes_one_at_most and accounted != counts.rows_in:
        return [f"{counts.rows_in} rows in, {counts.rows_out} out and {dropped} dropped"]
    if counting in ("takes", "each"):
        if counts.taken + dropped != counts.rows_in:
            return [f"{counts.rows_in} rows in, {counts.taken} taken and {dropped} dropped"]
        if counting == "each" and counts.rows_out != counts.taken:
            return [f"{counts.rows_out} values out of {counts.taken} rows taken"]
        if step.panes and counts.rows_out + counts.failed > counts.taken * step.panes.most_at_once:
            return [f"{counts.rows_out} windows out of {counts.taken} rows taken"]
    elif counts.taken:
        return [f"{counts.taken} rows taken by a step without state"]
    if counting == "keeps" and counts.dropped:
        return [f"{counts.dropped} rows filtered by a step without a filter"]
    if dropped > counts.rows_in:
        return [f"{dropped} rows dropped of {counts.rows_in}"]
    return []


def _of_outputs(plan: StagePlan, instance: InstanceStatistics) -> list[str]:
    """Compare the rows that left over each edge with the output of the last step."""
    if not instance.steps:
        return []
    imbalances: list[str] = []
    last, counts = list(instance.steps.items())[0 if instance.source is not None else -1]
    for edge in plan.outgoing(instance.stage):
        sent = sum(rows for number, _, rows in instance.sent if number == edge.index)
        step, _, tag = edge.side.rpartition("/")
        if edge.partitioning == "broadcast" and any(
            number == edge.index and target == GONE for number, target, _ in instance.sent
        ):
            continue  # the number of copies changed
        if not edge.side:
            copies = len(plan.targets(edge.index, instance.index)) if edge.partitioning == "broadcast" else 1
            expected = counts.rows_out * copies
        elif tag == ERRORS and step in instance.steps:
            of_source = instance.source is not None and step == last
            expected = (
                instance.source.dead_letters if instance.source and of_source else instance.steps[step].dead_letters
            )
        else:
            continue
        if sent != expected:
            imbalances.append(f"{last} {instance.index}: sent {sent} of {expected} rows over edge {edge.index}")
    return imbalances


def _of_channels(instances: Sequence[InstanceStatistics], *, is_all: bool) -> list[str]:
    """Compare the rows sent and received by each channel.

    `is_all`: every instance is known, else only channels with both ends are compared.
    """
    sent = {
        (edge, instance.index, target): rows
        for instance in instances
        for edge, target, rows in instance.sent
        if target != GONE
    }
    imbalances: list[str] = []
    received: set[tuple[int, int, int]] = set()
    for instance in instances:
        for edge, source, rows in instance.received:
            if source == GONE:
                continue
            key = (edge, source, instance.index)
            received.add(key)
            put_in = sent.get(key, 0 if is_all else rows)
            if put_in != rows:
                imbalances.append(
                    f"edge {edge} from instance {source} to {instance.index}: {put_in} rows sent, {rows} received"
                )
    for key, rows in sent.items():
        if is_all and key not in received and rows:
            edge, source, target = key
            imbalances.append(
                f"edge {edge} from instance {source} to {target}: {rows} rows sent, and no instance received them"
            )
    return imbalances


def _of_sums(known: dict[str, StepSpecification], instances: Sequence[InstanceStatistics]) -> list[str]:
    """Check each step's figures over all instances: key groups that moved may separate a window's rows from its output."""
    sums: dict[str, StepCounts] = {}
    for instance in instances:
        for name, counts in instance.steps.items():
            sums.setdefault(name, StepCounts()).add(counts)
    return [
        f"{name}: {text}" for name, counts in sums.items() if name in known for text in _of_step(known[name], counts)
    ]


def _of_gone(instances: Sequence[InstanceStatistics], plan: StagePlan) -> list[str]:
    """Compare the rows of ended generations by edge: their waiting rows changed the instance, so only sums agree."""
    imbalances: list[str] = []
    for edge in plan.edges:
        sent = sum(
            rows
            for instance in instances
            for number, target, rows in instance.sent
            if (number, target) == (edge.index, GONE)
        )
        came = sum(
            rows
            for instance in instances
            for number, by, rows in instance.received
            if (number, by) == (edge.index, GONE)
        )
        if (
            sent != came and edge.partitioning != "broadcast"
        ):  # waiting rows for all instances had as many copies as instances
            imbalances.append(f"edge {edge.index}, before its stages changed: {sent} rows sent, {came} received")
    return imbalances


def summarise(specification: Specification, statistics: Iterable[InstanceStatistics]) -> Summary:
    """Add up the counts of all instances of an application."""
    steps = {step.name: StepCounts() for step in specification.steps}
    source = SourceCounts()
    malformed: dict[str, int] = {}
    shed: dict[str, int] = {}
    histograms: dict[str, LatencyHistogram] = {}
    sinks = {step.name for step in specification.sinks}
    duplicates = DuplicatesBySink()
    for instance in statistics:
        for name, counts in instance.steps.items():
            steps[name].add(counts)
            if instance.duplicates is not None and name in sinks:
                duplicates.add(name, instance.duplicates)
            if instance.latency and name in sinks:
                histograms.setdefault(name, LatencyHistogram()).merge(LatencyHistogram.from_plain(instance.latency))
        if instance.source is not None:
            source.lines += instance.source.lines
            source.late += instance.source.late
            source.paced = source.paced or instance.source.paced
            source.waiting += instance.source.waiting
            source.spooled += instance.source.spooled
            source.spooled_ever += instance.source.spooled_ever
            for reason, count in instance.source.shed.items():
                shed[reason] = shed.get(reason, 0) + count
            for reason, count in instance.source.malformed.items():
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
        results={step.name: steps[step.name].rows_out for step in specification.sinks},
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
        service_levels=[
            of_sink(step.name, slo_ms, histograms.get(step.name))
            for step in specification.sinks
            if (slo_ms := step.slo_ms) is not None
        ],
    )
