"""The owner's side between epochs: a fragment of what is committed that nobody has any more is made again for another holder.

| what happens | what follows |
|---|---|
| a holder is gone, or was never found | the next of its element's missing fragments go to other hosts, one element at a time |
| a holder says what it has, and lacks something | the same; it was damaged there, or its disk is a new one |
| a holder has acknowledged | the coordinator is told until the register names it |
| nobody is left, or all refuse | it stays missing until somebody comes, and is then tried again |

The element lies whole on the owner's disk, so nothing is fetched. The awkward case: a repair in life ℓ of an element that was saved
in an older one. It is the owner's life that a holder judges, not the element's, which the register names.
"""

from collections.abc import Callable, Mapping

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.desk import Desk
from agiledart_recovery.fragments.placement import replacements
from agiledart_recovery.limits import MAX_REMADE
from agiledart_recovery.wire.effects import FragmentKey, SendFragment
from agiledart_recovery.wire.messages import Remade
from agiledart_recovery.wire.names import Party, Run, Snapshot
from agiledart_recovery.wire.observations import FragmentRemade
from agiledart_recovery.wire.value import Element, MadeAgain

_NOBODY = NodeId(0)
Whose = tuple[Party, Snapshot]
Place = tuple[Party, Snapshot, int]


class Repairing:
    """What one host does for fragments of its own elements.

    Args:
        tell: brings what was made again to the coordinator, if one is known.
    """

    def __init__(self, desk: Desk, run: Run, tell: Callable[[Remade], None]) -> None:
        self._desk, self._run, self._tell = desk, run, tell
        self._life = 0
        self._elements: dict[Whose, Element] = {}
        self._damaged: dict[Place, NodeId] = {}
        self._made: dict[Place, NodeId] = {}
        self._refused: dict[NodeId, Instant] = {}
        self._sending: dict[Place, NodeId] = {}
        self._is_timed = False

    def forget(self) -> None:
        """Another life, or the end: what is under way is of no use."""
        self._elements, self._damaged, self._made, self._sending = {}, {}, {}, {}

    def know(self, life: int, elements: Mapping[Whose, Element]) -> None:
        """What the register says of the elements that this host has made."""
        self._life, self._elements = life, {key: element for key, element in elements.items() if element.holders}
        self._made = {place: node for place, node in self._made.items() if self._is_news(place, node)}
        self._damaged = {place: node for place, node in self._damaged.items() if self._said(place) == node}
        self.look()

    def _said(self, place: Place) -> NodeId:
        """Who has a fragment, by the register."""
        element = self._elements.get(place[:2])
        return element.holders[place[2]] if element is not None and place[2] < len(element.holders) else _NOBODY

    def _is_news(self, place: Place, node: NodeId) -> bool:
        return place[:2] in self._elements and self._said(place) != node

    @property
    def lacking(self) -> int:
        """Fragments that nobody has, as far as is known."""
        return sum(len(self._gone(whose)) for whose in self._elements)

    def _holders(self, whose: Whose) -> list[NodeId]:
        return [self._made.get((*whose, index), holder) for index, holder in enumerate(self._elements[whose].holders)]

    def _gone(self, whose: Whose) -> dict[int, NodeId]:
        """Fragments that are to be made again: index → who had it."""
        return {
            index: holder
            for index, holder in enumerate(self._holders(whose))
            if not holder
            or holder == self._desk.me.node
            or not self._desk.can_reach(holder)
            or self._damaged.get((*whose, index)) == holder
        }

    # ---- what happens

    def parties(self, node: NodeId) -> tuple[Party, ...]:
        """Of which parties a node has fragments from here."""
        return tuple(dict.fromkeys(whose[0] for whose in self._elements if node in self._holders(whose)))

    def on_holds(self, holder: NodeId, party: Party, held: tuple[tuple[Snapshot, int], ...]) -> None:
        """A holder says which fragments of a party it has."""
        there = dict.fromkeys(held)
        for whose in self._elements:
            for index, node in enumerate(self._holders(whose)):
                place = (*whose, index)
                if whose[0] != party or node != holder or place in self._sending:
                    continue
                if (whose[1], index) in there:
                    self._damaged.pop(place, None)
                else:
                    self._damaged[place] = holder
        self.look()

    def look(self) -> None:
        """Begin with the next element that lacks something, unless one is under way."""
        if self._sending:
            return
        for whose, element in self._elements.items():
            where = self._others(whose)
            if where:
                self._sending = {(*whose, index): node for index, node in where.items()}
                for index, node in where.items():
                    self._send(whose, element, index, node)
                return

    def _others(self, whose: Whose) -> dict[int, NodeId]:
        """Who is to have the fragments that nobody has."""
        desk, gone = self._desk, self._gone(whose)
        if not gone:
            return {}
        holders = [_NOBODY if index in gone else holder for index, holder in enumerate(self._holders(whose))]
        patience = desk.config.state_patience_ns
        self._refused = {node: at for node, at in self._refused.items() if desk.now - at < patience}
        room = [peer for peer in desk.room if desk.can_reach(peer.node) and peer.node not in self._refused]
        where = replacements(desk.me, holders, tuple(gone.values()), room)
        return where or replacements(desk.me, holders, (), room)  # who had it damaged is better than nobody

    def _send(self, whose: Whose, element: Element, index: int, holder: NodeId) -> None:
        key, life = FragmentKey(self._run, *whose, index), self._life
        self._desk.ask(
            lambda request: SendFragment(request, holder, key, element, life),
            lambda _, reason: self._answered((*whose, index), holder, life, reason),
        )

    def _answered(self, place: Place, holder: NodeId, life: int, reason: str) -> None:
        if life != self._life or self._sending.get(place) != holder:
            return
        del self._sending[place]
        if reason:
            self._refused[holder] = self._desk.now
        elif place[:2] in self._elements:
            self._damaged.pop(place, None)
            self._made[place] = holder
            self._desk.observe(FragmentRemade(self._run, place[0]))
        if not self._sending:
            self._say()
            self.look()

    def _say(self) -> None:
        """Tell the coordinator, and again while the register does not say it."""
        made = tuple(MadeAgain(*place, holder) for place, holder in self._made.items() if self._is_news(place, holder))
        if made:
            self._tell(Remade(self._run, self._life, made[:MAX_REMADE]))
            if not self._is_timed:
                self._is_timed = True
                self._desk.set_timer((self._run, "remade"), self._desk.config.silence_ns)

    def on_timer(self) -> None:
        """The register does not say it yet, or nobody has told so."""
        self._is_timed = False
        self._say()
        self.look()
