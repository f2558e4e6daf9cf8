"""Provisioning policies by name."""

from collections.abc import Callable
from difflib import get_close_matches

from agiledart_kernel.errors import ConfigurationError
from agiledart_provisioning.policies.btu import BillingTimeUnits
from agiledart_provisioning.policies.hosts import Hosts
from agiledart_provisioning.policies.threshold import Threshold
from agiledart_provisioning.provisioning_policy import ProvisioningPolicy
from agiledart_provisioning.provisioning_settings import ProvisioningSettings

_POLICIES: dict[str, Callable[[ProvisioningSettings], ProvisioningPolicy]] = {
    "hosts": Hosts,
    "btu": BillingTimeUnits,
    "threshold": Threshold,
}

POLICIES: tuple[str, ...] = tuple(_POLICIES)
"""Names of the policies, the default on meshes first."""


def policy_named(name: str, settings: ProvisioningSettings) -> ProvisioningPolicy:
    """Return a new policy with this name. Raises ConfigurationError for an unknown one."""
    if name not in _POLICIES:
        close = get_close_matches(name, POLICIES, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise ConfigurationError(f"unknown provisioning policy {name!r}; use one of {', '.join(POLICIES)}.{meant}")
    return _POLICIES[name](settings)
