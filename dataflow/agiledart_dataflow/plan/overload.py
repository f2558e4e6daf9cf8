"""What a source does when its outputs are blocked: wait, keep rows on disk, or let some go. Decides; touches no disk.

Inside the mesh nothing is dropped: pressure travels up to the source, and here the user's word holds. Rows come in judged
and in order, they leave in order, and every one that does not is counted with its reason. What waits is bounded in rows
and in bytes, whatever the policy.
"""

import msgspec

from agiledart_kernel.errors import ConfigurationError

BLOCK, SPOOL, SHED_OLDEST, SHED_SAMPLE = "block", "spool", "shed_oldest", "shed_sample"
POLICIES = (BLOCK, SPOOL, SHED_OLDEST, SHED_SAMPLE)

WAITING_ROWS = 10_000
"""Rows that wait in memory unless told otherwise: a second of a fast sensor gateway, some megabytes."""

MAX_WAITING_ROWS = 1_000_000
MAX_WAITING_BYTES = 32 << 20
"""What waits in memory takes at most so many bytes on the wire (in Python about three times as much)."""

SPOOL_BYTES = 256 << 20
MIN_SPOOL_BYTES = 1 << 20
MAX_SPOOL_BYTES = 1 << 40

OPTIONS = ("overload", "overload_rows", "spool_bytes", "spool_full")
"""The options of a connector that say all this in a URL: `tcp:…?overload=spool&spool_bytes=64000000`."""


class Overload(msgspec.Struct, frozen=True, gc=False):
    """What to do with rows for which there is no room.

    Attributes:
        policy: `block`: read no more (right for what can be read later: files). `spool`: keep them on the disk of the
            source's node and send them in order. `shed_oldest`: the oldest waiting row makes room for the newest.
            `shed_sample`: keep every 2nd, 4th, 8th … row, chosen by a hash of the source and the row's number.
        rows: how many may wait in memory.
        spool_bytes: how much may lie on disk.
        spool_full: what to do when that is used up, or the disk is full: `block`, or `shed` what comes.

    Raises:
        ConfigurationError: names the value and what is allowed.
    """

    policy: str = BLOCK
    rows: int = WAITING_ROWS
    spool_bytes: int = SPOOL_BYTES
    spool_full: str = BLOCK

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigurationError(f"overload={self.policy}: there are {', '.join(POLICIES)}")
        if not 1 <= self.rows <= MAX_WAITING_ROWS:
            raise ConfigurationError(f"overload_rows={self.rows}: allowed are 1 to {MAX_WAITING_ROWS:,}")
        if not MIN_SPOOL_BYTES <= self.spool_bytes <= MAX_SPOOL_BYTES:
            raise ConfigurationError(
                f"spool_bytes={self.spool_bytes}: allowed are {MIN_SPOOL_BYTES:,} (1 MiB) to 1 TiB"
            )
        if self.spool_full not in (BLOCK, "shed"):
            raise ConfigurationError(f"spool_full={self.spool_full}: there are block and shed")

    @property
    def blocks(self) -> bool:
        """Whether the source simply waits, so that nothing has to be kept."""
        return self.policy == BLOCK

    def options(self) -> tuple[tuple[str, str], ...]:
        """What differs from the default, as options of a step."""
        default = Overload()
        values = (self.policy, self.rows, self.spool_bytes, self.spool_full)
        defaults = (default.policy, default.rows, default.spool_bytes, default.spool_full)
        told = zip(OPTIONS, values, defaults, strict=True)
        return tuple((name, str(value)) for name, value, usual in told if value != usual)


def overload_of(options: tuple[tuple[str, str], ...]) -> Overload | None:
    """What a connector's options say of it; None when they say nothing. Raises ConfigurationError."""
    given = {name: text for name, text in options if name in OPTIONS}
    if not given:
        return None
    numbers = {}
    for name, default in (("overload_rows", WAITING_ROWS), ("spool_bytes", SPOOL_BYTES)):
        text = given.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise ConfigurationError(f"{name}={text} is no whole number")
        numbers[name] = int(text)
    return Overload(
        given.get("overload", BLOCK),
        numbers["overload_rows"],
        numbers["spool_bytes"],
        given.get("spool_full", BLOCK),
    )
