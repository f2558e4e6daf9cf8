"""Replays of the published setting, shared by the experiments of this room, and the published figures."""

from collections.abc import Callable
from typing import NamedTuple

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.registry import policy_named
from agiledart_provisioning.replay.fluid_model import FluidModel
from agiledart_provisioning.replay.item_model import ItemModel
from agiledart_provisioning.replay.model_cluster import RandomDelays
from agiledart_provisioning.replay.replay_run import ReplayResult, ReplayRun
from agiledart_provisioning.replay.replay_workload import VM, manufacturing
from agiledart_provisioning.state import MachineOffer

BTU, THRESHOLD = "btu", "threshold"
BTU_MINUTES = (10, 30, 60)


class PublishedRow(NamedTuple):
    """One line of tables 3 to 6: shares of items on time, and costs."""

    real_time: float
    near_real_time: float
    relaxed: float
    resource_cost: float
    total_real_time: float
    total_near_real_time: float
    total_relaxed: float


PUBLISHED: dict[tuple[str, str, int], PublishedRow] = {
    ("stepwise", BTU, 10): PublishedRow(0.49, 0.85, 0.89, 72.33, 158.91, 96.85, 90.96),
    ("stepwise", BTU, 30): PublishedRow(0.52, 0.90, 0.93, 92.00, 173.39, 108.24, 103.03),
    ("stepwise", BTU, 60): PublishedRow(0.53, 0.93, 0.95, 98.00, 174.69, 108.88, 105.41),
    ("stepwise", THRESHOLD, 10): PublishedRow(0.40, 0.67, 0.71, 58.00, 151.83, 109.59, 102.97),
    ("stepwise", THRESHOLD, 30): PublishedRow(0.40, 0.67, 0.71, 79.00, 172.83, 130.59, 123.97),
    ("stepwise", THRESHOLD, 60): PublishedRow(0.40, 0.67, 0.71, 120.00, 213.83, 171.59, 164.97),
    ("two_level", BTU, 10): PublishedRow(0.48, 0.84, 0.88, 82.33, 169.17, 108.35, 102.37),
    ("two_level", BTU, 30): PublishedRow(0.50, 0.88, 0.91, 96.00, 177.62, 115.43, 110.62),
    ("two_level", BTU, 60): PublishedRow(0.55, 0.93, 0.95, 104.00, 175.90, 114.50, 111.73),
    ("two_level", THRESHOLD, 10): PublishedRow(0.40, 0.68, 0.72, 66.00, 157.88, 114.62, 108.83),
    ("two_level", THRESHOLD, 30): PublishedRow(0.40, 0.68, 0.72, 86.00, 177.88, 134.62, 128.83),
    ("two_level", THRESHOLD, 60): PublishedRow(0.40, 0.68, 0.72, 122.00, 213.88, 170.62, 164.83),
    ("random_walk_1", BTU, 10): PublishedRow(0.49, 0.85, 0.89, 69.33, 158.19, 94.44, 88.11),
    ("random_walk_1", BTU, 30): PublishedRow(0.52, 0.90, 0.93, 95.00, 176.94, 111.43, 106.67),
    ("random_walk_1", BTU, 60): PublishedRow(0.54, 0.93, 0.95, 110.00, 185.95, 121.61, 117.91),
    ("random_walk_1", THRESHOLD, 10): PublishedRow(0.39, 0.66, 0.71, 61.33, 158.68, 115.55, 107.54),
    ("random_walk_1", THRESHOLD, 30): PublishedRow(0.39, 0.66, 0.71, 86.00, 183.35, 140.22, 132.21),
    ("random_walk_1", THRESHOLD, 60): PublishedRow(0.39, 0.66, 0.71, 128.00, 225.35, 182.22, 174.21),
    ("random_walk_2", BTU, 10): PublishedRow(0.49, 0.87, 0.90, 74.00, 172.67, 100.17, 92.67),
    ("random_walk_2", BTU, 30): PublishedRow(0.51, 0.90, 0.94, 90.00, 184.03, 108.91, 101.96),
    ("random_walk_2", BTU, 60): PublishedRow(0.53, 0.92, 0.95, 106.00, 195.73, 120.59, 115.67),
    ("random_walk_2", THRESHOLD, 10): PublishedRow(0.41, 0.70, 0.75, 59.67, 164.18, 113.41, 104.43),
    ("random_walk_2", THRESHOLD, 30): PublishedRow(0.41, 0.70, 0.75, 82.00, 187.41, 135.98, 127.19),
    ("random_walk_2", THRESHOLD, 60): PublishedRow(0.41, 0.70, 0.75, 118.00, 223.41, 171.98, 163.19),
}
"""(pattern, approach, minutes of a unit) → printed figures. Table 4 prints 155.43 for the near total of BTU 30: 115.43 is meant."""


def price_of(btu_minutes: int) -> float:
    """Return the price of a unit: 1, 3 and 6 for 10, 30 and 60 minutes."""
    return btu_minutes / 10.0


def replayed(
    pattern: str, approach: str, btu_minutes: int, seed: int, settings: ProvisioningSettings, *, items: bool = False
) -> ReplayResult:
    """Return one replay of the published setting.

    Args:
        items: run single items in bursts with drawn delays and failures, in place of the fluid.
    """
    model: Callable[..., FluidModel | ItemModel] = ItemModel if items else FluidModel
    delays = RandomDelays(RandomStream(seed, "delays"), 0.02, 0.02) if items else None
    offer = MachineOffer(VM.cpu, VM.memory, price_of(btu_minutes))
    return ReplayRun(
        manufacturing(pattern),
        policy_named(approach, settings),
        offer,
        btu_minutes * 60.0,
        seed,
        model=model,
        delays=delays,
    ).run()


def resource_cost(result: ReplayResult, approach: str, btu_minutes: int) -> float:
    """Return the price of a replay's machines; the baseline does not know units and is billed afterwards."""
    if approach == THRESHOLD:
        return result.billed_afterwards(btu_minutes * 60.0, price_of(btu_minutes))
    return result.resource_cost
