"""Constants of the provisioning algorithms, with the values of the paper as defaults."""

from dataclasses import dataclass, fields
from difflib import get_close_matches
from math import isfinite
from typing import Any

from agiledart_kernel.errors import ConfigurationError

REASONING_INTERVAL_S = 60.0
"""Seconds between two rounds of decisions. Source: [Hochreiner 2017] §5.2."""

SHUTDOWN_GRACE_S = 20.0
"""Seconds that a host needs to stop its instances and to power off."""

DURATIONS_KEPT = 5
"""Durations N that the trend of `up_trigger` uses. The paper prints no value; the authors' prototype keeps five."""


@dataclass(frozen=True, slots=True)
class ProvisioningSettings:
    """Constants of [Hochreiner 2017].

    Attributes:
        scaling_threshold: waiting items above which a delayed type is scaled up.
        penalty: P, cost of one item whose duration exceeds its bound.
        cf: CF, factor on the utility of a host that holds the type's image.
        ql: QL, utility of an empty queue for scaling down.
        w1, w2, w3, w4: weights of instances, queue load, delay and scalings in `down_utility`.
        double_upscale: start a second instance in the same round when the queue exceeds five thresholds.
        window_s: seconds before the end of a billing time unit in which a host may be released; None: see `window`.
        release_share: share of a type's instances that one released host may take with it.
        stops_a_round: instances of one type that are stopped in a round to free capacity for another type.
    """

    scaling_threshold: float = 50.0
    penalty: float = 0.0001
    cf: float = 0.01
    ql: float = 100.0
    w1: float = 1.0
    w2: float = 1.0
    w3: float = 1.0
    w4: float = 1.0
    double_upscale: bool = True
    window_s: float | None = None
    release_share: float = 0.2
    stops_a_round: int = 2

    @property
    def double_threshold(self) -> float:
        """Return the number of waiting items above which a second instance starts in the same round."""
        return 5.0 * self.scaling_threshold

    def window(self, btu_s: float) -> float:
        """Return the seconds before the end of a billing time unit in which a host may be released.

        Departs: the paper says 5 % of the unit. That is 30 s for 10 minutes, shorter than the 60 s between two rounds, so half of
        the ends would be missed. The window is at least one round and the shutdown.
        """
        if self.window_s is not None:
            return self.window_s
        return max(0.05 * btu_s, REASONING_INTERVAL_S + SHUTDOWN_GRACE_S)


def settings_of(given: dict[str, Any]) -> ProvisioningSettings:
    """Return the defaults with the given values in their place.

    Raises:
        ConfigurationError: an unknown name, a value of another type, a negative or endless number.
    """
    types = {field.name: field.type for field in fields(ProvisioningSettings)}
    for name, value in given.items():
        if name not in types:
            close = get_close_matches(name, types, 1)
            meant = f" Did you mean {close[0]}?" if close else f" Known: {', '.join(types)}."
            raise ConfigurationError(f"settings: there is no {name!r}.{meant}")
        if name == "double_upscale":
            if not isinstance(value, bool):
                raise ConfigurationError(f"settings: {name} = {value!r}: must be true or false")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
            raise ConfigurationError(f"settings: {name} = {value!r}: must be a number of at least 0")
        elif name == "stops_a_round" and not isinstance(value, int):
            raise ConfigurationError(f"settings: {name} = {value!r}: must be a whole number")
    return ProvisioningSettings(**given)
