"""A draw: kind of fault, moment, target and duration. All of it follows from the seed."""

from dataclasses import dataclass
from typing import Final

from agiledart_kernel.randomness import RandomStream

NETWORK: Final = ("cut", "pair", "one-way", "thin")
"""Faults of links, which need emulated hosts."""

DISK: Final = ("disk-full", "disk-read-only")
"""Faults that need a file system of an agent's own."""

CLASSES: Final = (
    "stop",
    "stop-executor",
    "kill",
    "kill-executor",
    "clock",
    "flip",
    "descriptors",
    "code",
    "submit",
    *DISK,
    *NETWORK,
)

ROLES: Final = ("source", "sink", "worker", "bystander")
MOMENTS: Final = ("forming", "early", "late", "after")
"""While it is being formed, when a tenth or half of its results are out, when it has ended."""

DELIVERIES: Final = ("at-most-once", "exactly-once")
LONGEST_SECONDS: Final = 14.0


@dataclass(frozen=True)
class Draw:
    """One fault.

    Attributes:
        number: the seed, from which alone the draw is made.
        detail: random number for further choices of a fault.
    """

    number: int
    kind: str
    role: str
    moment: str
    seconds: float
    delivery: str
    detail: int

    @property
    def again(self) -> str:
        """Return the command that repeats the draw on new agents."""
        return f"python -m benchmarks.faults --seed {self.number} --class {self.kind} --draws 1"

    def __str__(self) -> str:
        return f"{self.kind} of the {self.role}, {self.moment}, {self.seconds:g} s, {self.delivery}"


def drawn(number: int, kinds: tuple[str, ...]) -> Draw:
    """Return the draw of this number. Only its class depends on `kinds`, so that `--class` repeats all the rest."""
    random = RandomStream(number, "fault")
    role, moment, delivery = random.choice(ROLES), random.choice(MOMENTS), random.choice(DELIVERIES)
    seconds = round(0.5 + (LONGEST_SECONDS - 0.5) * random.uniform() ** 2, 1)
    detail = random.bits(30)
    return Draw(number, RandomStream(number, "class").choice(kinds), role, moment, seconds, delivery, detail)
