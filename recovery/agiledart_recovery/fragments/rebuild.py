"""The replacement's side: fetch m fragments' worth of an element from all live holders at once, and say when it can be decoded.

| state | who moves it |
|---|---|
| STRIPES | each fragment is cut into P stripes, stripe j comes from the m providers j, j + 1 … (mod P); who fails is left out |
| WHOLE | the decoded element's hash was wrong: now whole fragments, each with its own hash, so that the bad one is known |
| READY | every stripe has m pieces (or m whole fragments are good): decode |
| LOST | fewer than m providers are left: wait for holders that may come back, then the run's policy |

The awkward case: a provider fails with half of its stripes served. What it served stays good until the element's hash says
otherwise.
"""

from enum import Enum

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.desk import Desk
from agiledart_recovery.fragments.arithmetic import fragment_bytes, stripe_providers, stripe_range
from agiledart_recovery.wire.effects import FetchStripe, FragmentKey
from agiledart_recovery.wire.names import Party, Run
from agiledart_recovery.wire.value import Element


class State(Enum):
    """See the module."""

    STRIPES = "stripes"
    WHOLE = "whole"
    READY = "ready"
    LOST = "lost"


class Rebuild:
    """One element on its way back.

    Attributes:
        pieces: stripe → index of the fragment → its bytes; in state WHOLE there is one stripe, and all fragments that can be had:
            one of them may still lie.
    """

    def __init__(self, desk: Desk, run: Run, party: Party, element: Element, live: dict[NodeId, None]) -> None:
        self._desk, self.run, self.party, self.element = desk, run, party, element
        self._providers = {index: holder for index, holder in enumerate(element.holders) if holder and holder in live}
        self._asked: dict[tuple[int, int], None] = {}
        self.is_whole = False
        self._stripes = max(1, min(len(self._providers), fragment_bytes(element.length, element.m)))
        self.pieces: list[dict[int, bytes]] = [{} for _ in range(self._stripes)]
        self.state = State.STRIPES
        self._ask()

    def _ask(self) -> None:
        """Ask so many providers for each stripe that m pieces of it are there or on their way."""
        m, indices = self.element.m, list(self._providers)
        if self.state not in (State.STRIPES, State.WHOLE):
            return
        if len(indices) < m and any(len(pieces) < m for pieces in self.pieces):
            self.state = State.LOST
            return
        wanted = m if self.state is State.STRIPES else len(indices)
        size = fragment_bytes(self.element.length, m)
        for stripe, pieces in enumerate(self.pieces):
            under_way = sum((stripe, index) in self._asked for index in indices)
            start = stripe_providers(stripe, len(indices), len(indices)) if indices else ()
            for place in start:
                index = indices[place]
                if under_way + sum(i not in self._providers for i in pieces) >= wanted:
                    break
                if (stripe, index) not in self._asked:
                    offset, length = stripe_range(stripe, self._stripes, size)
                    self._fetch(stripe, index, offset, length)
                    under_way += 1
        self._look()

    def _fetch(self, stripe: int, index: int, offset: int, length: int) -> None:
        self._asked[stripe, index] = None
        holder = self._providers[index]
        key = FragmentKey(self.run, self.party, self.element.snapshot, index)
        state = self.state
        length = 0 if state is State.WHOLE else length
        self._desk.ask(
            lambda request: FetchStripe(request, holder, key, self.element, offset, length),
            lambda result, reason: self._answered(state, stripe, index, result, reason),
        )

    def _answered(self, state: State, stripe: int, index: int, result: object, reason: str) -> None:
        if state is not self.state:
            return
        if not reason and isinstance(result, bytes):
            self.pieces[stripe][index] = result
            self._look()
        elif index in self._providers:
            del self._providers[index]
            self._ask()

    def _look(self) -> None:
        wanted = self.element.m if self.state is State.STRIPES else max(self.element.m, len(self._providers))
        if self.state in (State.STRIPES, State.WHOLE) and all(len(each) >= wanted for each in self.pieces):
            self.is_whole, self.state = self.state is State.WHOLE, State.READY

    def on_wrong_hash(self) -> None:
        """What was decoded is not the element: fetch whole fragments, whose own hashes tell the bad one."""
        if self.is_whole or len(self._providers) < self.element.m:
            self.state = State.LOST
            return
        self.state = State.WHOLE
        self._stripes, self.pieces, self._asked = 1, [{}], {}
        self._ask()

    def on_back(self, live: dict[NodeId, None]) -> None:
        """Holders can be reached again."""
        for index, holder in enumerate(self.element.holders):
            if holder and holder in live:
                self._providers[index] = holder
        if self.state is State.LOST:
            self.state = State.WHOLE
            self._stripes, self.pieces, self._asked = 1, [{}], {}
            self._ask()
