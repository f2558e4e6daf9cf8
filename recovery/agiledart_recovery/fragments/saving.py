"""The owner's side of saving one element: n fragments to n holders, at the same time.

| state | who moves it |
|---|---|
| SENDING | each acknowledgement; a holder that fails is replaced at once while there is another one |
| SAFE | all n acknowledged; or `ack_timeout` passed and at least m + 1 have (degraded: `survives` says how many losses) |
| LOST | `ack_timeout` passed with fewer: the epoch is not complete, the next one tries again |

The awkward case: what is acknowledged after the element became SAFE. It still counts for repair (`element` names the holder from
then on), but the record in the register has what was known when the party said PREPARED: it never promises more than was true.
"""

from collections.abc import Callable
from enum import Enum

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.desk import Desk
from agiledart_recovery.fragments.arithmetic import is_safe
from agiledart_recovery.fragments.placement import Spread, replacements
from agiledart_recovery.wire.effects import FragmentKey, SendFragment
from agiledart_recovery.wire.names import Party, Run, Snapshot
from agiledart_recovery.wire.value import Element


class Outcome(Enum):
    """See the module."""

    SENDING = "sending"
    SAFE = "safe"
    LOST = "lost"


class Saving:
    """One element on its way to its holders. `then` is called once, when the outcome is known."""

    def __init__(
        self, desk: Desk, run: Run, party: Party, element: Element, spread: Spread, then: Callable[["Saving"], None]
    ) -> None:
        self._desk, self.run, self.party, self._spread, self._then = desk, run, party, spread, then
        self.outcome = Outcome.SENDING
        self._to = list(spread.holders)
        self._have: list[NodeId] = [NodeId(0)] * len(spread.holders)
        self._failed: dict[NodeId, None] = {}
        self._about = element
        for index in range(len(self._to)):
            self._send(index)
        if not self._to:
            self._settle()

    @property
    def element(self) -> Element:
        """What lies where, as far as it was acknowledged."""
        about = self._about
        return Element(about.snapshot, about.digest, about.length, self._spread.m, tuple(self._have))

    @property
    def snapshot(self) -> Snapshot:
        """Of which barrier."""
        return self._about.snapshot

    def _send(self, index: int) -> None:
        holder = self._to[index]
        key = FragmentKey(self.run, self.party, self.snapshot, index)
        element = Element(self.snapshot, self._about.digest, self._about.length, self._spread.m, self._spread.holders)
        self._desk.ask(
            lambda request: SendFragment(request, holder, key, element, self.snapshot.life),
            lambda _, reason: self._answered(index, holder, reason),
        )

    def _answered(self, index: int, holder: NodeId, reason: str) -> None:
        if holder != self._to[index]:
            return
        if not reason:
            self._have[index] = holder
            if self.outcome is Outcome.SENDING and all(self._have):
                self._settle()
            return
        self._failed[holder] = None
        other = replacements(self._desk.me, self._to, tuple(self._failed), self._desk.room).get(index)
        if other is not None:
            self._to[index] = other
            self._send(index)

    def on_timeout(self) -> None:
        """`ack_timeout` has passed."""
        if self.outcome is Outcome.SENDING:
            self._settle()

    def _settle(self) -> None:
        element = self.element
        # A node that knows no other host has only its own disk, which the epoch's record says: it survives nothing.
        safe = is_safe(element, self._spread.m) if self._to else True
        self.outcome = Outcome.SAFE if safe else Outcome.LOST
        self._then(self)
