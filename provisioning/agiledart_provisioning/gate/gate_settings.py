"""Settings of a gate. The two limits have no default: no money is spent that no user allowed."""

from difflib import get_close_matches

import msgspec

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND

MODES = ("off", "advise", "act")


class GateSettings(msgspec.Struct, frozen=True):
    """Limits and times of a gate; times in nanoseconds.

    Args:
        mode: off, advise (decides and reports, calls no provider) or act.
        max_hosts: most hosts that this gate leases at one time; 0: not given.
        max_spend: most that this gate books for one day (UTC), in millionths of the currency; 0: not given.
        offer, price, btu_ns: name of the leased kind of machine, price of a unit in millionths, and the unit.
        capacity: instances that such a machine takes.
        window_ns: time before the end of a unit in which a host may be released.
        round_ns: between two rounds of decisions.
        list_ns: between two comparisons with the provider's list; list_soon_ns: while something is not settled.
        listing_delay_ns: how long a list must not show a name before the call is repeated. Clouds list late.
        orphan_ns: age at which a host without a live lease is released.
        start_ns: a host that has not joined by then is ended.
        first_back_off_ns, last_back_off_ns: pause after a failure; it doubles with each failure in a row.
        after_join_ns: pause after a host has joined, before the next lease: the waiting work needs time to start there.
        by_second: the provider bills seconds; `btu_ns` is the shortest time that it bills, and is booked ahead. A host may go at
            any time, when two rounds in a row want it.
        gone_ns: silence of a gate after which another one adopts its hosts.
    """

    mode: str
    max_hosts: int
    max_spend: int
    offer: str
    price: int
    btu_ns: int
    capacity: int = 8
    window_ns: int = 180 * SECOND
    round_ns: int = 60 * SECOND
    list_ns: int = 300 * SECOND
    list_soon_ns: int = 10 * SECOND
    listing_delay_ns: int = 30 * SECOND
    orphan_ns: int = 600 * SECOND
    start_ns: int = 300 * SECOND
    first_back_off_ns: int = 60 * SECOND
    last_back_off_ns: int = 1_800 * SECOND
    after_join_ns: int = 30 * SECOND
    gone_ns: int = 300 * SECOND
    by_second: bool = False

    def validate(self) -> None:
        """Raise ConfigurationError when a value makes no sense."""
        if self.mode not in MODES:
            close = get_close_matches(self.mode, MODES, 1)
            meant = f" Did you mean {close[0]}?" if close else ""
            raise ConfigurationError(f"mode = {self.mode!r}: use one of {', '.join(MODES)}.{meant}")
        if self.mode == "act":
            for name, value in (("max_hosts", self.max_hosts), ("max_spend", self.max_spend)):
                if not value:
                    raise ConfigurationError(
                        f'mode = "act" needs {name}: it has no default, because it bounds what the gate may spend'
                    )
        for name, value in (("max_hosts", self.max_hosts), ("max_spend", self.max_spend)):
            if value < 0:
                raise ConfigurationError(f"{name} must be more than 0")
        for name, value in (("price", self.price), ("btu_s", self.btu_ns), ("capacity", self.capacity)):
            if value <= 0:
                raise ConfigurationError(f"{name} must be more than 0")
        if self.window_ns >= self.btu_ns and not self.by_second:
            raise ConfigurationError(
                "window_s must be shorter than btu_s: a host is released at the end of a paid unit"
            )
        if self.mode == "act" and self.max_spend < 2 * self.price:
            raise ConfigurationError(
                f"max_spend = {self.max_spend / 1e6:g} pays no host: a lease needs two units, the second one for its drain "
                f"({2 * self.price / 1e6:g})"
            )
