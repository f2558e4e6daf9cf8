"""Policy `hosts`: leases machines for work that waits, releases them at the end of their paid time; instances belong to others.

Scaling decides how many instances there are, and placement where. This policy is ours; it is the default on live meshes.
"""

from dataclasses import dataclass

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.actions import Action, ActionKind, Round
from agiledart_provisioning.downscaling import hosts_in_window, release_or_extend
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.state import ProvisioningState


@dataclass(frozen=True, slots=True)
class HostsPolicySettings:
    """Bounds of the policy `hosts`.

    Attributes:
        high: busy share above which a sample says that a host is full.
        samples: consecutive samples of every host that must be above it.
    """

    high: float = 0.85
    samples: int = 5


class Hosts:
    """Provisioning of machines only. It starts and ends no instance; a release migrates those of its host."""

    def __init__(self, settings: ProvisioningSettings | None = None, bounds: HostsPolicySettings | None = None) -> None:
        self._settings, self._bounds = settings or ProvisioningSettings(), bounds or HostsPolicySettings()

    def decide(self, state: ProvisioningState, random: RandomStream) -> tuple[Action, ...]:
        """Lease at most one host for demand, none while one starts; then release or extend the hosts in their window."""
        current = Round(state)
        starts = any(not host.is_running for host in state.hosts)
        demand = state.waiting[0] if state.waiting else self._load(state)
        if demand and not starts:
            current.do(Action(ActionKind.LEASE, current.new_host_name(), demand))
        for name in hosts_in_window(state, self._settings):
            if demand:
                current.do(Action(ActionKind.EXTEND, name, demand))
            else:
                release_or_extend(current, name, self._settings, ends_instances=False)
        return tuple(current.actions)

    def _load(self, state: ProvisioningState) -> str:
        """Return the reason for a lease when every host was busy for all recent samples, else an empty text."""
        samples = [host.busy[-self._bounds.samples :] for host in state.hosts if host.is_running]
        full = samples and all(len(busy) == self._bounds.samples and min(busy) > self._bounds.high for busy in samples)
        return f"every host was busier than {self._bounds.high:.0%} for {self._bounds.samples} samples" if full else ""
