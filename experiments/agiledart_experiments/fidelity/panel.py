"""A panel of a paper: one figure or table, and the columns of an experiment that show the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PROCESSES, EMULATED, SIMULATOR, ARITHMETIC = "processes", "processes on emulated links", "simulator", "arithmetic"
"""Bases of a panel: agents and executors, the same with shaped links, protocol code in virtual time, or formulas and models."""

LOG = "log"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        name: as the paper numbers it, such as `11a`.
        shows: the quantity, in a few words.
        experiment: that computes it; empty: none does.
        x, y: columns of its rows; a column with lists has its place in the list as x, and `x` is a word for it.
        series: columns that distinguish the lines.
        where: column → values of the rows that belong to this panel; empty: all rows.
        evidence: the base of the experiment, as above.
        lacks: part of the paper's panel that is not computed; empty: the whole panel is.
        needs: column → values that the rows must have, such as the engines that the paper compares, for the whole panel.
        differs: how the inputs or the base differ from the paper's, which no further run here can change; the panel counts as
            computed all the same.
        also: an experiment whose columns of the same names are shown beside, as values of a simulator; empty: none.
        bounds_of_x: least and greatest x of this panel.
        axis: `log` for a logarithmic x axis.
        paper: whose panel it is.
        sums_of: packets of one point, where the panel shows the running sum of a column of means a packet; 0: the column itself.
    """

    name: str
    shows: str
    experiment: str = ""
    x: str = ""
    y: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    where: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    evidence: str = ""
    lacks: str = ""
    needs: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    differs: str = ""
    also: str = ""
    bounds_of_x: tuple[float, float] | None = None
    axis: str = ""
    paper: str = "AgileDART"
    sums_of: int = 0
