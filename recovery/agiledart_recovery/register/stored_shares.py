"""Shares of a run's key on a voter's disk, with their dealers.

Honest hosts deal the same shares (`key_splitting`), so most voters store one or two. A host that deals wrong ones displaces no
share of another host. A voter keeps two shares of each dealer, because the newest may not have reached the other voters when the
last host is lost.
"""

from collections.abc import Container

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.limits import DEALS_OF_DEALER, MAX_DEALERS
from agiledart_recovery.wire.key_share import DealtShare, KeyShare


class StoredShares:
    """Shares of one voter slot, oldest first."""

    def __init__(self, stored: tuple[DealtShare, ...] = ()) -> None:
        self._dealers = {dealt.share: dict.fromkeys(dealt.dealers) for dealt in stored}

    @property
    def shares(self) -> tuple[KeyShare, ...]:
        """Return the shares."""
        return tuple(self._dealers)

    @property
    def stored(self) -> tuple[DealtShare, ...]:
        """Return what the voter's file holds."""
        return tuple(DealtShare(share, tuple(dealers)) for share, dealers in self._dealers.items())

    def put(self, dealer: NodeId, share: KeyShare, hosts: Container[NodeId]) -> bool:
        """Store a share of a dealer in place of its last but one; return whether it is new, so that the file must be written.

        Args:
            hosts: of the run. Shares of other dealers leave when there are too many.
        """
        known = self._dealers.get(share)
        if known is not None:
            if len(known) < MAX_DEALERS:
                self._displace(dealer, share)
                known[dealer] = None
            return False
        self._displace(dealer, share)
        if len(self._dealers) >= DEALS_OF_DEALER * MAX_DEALERS:
            former = (
                stored for stored, dealers in self._dealers.items() if not any(other in hosts for other in dealers)
            )
            if (oldest := next(former, None)) is None:
                return False
            del self._dealers[oldest]
        self._dealers[share] = {dealer: None}
        return True

    def _displace(self, dealer: NodeId, new: KeyShare) -> None:
        """Withdraw a dealer's oldest share when it has too many with a new one."""
        others = [share for share, dealers in self._dealers.items() if dealer in dealers and share != new]
        if len(others) >= DEALS_OF_DEALER:
            del self._dealers[others[0]][dealer]
            if not self._dealers[others[0]]:
                del self._dealers[others[0]]
