"""Scaling policies by name: the shipped ones, and those of users' packages."""

from collections.abc import Callable
from difflib import get_close_matches

from agiledart_kernel.errors import ConfigurationError
from agiledart_scaling.policies.ds2 import FLINK_SETTINGS, Ds2
from agiledart_scaling.policies.paper import Paper, PaperSettings
from agiledart_scaling.policies.secant import Secant
from agiledart_scaling.scaling_policy import ScalingPolicy

GROUP = "agiledart.scaling"
"""Group of entry points; each is a callable without arguments that returns a policy."""

_POLICIES: dict[str, Callable[[], ScalingPolicy]] = {
    "secant": Secant,
    "paper": lambda: Paper(PaperSettings(floor="none")),
    "paper-floor": Paper,
    "ds2": Ds2,
    "ds2-flink": lambda: Ds2(FLINK_SETTINGS),
}

POLICIES: tuple[str, ...] = tuple(_POLICIES)
"""Names of the shipped policies, the default first."""


def policy_named(name: str) -> ScalingPolicy:
    """Return a new policy with this name; no package replaces a shipped one. Slow: it searches installed packages.

    Raises:
        ConfigurationError: no policy has this name, or it cannot be loaded.
    """
    if name in _POLICIES:
        return _POLICIES[name]()
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        known = sorted({*POLICIES, *points})
        close = get_close_matches(name, known, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise ConfigurationError(f"unknown scaling policy {name!r}; use one of {', '.join(known)}.{meant}")
    try:
        policy: ScalingPolicy = points[name].load()()
    except Exception as error:
        raise ConfigurationError(
            f"scaling policy {name!r} of {points[name].value}: it could not be loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(policy, ScalingPolicy):
        raise ConfigurationError(
            f"scaling policy {name!r} of {points[name].value}: it has no method decide(measures, limits, memory)."
        )
    return policy


def is_shipped(name: str) -> bool:
    """Return whether the policy is shipped with AgileDart, and may be trusted to answer in time."""
    return name in _POLICIES
