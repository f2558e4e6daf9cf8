"""What is asked of each stage: rates and backlogs carried down from the sources, whatever the stages between them can do.

Under back-pressure the rate that arrives equals what is served, and a starving stage would look healthy. So the rate is
taken where nothing throttles it, at the sources, and multiplied by what each edge made of a row when it could be seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_INTERVALS = 3
"""A selectivity is that of at least so many intervals: a window's output comes in lumps."""


@dataclass(frozen=True, slots=True)
class EdgeFlow:
    """What one interval carried.

    Attributes:
        rows: a stage's rows in.
        sent: rows sent on one of its edges.
    """

    rows: int
    sent: int


@dataclass(frozen=True, slots=True)
class DemandEdge:
    """From one stage to another; `flows` are the last intervals of it, oldest first."""

    source: str
    target: str
    flows: tuple[EdgeFlow, ...]

    @property
    def selectivity(self) -> float | None:
        """Rows sent for each row in, over the intervals that are kept; None before enough of them brought a row."""
        rows = sum(flow.rows for flow in self.flows)
        return sum(flow.sent for flow in self.flows) / rows if rows and len(self.flows) >= LEAST_INTERVALS else None


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of a stage in each second of an interval.

    Attributes:
        offered: rows/s.
        backlog: rows that wait, here and upstream, as rows of this stage.
    """

    offered: tuple[float, ...]
    backlog: tuple[float, ...]

    @property
    def is_nothing(self) -> bool:
        """No row comes, and none waits."""
        return not any(self.offered) and not any(self.backlog)


def carried(
    stages: Sequence[str],
    edges: Sequence[DemandEdge],
    sources: Mapping[str, Demand | None],
    waiting: Mapping[str, Sequence[float]],
) -> dict[str, Demand | None]:
    """The demand of each stage; None where it is not known, which what comes behind it shares.

    Args:
        stages: names in topological order, sources among them.
        edges: between them; an edge without selectivity makes its target unknown.
        sources: what came to each source (read, spooled, shed, waiting more), and what waits there.
        waiting: rows in each stage's own inboxes and channels at the end of each second.
    """
    demands: dict[str, Demand | None] = {}
    for stage in stages:
        if stage in sources:
            demands[stage] = sources[stage]
            continue
        offered, backlog = [], [list(waiting[stage])]
        known = True
        for edge in edges:
            if edge.target != stage:
                continue
            before, selectivity = demands[edge.source], edge.selectivity
            if before is not None and before.is_nothing:
                selectivity = 0.0  # whatever it makes of a row, there is none
            if before is None or selectivity is None:
                known = False
                break
            offered.append([rate * selectivity for rate in before.offered])
            backlog.append([rows * selectivity for rows in before.backlog])
        demands[stage] = Demand(_sums(offered), _sums(backlog)) if known and offered else None
    return demands


def _sums(columns: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(sum(second) for second in zip(*columns, strict=True))
