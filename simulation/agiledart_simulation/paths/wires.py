"""What is between nodes, all of it known beforehand: who is cut off from whom when, which links lose, which processes stand still.

Since the troubles of a whole run are drawn before it begins, when a packet comes can be said when it is sent.
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
"""TCP sends again after the first, and gives up beyond the last: the timer doubles."""

NEVER: Final = 1 << 62


class Trouble(NamedTuple):
    """Something is wrong for a while.

    Args:
        kind: `cut` and `loss` of a wire in one direction; `asleep`, `dead` and `untold` of a node: its process stands still, is
            gone, or nobody hears what it says of costs; `slow`: the operator at a node takes its time.
        where: two nodes, or one.
    """

    kind: str
    begin: int
    end: int
    where: tuple[int, ...]


class Wires:
    """Ways between pairs of nodes.

    Args:
        delays_ns: one way, by pair; there are others only where the pair is in it.
    """

    def __init__(
        self, delays_ns: dict[tuple[int, int], int], troubles: Iterable[Trouble], random: RandomStream
    ) -> None:
        self.delays_ns, self._random = delays_ns, random
        self.troubles = tuple(sorted(troubles, key=lambda one: (one.begin, one.end, one.kind, one.where)))
        self._by_place: dict[tuple[str, tuple[int, ...]], list[Trouble]] = {}
        for trouble in self.troubles:
            self._by_place.setdefault((trouble.kind, trouble.where), []).append(trouble)

    def is_so(self, kind: str, at: int, *where: int) -> bool:
        """Is there this trouble at an instant?"""
        return any(one.begin <= at < one.end for one in self._by_place.get((kind, where), ()))

    def since(self, kind: str, at: int, *where: int) -> int | None:
        """Since when there is this trouble; None: there is none now."""
        spans = self._by_place.get((kind, where), ())
        return min((one.begin for one in spans if one.begin <= at < one.end), default=None)

    def awake(self, node: int, at: int) -> int:
        """From when on its process does something."""
        spans = self._by_place.get(("asleep", (node,)), ())
        while (until := next((one.end for one in spans if one.begin <= at < one.end), at)) != at:
            at = until
        return at

    def dies(self, node: int, since: int) -> int:
        """When its process is gone first, from an instant on."""
        spans = self._by_place.get(("dead", (node,)), ())
        return min((max(since, one.begin) for one in spans if since < one.end), default=NEVER)

    def passes(self, one: int, other: int, at: int) -> int:
        """When a packet comes that TCP sends again until it does; `NEVER`, when the connection has given up before."""
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
        """When an answer is back; the processes at both ends are awake, or it waits for them."""
        if (there := self.passes(one, other, at)) == NEVER or self.dies(other, there) == there:
            return NEVER
        back = self.passes(other, one, self.awake(other, there))
        return back if back == NEVER else self.awake(one, back)

    def excuses(self, path: tuple[int, ...], at: int) -> bool:
        """Was something wrong with a circuit by these nodes of late, or may TCP still suffer from it? The last one's process counts
        only where relays lie between: else its kernel tells.
        """
        places: list[tuple[int, ...]] = [pair for a, b in pairwise(path) for pair in ((a, b), (b, a))]
        inner = [(node,) for node in path[1:-1]]
        for trouble in self.troubles:
            of_wire = trouble.kind in ("cut", "loss") and trouble.where in places
            of_node = trouble.kind in ("asleep", "dead") and trouble.where in inner
            if not of_wire and not of_node and not (inner and trouble.kind == "asleep" and trouble.where == path[-1:]):
                continue
            if trouble.begin <= at < trouble.end + 2 * (trouble.end - trouble.begin) + SECOND:
                return True
        return False
