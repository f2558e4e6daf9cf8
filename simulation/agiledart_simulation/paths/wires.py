"""Wires between nodes, all known beforehand: partitions, lossy links and standing processes, each with its time.

The troubles of a whole run are drawn before it begins, so the arrival of a packet is known when it is sent.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream

LOSS: Final = 0.8
"""Share of packets that a link loses while it is bad."""

_FIRST_PAUSE_NS: Final = 200 * MILLISECOND
_LAST_PAUSE_NS: Final = 20 * SECOND
"""TCP retransmits after the first, and gives up beyond the last: the timer doubles."""

NEVER: Final = 1 << 62


class Trouble(NamedTuple):
    """A fault that lasts for a while.

    Args:
        kind: `cut` and `loss` of a wire in one direction; `asleep`, `dead` and `untold` of a node: its process stands still, is
            gone,
            or its cost announcements are lost; `slow`: the operator at a node takes its time.
        where: two nodes, or one.
    """

    kind: str
    begin: int
    end: int
    where: tuple[int, ...]


class Wires:
    """Wires between pairs of nodes.

    Args:
        delays_ns: one-way delay by pair; only pairs in it are connected.
    """

    def __init__(
        self, delays_ns: dict[tuple[int, int], int], troubles: Iterable[Trouble], random: RandomStream
    ) -> None:
        self.delays_ns, self._random = delays_ns, random
        self.troubles = tuple(
            sorted(troubles, key=lambda trouble: (trouble.begin, trouble.end, trouble.kind, trouble.where))
        )
        self._by_place: dict[tuple[str, tuple[int, ...]], list[Trouble]] = {}
        for trouble in self.troubles:
            self._by_place.setdefault((trouble.kind, trouble.where), []).append(trouble)

    def is_so(self, kind: str, at: int, *where: int) -> bool:
        """Return whether there is this trouble at an instant."""
        return any(trouble.begin <= at < trouble.end for trouble in self._by_place.get((kind, where), ()))

    def since(self, kind: str, at: int, *where: int) -> int | None:
        """Return since when there is this trouble; None: there is none now."""
        spans = self._by_place.get((kind, where), ())
        return min((span.begin for span in spans if span.begin <= at < span.end), default=None)

    def awake(self, node: int, at: int) -> int:
        """Return the first instant at which a node's process runs."""
        spans = self._by_place.get(("asleep", (node,)), ())
        while (until := next((span.end for span in spans if span.begin <= at < span.end), at)) != at:
            at = until
        return at

    def dies(self, node: int, since: int) -> int:
        """Return when a node's process is gone first, from an instant on."""
        spans = self._by_place.get(("dead", (node,)), ())
        return min((max(since, span.begin) for span in spans if since < span.end), default=NEVER)

    def passes(self, one: int, other: int, at: int) -> int:
        """Return when a packet arrives that TCP retransmits until it does; `NEVER` when the connection gives up before."""
        if (one, other) not in self.delays_ns:
            return NEVER
        pause = _FIRST_PAUSE_NS
        while True:
            lost = self.is_so("loss", at, one, other) and self._random.uniform() < LOSS
            if not lost and not self.is_so("cut", at, one, other):
                return at + self.delays_ns[one, other]
            at += pause
            pause *= 2
            if pause > _LAST_PAUSE_NS:
                return NEVER

    def round_trip(self, one: int, other: int, at: int) -> int:
        """Return when an answer is back; it waits for the processes at both ends to run."""
        if (there := self.passes(one, other, at)) == NEVER or self.dies(other, there) == there:
            return NEVER
        back = self.passes(other, one, self.awake(other, there))
        return back if back == NEVER else self.awake(one, back)

    def excuses(self, path: tuple[int, ...], at: int) -> bool:
        """Return whether a circuit by these nodes had a fault recently, or TCP may still suffer from one.

        The last node's process counts only where relays lie between: else its kernel acknowledges.
        """
        places: list[tuple[int, ...]] = [pair for a, b in pairwise(path) for pair in ((a, b), (b, a))]
        inner = [(node,) for node in path[1:-1]]
        for trouble in self.troubles:
            is_on_wire = trouble.kind in ("cut", "loss") and trouble.where in places
            is_on_node = trouble.kind in ("asleep", "dead") and trouble.where in inner
            if (
                not is_on_wire
                and not is_on_node
                and not (inner and trouble.kind == "asleep" and trouble.where == path[-1:])
            ):
                continue
            if trouble.begin <= at < trouble.end + 2 * (trouble.end - trouble.begin) + SECOND:
                return True
        return False
