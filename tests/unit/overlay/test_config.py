"""Settings of the overlay."""

from dataclasses import replace

import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_overlay.wire.config import OverlayConfig


@pytest.mark.parametrize(
    "config",
    [
        OverlayConfig.lan(),
        OverlayConfig.wan(),
        OverlayConfig.paper(),
        *(OverlayConfig.simulation(n) for n in (5, 10_000)),
    ],
)
def test_presets_are_valid(config: OverlayConfig) -> None:
    config.validate()


@pytest.mark.parametrize(
    "changes",
    [
        {"leaf_count": 3},
        {"leaf_count": 0},
        {"digit_bits": 3},
        {"replicas": 0},
        {"replicas": 25},
        {"probe_timeout_ns": 10**9},
        {"suspicion_min_ns": 10**10},
        {"record_retry_ns": 10**10},
    ],
)
def test_invalid_values_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        replace(OverlayConfig.lan(), **changes).validate()
