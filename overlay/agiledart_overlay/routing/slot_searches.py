"""Searches for a new entry of a routing table slot that has become empty.

Members of the slot's own row are asked for theirs, one after the other, the cheapest first; when none of them has one, members of
the rows below. Each of these shares enough digits with this node for its slot to hold entries that fit here.

Source: [Pastry] §2.4 (lazy repair of the routing table); the project's overlay specification §6.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import RowRequest, RowState

_MAX_SEARCHES = 64
_MAX_HELPERS = 8
"""Nodes asked about one slot; the exchange of whole rows later finds the entries that they do not know."""


class SlotSearch:
    """Search for one empty slot.

    Attributes:
        helpers: nodes to ask next, last first.
        asked: the node whose answer is awaited.
        is_waiting: an exchange has passed since `asked` was asked.
    """

    __slots__ = ("asked", "helpers", "is_waiting")

    def __init__(self, helpers: list[Peer]) -> None:
        self.helpers = helpers
        self.asked: NodeId | None = None
        self.is_waiting = False


class SlotSearches:
    """Searches in progress at one node."""

    __slots__ = ("_searches", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._searches: dict[tuple[int, int], SlotSearch] = {}

    def __len__(self) -> int:
        return len(self._searches)

    def stop(self) -> None:
        """Give all searches up."""
        self._searches.clear()

    def begin(self, dead: NodeId) -> None:
        """Begin a search if the dead node's slot is empty now."""
        view = self._view
        table = view.routing_table
        slot = table.slot_of(dead)
        if slot in self._searches or len(self._searches) >= _MAX_SEARCHES or table.candidates(*slot):
            return
        row, column = slot
        helpers: list[Peer] = []
        for other in table.rows:
            if other >= row and len(helpers) < _MAX_HELPERS:
                helpers.extend(sorted(table.row(other), key=lambda peer: (view.distances.cost(peer), peer.node)))
        if helpers:
            self._searches[slot] = SlotSearch(helpers[_MAX_HELPERS - 1 :: -1])
            self._ask_next(row, column)

    def on_answer(self, sender: Peer, message: RowState) -> None:
        """Take a helper's answer; ask the next helper when it has only dead peers or none."""
        slot = message.row, message.column
        search = self._searches.get(slot)
        if search is None or search.asked != sender.node:
            return
        view = self._view
        if any(not view.book.is_dead(sighting.peer, sighting.refutations) for sighting in message.sightings):
            del self._searches[slot]
        else:
            self._ask_next(*slot)

    def on_exchange(self) -> None:
        """Pass over helpers that did not answer since the last exchange."""
        for slot, search in list(self._searches.items()):
            if search.is_waiting:
                self._ask_next(*slot)
            else:
                search.is_waiting = True

    def _ask_next(self, row: int, column: int) -> None:
        view = self._view
        search = self._searches[row, column]
        while search.helpers and not view.routing_table.candidates(row, column):
            helper = search.helpers.pop()
            if helper.node in view.book:
                search.asked, search.is_waiting = helper.node, False
                view.send(helper, RowRequest(row, column))
                return
        del self._searches[row, column]

    def violations(self) -> list[str]:
        """Check that searches are bounded, and that each waits for a helper."""
        complaints = [
            f"search: that of slot {slot} waits for no helper"
            for slot, search in self._searches.items()
            if search.asked is None
        ]
        if len(self._searches) > _MAX_SEARCHES:
            complaints.append(f"bound: {len(self._searches)} slots are searched, at most {_MAX_SEARCHES}")
        return complaints
