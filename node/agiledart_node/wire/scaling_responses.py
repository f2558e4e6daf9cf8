"""Response schemas of `explain scaling`."""

from agiledart_node.wire.change_responses import ChangeRow
from agiledart_node.wire.response import Response


class ScalingMeasurements(Response, frozen=True):
    """Measurements of a stage over the last five seconds; null: unknown.

    Args:
        offered: rows/s that the sources have for it, processed or not.
        backlog: rows that wait for it, at the stage and upstream, as rows of this stage.
        true_rate: rows/s of one instance while it works.
        capacity: rows/s at which its first instance is saturated.
        busy, blocked: share of the time that its instances spend on their own work, and blocked by a full output.
        selectivity: rows out for each row in.
    """

    offered: float | None = None
    backlog: int | None = None
    true_rate: float | None = None
    capacity: float | None = None
    busy: float | None = None
    blocked: float | None = None
    selectivity: float | None = None


class ScalingStageRow(Response, frozen=True):
    """Result of a scaling policy for one stage.

    Args:
        limits: smallest and largest planned number of instances.
        scales: the stage was submitted with limits, not with a fixed number.
        health_score: capacity as a share of the demand; null: no demand, or unknown.
        needed: instances that this interval requires, before limits and delays of the policy; null: unknown.
        wanted: instances that the policy would choose now.
        why: reason in words; `unknown_reason`: why the score is unknown, else empty. Both: a full link decides without a score.
        keeps_number: its number stays fixed until `agiledart scale APP STAGE auto`.
        waits_for: obstacle to the wanted number; empty: none.
        hot_group, hot_share: a key group with more rows than one instance can process, so that further instances do not help,
            and its share of the stage's rows in a sample; null: none, or too few rows sampled.
        terms: figures that the policy of the run decided from, by name; `f` is its score.
    """

    name: str
    kind: str
    instances: int
    limits: list[int]
    scales: bool
    measures: ScalingMeasurements
    health_score: float | None = None
    needed: int | None = None
    wanted: int | None = None
    why: str = ""
    unknown_reason: str = ""
    keeps_number: bool = False
    waits_for: str = ""
    hot_group: int | None = None
    hot_share: float | None = None
    terms: dict[str, float] = {}


class ScalingResponse(Response, frozen=True):
    """Response to `explain scaling`: decisions for stages that scale automatically (`scale APP STAGE auto`), advice for others.

    Args:
        policy: by name.
        stages: empty for an application that has ended.
        changes: the last 64, oldest first, from the run's coordinator, or from its record after its end (the newest in
            16 KiB); only of runs with epochs.
        silent_nodes: hosting nodes that did not report in time.
    """

    name: str
    version: int
    state: str
    policy: str
    stages: list[ScalingStageRow]
    changes: list[ChangeRow]
    silent_nodes: list[str]
