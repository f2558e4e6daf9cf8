"""Scheduler slots on the ring: one record for each (domain, index) names the holder and its term.

A claim is a compare-and-set of that record. So of several elections at one time one decides, and the others learn its winner.
The ring's root is no lock: in a partition there are two. A holder therefore reads its record from time to time, and steps down
when
the record names another node. Of two records the later term counts; within one term a resignation, else the greater id.
"""

import msgspec

from agiledart_kernel.codec import Codec
from agiledart_kernel.counts import saturating_increment
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_kernel.node_id import NodeId, key_of_name
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.records.record_kind import RecordKind
from agiledart_node.records.records import Records
from agiledart_node.scheduling.messages import SchedulerSlot


class Claim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Record of a scheduler slot; `winner` is None after a resignation."""

    scheduler_slot: SchedulerSlot
    winner: Peer | None


CLAIM_CODEC: Codec[Claim] = Codec(Claim, limit=MAX_RECORD_BYTES)


def scheduler_slot_key(domain: str, index: int) -> NodeId:
    """Return the key of a scheduler slot's record: hash("scheduler", domain, index)."""
    return key_of_name("scheduler", f"{domain}\0{index}")


class Claims:
    """Reads and writes of scheduler slot records; each method is part of a conversation."""

    def __init__(self, context: NodeContext, records: Records) -> None:
        self._context, self._records = context, records

    async def read(self, domain: str, index: int) -> tuple[int, Claim | None] | None:
        """Return (version of the record, claim) of a scheduler slot; None when the ring does not answer."""
        answer = await self._records.read(scheduler_slot_key(domain, index))
        if answer.ok:
            return answer.version, self._decoded(answer.value)
        return (0, None) if answer.reason == "missing" else None

    async def claim(self, domain: str, index: int, winner: Peer, seen: tuple[int, Claim | None]) -> Claim | None:
        """Give a scheduler slot to a winner unless another election was faster.

        Returns:
            The claim that is stored now; None when the ring does not answer.
        """
        version, before = seen
        claim = Claim(
            SchedulerSlot(domain, index, saturating_increment(before.scheduler_slot.term) if before is not None else 1),
            winner,
        )
        answer = await self._records.store(scheduler_slot_key(domain, index), version, CLAIM_CODEC.encode(claim))
        if answer.ok:
            return claim
        return self._decoded(answer.value) if answer.reason == "conflict" else None

    async def give_up(self, scheduler_slot: SchedulerSlot, me: Peer) -> None:
        """Record that a scheduler slot is free, if this node still holds it."""
        seen = await self.read(scheduler_slot.domain, scheduler_slot.index)
        if seen is not None and seen[1] == Claim(scheduler_slot, me):
            value = CLAIM_CODEC.encode(Claim(scheduler_slot, None))
            await self._records.store(scheduler_slot_key(scheduler_slot.domain, scheduler_slot.index), seen[0], value)

    def _decoded(self, value: bytes) -> Claim | None:
        try:
            return CLAIM_CODEC.decode(value)
        except RemoteProtocolError:
            self._context.drop("record form")
            return None


def merged_claims(earlier: Claim, later: Claim) -> Claim:
    """Return the claim that counts."""

    def weight(claim: Claim) -> tuple[int, bool, NodeId]:
        return (
            claim.scheduler_slot.term,
            claim.winner is None,
            claim.winner.node if claim.winner is not None else NodeId(0),
        )

    return earlier if weight(earlier) > weight(later) else later


CLAIMS = RecordKind(
    CLAIM_CODEC,
    lambda claim, key: scheduler_slot_key(claim.scheduler_slot.domain, claim.scheduler_slot.index) == key,
    merged_claims,
)
