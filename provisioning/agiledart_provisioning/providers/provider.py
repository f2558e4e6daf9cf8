"""Contract of a provider of machines, and its errors."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from agiledart_kernel.errors import ConfigurationError
from agiledart_provisioning.gate.gate_messages import CallFailure, ProviderHost


class ProviderCallError(Exception):
    """A call has failed, or its answer is lost.

    Args:
        failure: its kind. A lost answer may hide a host that was made.
        reason: the provider's words.
    """

    def __init__(self, failure: CallFailure, reason: str) -> None:
        super().__init__(f"{failure.value}: {reason}")
        self.failure, self.reason = failure, reason


@dataclass(frozen=True, slots=True)
class HostOffer:
    """Kind of machine that a provider leases.

    Attributes:
        name: as the provider calls it.
        price: of a billing time unit, in millionths of the currency.
        btu_s: seconds of a unit.
        capacity: instances that it takes.
    """

    name: str
    price: int
    btu_s: int
    capacity: int


class Provider(Protocol):
    """A place that leases machines. Each call may be repeated: hosts are known by their name.

    Clouds have no idempotence key that all of them know, so a repeated `lease` may make a double; the gate finds it in `hosts`.
    """

    async def offers(self) -> tuple[HostOffer, ...]:
        """Return the kinds of machines."""
        ...

    async def lease(self, host_name: str, offer: str, start_data: str) -> ProviderHost:
        """Make a host of this name; `start_data` reach it at its start. Return the running host of this name, if there is one.

        Raises ProviderCallError.
        """
        ...

    async def hosts(self, prefix: str) -> tuple[ProviderHost, ...]:
        """Return the hosts whose name begins with a prefix. A new host may be missing for a while. Raises ProviderCallError."""
        ...

    async def release(self, host_id: str) -> None:
        """End a host; an unknown or ended one is ended already. Raises ProviderCallError."""
        ...


def offer_named(offers: tuple[HostOffer, ...], name: str) -> HostOffer:
    """Return an offer. Raises ConfigurationError for an unknown one."""
    for offer in offers:
        if offer.name == name:
            return offer
    names = [offer.name for offer in offers]
    close = get_close_matches(name, names, 1)
    raise ConfigurationError(
        f"offer = {name!r}: the provider has {', '.join(names)}.{f' Did you mean {close[0]}?' if close else ''}"
    )
