"""Billing time units: a host is paid at its lease and at each extension, always for whole units."""

from dataclasses import dataclass
from math import ceil


@dataclass(slots=True)
class Lease:
    """Bill of one host.

    Attributes:
        host: name of the machine.
        price: of one unit.
        began_s: second of the lease.
        btu_s: length of a unit.
        units: units paid so far; the first one at the lease.
        ended_s: second of the release; None while it runs.
    """

    host: str
    price: float
    began_s: float
    btu_s: float
    units: int = 1
    ended_s: float | None = None

    @property
    def paid_until_s(self) -> float:
        """Return the second at which the paid time ends."""
        return self.began_s + self.units * self.btu_s

    @property
    def cost(self) -> float:
        """Return what the lease has cost so far."""
        return self.units * self.price

    def extend(self) -> None:
        """Pay one more unit. Raises ValueError after the release: an ended lease is never paid."""
        if self.ended_s is not None:
            raise ValueError(f"the lease of {self.host} has ended")
        self.units += 1

    def end(self, now_s: float) -> None:
        """Note the release; units that are under way stay paid."""
        self.ended_s = now_s


def started_units(began_s: float, ended_s: float, btu_s: float, minimum_s: float = 0.0) -> int:
    """Return the units that a provider bills for a lease: every unit that has started, at least the minimum.

    Args:
        minimum_s: shortest time that is billed, for billing by the second.
    """
    if btu_s <= 0.0:
        raise ValueError(f"btu_s = {btu_s}: must be more than 0")
    length = max(ended_s - began_s, minimum_s)
    return max(1, ceil(length / btu_s - 1e-9))
