"""Overload policy of a source whose outputs are blocked: wait, store rows on disk, or drop some. It decides only; no I/O.

Inside the mesh no row is dropped: back-pressure travels up to the source, where the user's policy applies. Rows come in
validated and in order, they leave in order, and every dropped row is counted with its reason. Waiting rows are bounded in
number and in bytes, whatever the policy.
"""

import msgspec

from agiledart_kernel.errors import ConfigurationError

BLOCK, SPOOL, SHED_OLDEST, SHED_SAMPLE = "block", "spool", "shed_oldest", "shed_sample"
POLICIES = (BLOCK, SPOOL, SHED_OLDEST, SHED_SAMPLE)

WAITING_ROWS = 10_000
"""Default number of rows that wait in memory: a second of a fast sensor gateway, some megabytes."""

MAX_WAITING_ROWS = 1_000_000
MAX_WAITING_BYTES = 32 << 20
"""Most bytes, in wire form, of rows that wait in memory (in Python about three times as much)."""

SPOOL_BYTES = 256 << 20
MIN_SPOOL_BYTES = 1 << 20
MAX_SPOOL_BYTES = 1 << 40

OPTIONS = ("overload", "overload_rows", "spool_bytes", "spool_full")
"""Options of a connector's URL for the policy: `tcp:…?overload=spool&spool_bytes=64000000`."""


class Overload(msgspec.Struct, frozen=True, gc=False):
    """Policy for rows that exceed the capacity downstream.

    Attributes:
        policy: `block`: stop reading (right for input that can be read later: files). `spool`: store rows on the disk of the
            source's node and send them in order. `shed_oldest`: drop the oldest waiting row for the newest. `shed_sample`: keep
            every 2nd, 4th, 8th … row, chosen by a hash of the source and the row's number.
        rows: number of rows that may wait in memory.
        spool_bytes: size limit of the spool on disk.
        spool_full: action when the spool or the disk is full: `block`, or `shed` the rows that come.

    Raises:
        ConfigurationError: names the value and the allowed ones.
    """

    policy: str = BLOCK
    rows: int = WAITING_ROWS
    spool_bytes: int = SPOOL_BYTES
    spool_full: str = BLOCK

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigurationError(f"overload={self.policy}: use one of {', '.join(POLICIES)}")
        if not 1 <= self.rows <= MAX_WAITING_ROWS:
            raise ConfigurationError(f"overload_rows={self.rows}: allowed are 1 to {MAX_WAITING_ROWS:,}")
        if not MIN_SPOOL_BYTES <= self.spool_bytes <= MAX_SPOOL_BYTES:
            raise ConfigurationError(
                f"spool_bytes={self.spool_bytes}: allowed are {MIN_SPOOL_BYTES:,} (1 MiB) to 1 TiB"
            )
        if self.spool_full not in (BLOCK, "shed"):
            raise ConfigurationError(f"spool_full={self.spool_full}: use block or shed")

    @property
    def blocks(self) -> bool:
        """True when the source simply waits, so that no rows have to be stored."""
        return self.policy == BLOCK

    def options(self) -> tuple[tuple[str, str], ...]:
        """Return the values that differ from the default, as options of a step."""
        default = Overload()
        values = (self.policy, self.rows, self.spool_bytes, self.spool_full)
        defaults = (default.policy, default.rows, default.spool_bytes, default.spool_full)
        options = zip(OPTIONS, values, defaults, strict=True)
        return tuple((name, str(value)) for name, value, default_value in options if value != default_value)


def overload_of(options: tuple[tuple[str, str], ...]) -> Overload | None:
    """Return the policy in a connector's options; None when they state none. Raises ConfigurationError."""
    given = {name: text for name, text in options if name in OPTIONS}
    if not given:
        return None
    numbers = {}
    for name, default in (("overload_rows", WAITING_ROWS), ("spool_bytes", SPOOL_BYTES)):
        text = given.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise ConfigurationError(f"{name}={text} is not a whole number")
        numbers[name] = int(text)
    return Overload(
        given.get("overload", BLOCK),
        numbers["overload_rows"],
        numbers["spool_bytes"],
        given.get("spool_full", BLOCK),
    )
