"""Contract of provisioning policies: a state goes in, actions with reasons come out."""

from typing import Protocol, runtime_checkable

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.actions import Action
from agiledart_provisioning.state import ProvisioningState


@runtime_checkable
class ProvisioningPolicy(Protocol):
    """A policy. It keeps nothing between two rounds, so a gate may take over from another one at any time."""

    def decide(self, state: ProvisioningState, random: RandomStream) -> tuple[Action, ...]:
        """Return the actions of a round in their order; each is feasible after those before it. The state stays as it is."""
        ...
