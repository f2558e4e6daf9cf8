"""Planted mistakes in the admission, to prove that the checker of owners can fail, and that storms and sweeps reach them.

Each mutant is a name, and a function that puts the mistake in by means of `replace(class, name, value)` (pytest's
`monkeypatch.setattr`, or `planted` below).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agiledart_kernel.peer import Peer
from agiledart_overlay.ring.handshake import Handshake
from agiledart_overlay.ring.lease_expiry import LeaseExpiry
from agiledart_overlay.ring.range_owner import RangeOwner
from agiledart_overlay.state.agreement import FOREVER, AdmissionStage, Agreement
from agiledart_overlay.wire.ring_messages import InviteJoiner, JoinerReady, OfferRange

Replace = Callable[[type, str, Any], None]


def guardian_keeps(replace: Replace) -> None:
    """The range owner keeps delivering the joiner's keys."""
    replace(Agreement, "_right_border", lambda self: self.successor.peer.node)


def neighbour_keeps(replace: Replace) -> None:
    """Its successor does."""
    replace(Agreement, "_left_border", lambda self: self.predecessor.peer.node)


def early_take_back(replace: Replace) -> None:
    """The range owner takes the keys back after an eighth of the time."""
    right = RangeOwner.on_joiner_ready

    def on_joiner_ready(self: RangeOwner, sender: Peer, message: JoinerReady) -> None:
        right(self, sender, message)
        view = self._view
        admitting = view.agreed.admitting
        if admitting is not None and admitting.stage is AdmissionStage.TRANSFERRING:
            admitting.until = view.now + view.config.admission_ns // 8

    replace(RangeOwner, "on_joiner_ready", on_joiner_ready)


def leases_only_for_the_join(replace: Replace) -> None:
    """An admitted member delivers for ever."""

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
    """The joiner counts from the offer of its place, not from its own `JoinerReady`."""
    right = Handshake.on_offer_range

    def on_offer_range(self: Handshake, sender: Peer, message: OfferRange) -> None:
        was_active = self._view.agreed.active
        if self._invitation is not None and self._invitation.ticket == message.ticket and not was_active:
            self._invitation.began = self._view.now
        right(self, sender, message)

    replace(Handshake, "on_offer_range", on_offer_range)


def repeated_call_renews(replace: Replace) -> None:
    """The joiner counts from its last `JoinerReady`, not from its first."""
    right = Handshake.on_invite_joiner

    def on_invite_joiner(self: Handshake, sender: Peer, message: InviteJoiner) -> None:
        if self._invitation is not None and self._invitation.ticket == message.ticket and not self._view.agreed.active:
            self._invitation.began = self._view.now
        right(self, sender, message)

    replace(Handshake, "on_invite_joiner", on_invite_joiner)


def no_check_after_a_lapse(replace: Replace) -> None:
    """A node whose leases are over grants, admits and closes as before."""
    replace(LeaseExpiry, "on_round", lambda self: None)
    replace(Agreement, "is_fit", lambda self, now: self.confirmed)


def joiner_answers_early(replace: Replace) -> None:
    """A joiner delivers as soon as it is called."""
    right = Handshake.on_invite_joiner

    def on_invite_joiner(self: Handshake, sender: Peer, message: InviteJoiner) -> None:
        right(self, sender, message)
        self.on_offer_range(sender, OfferRange(message.ticket, 0, ()))

    replace(Handshake, "on_invite_joiner", on_invite_joiner)


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
