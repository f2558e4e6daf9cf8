"""`FusedPath`: from a source through stateless steps into a sink in one loop, for a driver with all three in its process.

From instance to instance a batch costs some thirty calls (inbox, outbox, watermarks, counts), as much as the work on several
rows: negligible at a hundred rows a batch, a third at ten. Where the result is the same, one generated loop takes all batches of
a reading to the sink, one after the other, and counts once for all of them. Watermarks, columns, and every graph that is not this
simple go from instance to instance.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.plan.stage_plan import Edge, StagePlan
from agiledart_dataflow.runtime.instance import Instance


class FusedPath:
    """Path of rows from an edge that leaves a source to the sink.

    Args:
        run: `Instance.fused_with`.
        into_sink: the edge that leads into the sink.
    """

    def __init__(self, run: Callable[[list[Any]], None], into_sink: int) -> None:
        self._run = run
        self.into_sink = into_sink

    def take(self, batch: Batch) -> Batch:
        """Take the rows of a batch to the sink, and return the watermark, which must go from instance to instance."""
        held = batch.held
        if type(held) is not list:
            return batch
        if held:
            self._run(held)
        return Batch([], None, batch.watermark, batch.barrier)


def fused_path(
    plan: StagePlan, edge: Edge, instances: Mapping[tuple[int, int], Instance], batch_rows: int
) -> FusedPath | None:
    """Return the path that begins with an edge of a source; None unless steps in one loop and a sink follow.

    Args:
        plan: the plan of the edge.
        edge: leaves a source.
        instances: by stage and index.
        batch_rows: rows that pass the steps and are written before the next ones begin.
    """
    following = plan.outgoing(edge.target)
    if len(following) != 1 or plan.stages[edge.target].parallelism != 1:
        return None
    sink = instances[following[0].target, 0].direct()
    run = None if sink is None else instances[edge.target, 0].fused_with(sink, batch_rows)
    return None if run is None else FusedPath(run, following[0].index)
