"""`FusedPath`: from a source through stateless steps into a sink in one loop, for a driver that has all three in its process.

From instance to instance a batch costs some thirty calls (inbox, outbox, marks, counts), as much as the work on several
rows: nothing to speak of at a hundred rows a batch, a third at ten. Where nobody can tell the difference, one generated loop
takes all batches of a reading to the sink, one after the other, and what is counted is counted once for all of them. Marks,
columns, and every graph that is not as plain as this go from instance to instance.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.plan.stage_plan import Edge, StagePlan
from agiledart_dataflow.runtime.instance import Instance


class FusedPath:
    """What takes rows from an edge that leaves a source to the sink.

    Args:
        run: `Instance.fused_with`.
        into_sink: the edge that leads into the sink.
    """

    def __init__(self, run: Callable[[list[Any]], None], into_sink: int) -> None:
        self._run = run
        self.into_sink = into_sink

    def take(self, batch: Batch) -> Batch:
        """Take the rows of a batch to the sink, and give back what has to go from instance to instance: the mark."""
        held = batch.held
        if type(held) is not list:
            return batch
        if held:
            self._run(held)
        return Batch([], None, batch.watermark, batch.barrier)


def fused_path(
    plan: StagePlan, edge: Edge, instances: Mapping[tuple[int, int], Instance], batch_rows: int
) -> FusedPath | None:
    """The path that begins with an edge of a source; None when it is not just steps in one loop and a sink.

    Args:
        plan: whose edge it is.
        edge: leaves a source.
        instances: by stage and index.
        batch_rows: rows that pass the steps and are written before the next ones are begun.
    """
    following = plan.outgoing(edge.target)
    if len(following) != 1 or plan.stages[edge.target].parallelism != 1:
        return None
    sink = instances[following[0].target, 0].direct()
    run = None if sink is None else instances[edge.target, 0].fused_with(sink, batch_rows)
    return None if run is None else FusedPath(run, following[0].index)
