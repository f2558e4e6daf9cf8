"""Demand of each stage: rates and backlogs carried down from the sources, independent of the capacity of stages between.

Under back-pressure the arriving rate equals the served rate, and a starving stage would look healthy. So the rate is taken at the
sources, where nothing throttles it, and multiplied by the selectivity of each edge, measured when rows flowed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_INTERVALS = 3
"""Fewest intervals that a selectivity covers: a window's output comes in lumps."""


@dataclass(frozen=True, slots=True)
class EdgeFlow:
    """Rows that an edge carried in one interval.

    Attributes:
        rows: rows that the source stage took in.
        sent: rows sent on one of its edges.
    """

    rows: int
    sent: int


@dataclass(frozen=True, slots=True)
class DemandEdge:
    """Edge from one stage to another; `flows` are its last intervals, oldest first."""

    source: str
    target: str
    flows: tuple[EdgeFlow, ...]

    @property
    def selectivity(self) -> float | None:
        """Rows sent for each row in, over the stored intervals; None before enough of them brought a row."""
        rows = sum(flow.rows for flow in self.flows)
        return sum(flow.sent for flow in self.flows) / rows if rows and len(self.flows) >= LEAST_INTERVALS else None


@dataclass(frozen=True, slots=True)
class Demand:
    """Rows that a stage must process in each second of an interval.

    Attributes:
        offered: rows/s.
        backlog: rows that wait, here and upstream, as rows of this stage.
    """

    offered: tuple[float, ...]
    backlog: tuple[float, ...]

    @property
    def is_nothing(self) -> bool:
        """True when no row comes and none waits."""
        return not any(self.offered) and not any(self.backlog)


def carried(
    stages: Sequence[str],
    edges: Sequence[DemandEdge],
    sources: Mapping[str, Demand | None],
    waiting: Mapping[str, Sequence[float]],
) -> dict[str, Demand | None]:
    """Return the demand of each stage; None where it is unknown, as it is then for all stages downstream.

    Args:
        stages: names in topological order, sources among them.
        edges: between them; an edge without selectivity makes its target unknown.
        sources: rows that came to each source (read, spooled, shed, waiting more), and the rows that wait there.
        waiting: rows in each stage's own inboxes and channels at the end of each second.
    """
    demands: dict[str, Demand | None] = {}
    for stage in stages:
        if stage in sources:
            demands[stage] = sources[stage]
            continue
        offered, backlog = [], [list(waiting[stage])]
        is_known = True
        for edge in edges:
            if edge.target != stage:
                continue
            upstream, selectivity = demands[edge.source], edge.selectivity
            if upstream is not None and upstream.is_nothing:
                selectivity = 0.0  # the edge carries nothing, whatever its selectivity
            if upstream is None or selectivity is None:
                is_known = False
                break
            offered.append([rate * selectivity for rate in upstream.offered])
            backlog.append([rows * selectivity for rows in upstream.backlog])
        demands[stage] = Demand(_sums(offered), _sums(backlog)) if is_known and offered else None
    return demands


def _sums(columns: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(sum(second) for second in zip(*columns, strict=True))
