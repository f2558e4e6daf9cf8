"""Entry of a gate's ledger: one lease, with what it has cost."""

from enum import Enum

import msgspec

from agiledart_kernel.instants import SECOND

DAY_NS = 86_400 * SECOND


class LeaseState(Enum):
    """State of a lease; the value is its written form."""

    ASKED = "asked"
    STARTING = "starting"
    JOINED = "joined"
    DRAINING = "draining"
    RELEASING = "releasing"
    ENDED = "ended"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Return whether no host belongs to the lease any more."""
        return self in (LeaseState.ENDED, LeaseState.FAILED)


class LeaseEntry(msgspec.Struct, frozen=True, gc=False):
    """One lease. Times are wall-clock nanoseconds since 1970, since a ledger outlives its process.

    Args:
        lease_id: unique in the network; it begins with the gate's name.
        gate: name of the gate that pays.
        host_name: name of the host at its provider.
        offer: name of the offer.
        price: of a billing time unit, in millionths of the currency.
        btu_ns: length of a unit.
        began_ns: begin of the first unit.
        first_unit: number of units that another gate has paid before this one adopted the host.
        units: units that this gate has booked.
        host_id: id at the provider; empty before its answer.
        node: name of the node that joined with the lease's token.
        term: times that the lease has changed hands, from 1.
        ended_ns: time of the end; 0 while it runs.
        why: reason of the last change.
        by_second: the provider bills seconds; a unit is the shortest time that it bills.
    """

    lease_id: str
    gate: str
    host_name: str
    offer: str
    price: int
    btu_ns: int
    began_ns: int
    state: LeaseState = LeaseState.ASKED
    first_unit: int = 0
    units: int = 1
    host_id: str = ""
    node: str = ""
    term: int = 1
    ended_ns: int = 0
    why: str = ""
    by_second: bool = False

    @property
    def paid_until_ns(self) -> int:
        """Return the end of the last paid unit."""
        return self.began_ns + (self.first_unit + self.units) * self.btu_ns

    @property
    def cost(self) -> int:
        """Return what this gate has booked, in millionths."""
        return self.units * self.price - self.unused

    @property
    def unused(self) -> int:
        """Return the price of the booked seconds that an ended lease did not use, in millionths; 0 where whole units are billed."""
        if not self.by_second or not self.state.is_over or not self.units:
            return 0
        used_ns = max(
            self.ended_ns - self.began_ns - self.first_unit * self.btu_ns, 0 if self.first_unit else self.btu_ns
        )
        return max(0, self.units * self.btu_ns - used_ns) * self.price // self.btu_ns

    def cost_on_day_of(self, now: int) -> int:
        """Return what this gate has booked for units that begin on the day (UTC) of a time, in millionths."""
        day = now // DAY_NS
        begins = (self.began_ns + (self.first_unit + number) * self.btu_ns for number in range(self.units))
        booked = self.price * sum(1 for begin in begins if begin // DAY_NS == day)
        return booked - (self.unused if (self.paid_until_ns - self.btu_ns) // DAY_NS == day else 0)
