"""Planted mistakes in the admission, to prove that the checker of owners can fail, and that storms and sweeps reach them.

Each mutant is a name, and a function that puts the mistake in by means of `replace(class, name, value)` (pytest's
`monkeypatch.setattr`, or `planted` below).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agiledart_kernel.peer import Peer
from agiledart_overlay.ring.admitting import Guardian
from agiledart_overlay.ring.joiner import Handshake
from agiledart_overlay.ring.lapse import Lapse
from agiledart_overlay.state.agreement import FOREVER, Agreement, Stage
from agiledart_overlay.wire.ring_messages import Call, Here, Place

Replace = Callable[[type, str, Any], None]


def guardian_keeps(replace: Replace) -> None:
    """The guardian goes on delivering the joiner's keys."""
    replace(Agreement, "_right_border", lambda self: self.successor.peer.node)


def neighbour_keeps(replace: Replace) -> None:
    """Its successor does."""
    replace(Agreement, "_left_border", lambda self: self.predecessor.peer.node)


def early_take_back(replace: Replace) -> None:
    """The guardian takes the keys back after an eighth of the time."""
    right = Guardian.on_here

    def on_here(self: Guardian, sender: Peer, message: Here) -> None:
        right(self, sender, message)
        view = self._view
        admitting = view.agreed.admitting
        if admitting is not None and admitting.stage is Stage.YIELDING:
            admitting.until = view.now + view.config.admission_ns // 8

    replace(Guardian, "on_here", on_here)


def leases_only_for_the_join(replace: Replace) -> None:
    """Who is in delivers for ever."""

    def lease(self: Agreement) -> int:
        return FOREVER if self.confirmed else min(self.predecessor.lease, self.successor.lease)

    replace(Agreement, "lease", property(lease))


def one_lease_is_enough(replace: Replace) -> None:
    """A node delivers while one of its two neighbours lets it."""
    replace(Agreement, "lease", property(lambda self: max(self.predecessor.lease, self.successor.lease)))


def joiner_overstays(replace: Replace) -> None:
    """A joiner that was not confirmed goes on."""

    def lease(self: Agreement) -> int:
        return min(self.predecessor.lease, self.successor.lease) if self.confirmed else FOREVER

    replace(Agreement, "lease", property(lease))


def lease_from_the_place(replace: Replace) -> None:
    """The joiner counts from the offer of its place, not from its own `Here`."""
    right = Handshake.on_place

    def on_place(self: Handshake, sender: Peer, message: Place) -> None:
        was_active = self._view.agreed.active
        if self._turn is not None and self._turn.ticket == message.ticket and not was_active:
            self._turn.began = self._view.now
        right(self, sender, message)

    replace(Handshake, "on_place", on_place)


def repeated_call_renews(replace: Replace) -> None:
    """The joiner counts from its last `Here`, not from its first."""
    right = Handshake.on_call

    def on_call(self: Handshake, sender: Peer, message: Call) -> None:
        if self._turn is not None and self._turn.ticket == message.ticket and not self._view.agreed.active:
            self._turn.began = self._view.now
        right(self, sender, message)

    replace(Handshake, "on_call", on_call)


def no_check_after_a_lapse(replace: Replace) -> None:
    """A node whose leases are over grants, admits and closes as before."""
    replace(Lapse, "on_round", lambda self: None)
    replace(Agreement, "is_fit", lambda self, now: self.confirmed)


def joiner_answers_early(replace: Replace) -> None:
    """A joiner delivers as soon as it is called."""
    right = Handshake.on_call

    def on_call(self: Handshake, sender: Peer, message: Call) -> None:
        right(self, sender, message)
        self.on_place(sender, Place(message.ticket, 0, ()))

    replace(Handshake, "on_call", on_call)


MUTANTS: dict[str, Callable[[Replace], None]] = {
    mutant.__name__: mutant
    for mutant in (
        guardian_keeps,
        neighbour_keeps,
        early_take_back,
        leases_only_for_the_join,
        one_lease_is_enough,
        joiner_overstays,
        lease_from_the_place,
        repeated_call_renews,
        no_check_after_a_lapse,
        joiner_answers_early,
    )
}


@contextmanager
def planted(mutant: Callable[[Replace], None]) -> Iterator[None]:
    """The mistake is there inside the `with`."""
    undo: list[tuple[type, str, Any]] = []

    def replace(kind: type, name: str, value: Any) -> None:
        undo.append((kind, name, kind.__dict__[name]))
        setattr(kind, name, value)

    mutant(replace)
    try:
        yield
    finally:
        for kind, name, value in reversed(undo):
            setattr(kind, name, value)
