"""Response of `explain placement`."""

from typing import Any

import msgspec

from agiledart_node.wire.response import Response


class AlternativeRow(Response, frozen=True):
    """Another host of an instance.

    Args:
        node: its name.
        value: of the objective with the instance there; change: against now; below 0 is better, of availability above 0.
        forbidden: rules and capacities that would be broken there; empty: it may run there.
    """

    node: str
    value: float
    change: float
    forbidden: list[str] = []


class PlacedUnitRow(Response, frozen=True):
    """Instances that can only move together, most often one.

    Args:
        instances: `STAGE` or `STAGE.N`.
        node: where they run now.
        stays: why they do not move while rows flow; empty: they may.
        alternatives: the best other hosts, at most 3; empty when they stay.
    """

    instances: list[str]
    node: str
    stays: str = ""
    alternatives: list[AlternativeRow] = []


class PlacedStageRow(Response, frozen=True):
    """Measures of a stage that its placement rests on.

    Args:
        nodes: of its instances, in their order.
        ms: time for one row on a core of the reference speed; rows_per_s: rows that leave it (a sink: that enter it).
        ms_source, rows_source: `measured`, `expected` (`topology.expect`) or `unknown`: the default stands for it.
        rules: about its nodes, in words.
    """

    name: str
    kind: str
    nodes: list[str]
    ms: float
    ms_source: str
    rows_per_s: float
    rows_source: str
    rules: list[str] = []


class PlacedLinkRow(Response, frozen=True):
    """Delay of a link that rows cross now, one way. `source`: `measured` (half a round trip) or `estimated` (by coordinates)."""

    source_node: str
    target_node: str
    delay_ms: float
    source: str


class MoveDecisionRow(msgspec.Struct, frozen=True):
    """A decision of the run's coordinator about moves.

    Args:
        action: `nothing`, `advise` or `move`; why: in words.
        instance: that it is about, `STAGE` or `STAGE.N`; node: its best other host; empty: none.
        gain: by how much the objective falls; gained: in 600 s, cost: of the move, in one unit; null: only the share counts.
        at_ms: of the last look with this decision, wall milliseconds.
    """

    action: str
    why: str
    instance: str = ""
    node: str = ""
    gain: float | None = None
    gained: float | None = None
    cost: float | None = None
    at_ms: int = 0


class PlacementResponse(Response, frozen=True):
    """Response to `explain placement`: the placement now, and what other hosts would change.

    Args:
        objective: name of the aim; `value`: now; null: an instance runs on a node of which figures are missing.
        metrics: of the placement now, by name.
        predicted_ms: response time by delays and times, null as `value`; measured_ms: median at the sinks since the run began,
            measured_p99_ms: 99 % of the rows were faster; null: rows carry no time of reading.
        violations: broken rules and capacities, in words.
        stages, units, links: see their types.
        silent_nodes: nodes that did not report in time.
        notes: remarks about figures that are missing.
        decisions: the last ones of its coordinator about moves, oldest first; empty: none yet, or it is not saved by epochs.
        placed_by_user: stages that a user has moved; they stay.
        network, topology: the same as documents of `agiledart place`.
    """

    name: str
    version: int
    state: str
    objective: str
    value: float | None
    metrics: dict[str, float]
    predicted_ms: float | None
    measured_ms: float | None
    measured_p99_ms: float | None
    violations: list[str]
    stages: list[PlacedStageRow]
    units: list[PlacedUnitRow]
    links: list[PlacedLinkRow]
    silent_nodes: list[str]
    notes: list[str]
    network: dict[str, Any]
    topology: dict[str, Any]
    decisions: list[MoveDecisionRow] = []
    placed_by_user: list[str] = []
