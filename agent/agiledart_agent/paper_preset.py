"""Preset `paper`: agents with the values of the paper, each with its section.

Where the paper leaves a value open, the value of this project stands, and says so. Agents choose circuits by Algorithm 1 (§V) with
the C that the paper found best; a circuit carries rows once it is measured (decision 0045).

Source: [AgileDART]; [Pastry], whose ordinary figures the paper builds on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_node.context.config import NodeConfig
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_scaling.policies.paper import Paper
from agiledart_scaling.registry import policy_named

PAPER = "paper"
PRESETS = ("", PAPER)
AFTER_DETECTION_NS = 500 * MILLISECOND
"""Time beyond the detection of a dead peer for which a broken link waits for its cause."""


@dataclass(frozen=True, slots=True)
class PresetValue:
    """One value of a preset.

    Attributes:
        value: that agents use.
        section: of the paper.
        is_printed: the paper gives this value; false: it names the quantity only, and the value is this project's.
    """

    value: object
    section: str
    is_printed: bool = True


SETTINGS: Mapping[str, PresetValue] = {
    "placement_strategy": PresetValue("along_path", "IV-A"),
    "paths_policy": PresetValue("paper", "V"),
    "scaling_policy": PresetValue("paper", "IV-C"),
    "scaling_interval": PresetValue(5, "IV-C", is_printed=False),
    "fragments": PresetValue("4+2", "IV-D", is_printed=False),
    "checkpoint_interval": PresetValue(10, "IV-D", is_printed=False),
}
"""Settings of an agent that the preset gives; users' own values win."""


def with_preset(config: NodeConfig, preset: str) -> NodeConfig:
    """Return the settings of a node under a preset; `""` changes nothing."""
    if preset != PAPER:
        return config
    overlay = OverlayConfig.paper()
    return replace(
        config,
        overlay=overlay,
        scheduler_scope="zone",
        apps_per_scheduler=50,
        consequence_ns=overlay.dead_after_ns + AFTER_DETECTION_NS,
    )


def node_values(preset: str, scaling_policy: str) -> dict[str, PresetValue]:
    """Return the values that a preset gives beside an agent's settings, by name; empty without a preset."""
    if preset != PAPER:
        return {}
    config = with_preset(NodeConfig(), PAPER)
    overlay = config.overlay
    values = {
        "overlay.id_bits": PresetValue(overlay.id_bits, "IV-A, as Pastry"),
        "overlay.digit_bits": PresetValue(overlay.digit_bits, "IV-A, as Pastry"),
        "overlay.leaf_count": PresetValue(overlay.leaf_count, "IV-A, as Pastry"),
        "overlay.heartbeat_s": PresetValue(overlay.lease_renewal_ns / SECOND, "IV-D", is_printed=False),
        "overlay.dead_after_s": PresetValue(overlay.dead_after_ns / SECOND, "IV-D", is_printed=False),
        "schedulers.scope": PresetValue(config.scheduler_scope, "IV-B"),
        "schedulers.applications_each": PresetValue(config.apps_per_scheduler, "IV-B"),
        "placement.max_ops_balanced": PresetValue(config.max_ops_balanced, "IV-A", is_printed=False),
    }
    policy = policy_named(scaling_policy)
    if isinstance(policy, Paper):
        score = policy.settings
        values |= {
            "scaling.alpha": PresetValue(score.weight, "IV-C"),
            "scaling.target": PresetValue(score.target, "IV-C"),
            "scaling.floor": PresetValue(score.floor, "IV-C"),
            "scaling.q_seconds": PresetValue(score.drain_s, "IV-C", is_printed=False),
        }
    return values


def own_settings(preset: str, settings: Mapping[str, object]) -> list[str]:
    """Return the names of settings in which a user's value took the place of the preset's."""
    return [name for name, entry in SETTINGS.items() if preset == PAPER and settings[name] != entry.value]
