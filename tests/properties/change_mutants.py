"""Planted faults of a change: parts of the hand-over, left out. Each must show in some run of `test_changes.py`."""

from collections.abc import Callable
from typing import Any

import pytest

from agiledart_dataflow.data.position import END, final_watermark
from agiledart_dataflow.plan.stage_plan import StagePlan, index_of
from agiledart_dataflow.runtime.alignment import Alignment
from agiledart_dataflow.runtime.arrivals import Arrivals
from agiledart_dataflow.runtime.generation_handover import GenerationHandover, Successor
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.merge import Merge
from agiledart_dataflow.runtime.outbox import Outbox
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.store import MemoryStore
from tests.reference.changing_host import ChangingHost

Plant = Callable[[pytest.MonkeyPatch], None]


def switches_early(patch: pytest.MonkeyPatch) -> None:
    """The batch before the barrier goes by the new table."""
    send_barrier = SourceInstance.send_barrier

    def early(self: Any, barrier: int, emit: Any, change: bytes = b"", program: Any = None) -> bytes:
        if program is not None:
            before = self._outbox.plan
            self._outbox.retarget(program.plan)
            if (polled := self.poll(0, 0, 3)).batch is not None:
                self.send(polled.batch, emit)
            self._outbox.retarget(before)
        return send_barrier(self, barrier, emit, change, program)

    patch.setattr(SourceInstance, "send_barrier", early)


def switches_late(patch: pytest.MonkeyPatch) -> None:
    """The batch behind the barrier goes by the old table."""
    send_barrier, send = SourceInstance.send_barrier, SourceInstance.send

    def late(self: Any, barrier: int, emit: Any, change: bytes = b"", program: Any = None) -> bytes:
        self.turns_to = program
        return send_barrier(self, barrier, emit, change)

    def sent(self: Any, batch: Any, emit: Any) -> None:
        send(self, batch, emit)
        if (program := getattr(self, "turns_to", None)) is not None:
            self.turns_to = None
            self._outbox.retarget(program.plan)

    patch.setattr(SourceInstance, "send_barrier", late)
    patch.setattr(SourceInstance, "send", sent)


def closed_counts_as_ended(patch: pytest.MonkeyPatch) -> None:
    """An old instance goes beyond the first barrier."""
    offer_barrier = Instance.offer_barrier

    def offered(self: Any, edge: int, source: int, batch: Any) -> None:
        offer_barrier(self, edge, source, batch)
        if isinstance(self._inbox, Merge) and self._ends_at(batch.barrier):
            self._inbox._inputs[edge, source].watermark = (END, END)

    patch.setattr(Instance, "offer_barrier", offered)


def requests_not_compared(patch: pytest.MonkeyPatch) -> None:
    """An instance that some inputs have notified of a change stops, although others have not."""
    patch.setattr(Alignment, "advance", _advanced_by_first)


def _advanced_by_first(self: Any) -> bool:
    if max(self._passed.values()) <= self.complete:
        return False
    self.complete += 1
    return True


def restored_frontier_falls(patch: pytest.MonkeyPatch) -> None:
    """A snapshot that is taken before all has come again says less than the one before it."""
    refill = Merge._refill

    def falls(self: Any) -> None:
        self.frontier = (-END,)
        refill(self)

    patch.setattr(Merge, "_refill", falls)


def has_inputs(patch: pytest.MonkeyPatch, change: Callable[[Any, Any], tuple[Any, Any]]) -> None:
    inputs = GenerationHandover._inputs
    patch.setattr(GenerationHandover, "_inputs", lambda self: change(*inputs(self)))


def takes_in_wrongly(patch: pytest.MonkeyPatch, what: Callable[[Any, Any], None]) -> None:
    """Something is wrong with each channel that is taken in."""
    for kind in (Merge, Arrivals):

        def wrong(self: Any, edge: int, source: int, batch: Any, new: Any, before: Any = kind.offer_last) -> None:
            known = set(self._inputs)
            before(self, edge, source, batch, new)
            for name, channel in self._inputs.items():
                if name not in known:
                    what(self, (name, channel))

        patch.setattr(kind, "offer_last", wrong)


def no_cut(inbox: Any, taken: Any) -> None:
    if isinstance(inbox, Merge):
        taken[1].cuts.clear()


def too_high(_: Any, taken: Any) -> None:
    taken[1].watermark = final_watermark(None)


def at_once(inbox: Any, taken: Any) -> None:
    inbox._alignment._passed[taken[0]] = inbox._alignment.complete
    inbox._alignment._ended[taken[0]] = True


def term_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """A channel is known by its index."""
    takes_in = Instance.takes_in

    def by_index(self: Any, edge: int, source: int) -> bool:
        return takes_in(self, edge, source) or any(
            (one[0], index_of(one[1])) == (edge, index_of(source)) and one[1] < source for one in self._inbox._inputs
        )

    def offered(kind: Any) -> Any:
        offer, consumed = kind.offer, kind.consumed

        def named(self: Any, edge: int, source: int) -> int:
            found = [one for one in self._inputs if (one[0], index_of(one[1])) == (edge, index_of(source))]
            return source if (edge, source) in self._inputs or not found else int(found[0][1])

        patch.setattr(
            kind, "offer", lambda self, edge, source, batch: offer(self, edge, named(self, edge, source), batch)
        )
        patch.setattr(kind, "consumed", lambda self, edge, source: consumed(self, edge, named(self, edge, source)))

    patch.setattr(Instance, "takes_in", by_index)
    offered(Merge)
    offered(Arrivals)


def no_timers(patch: pytest.MonkeyPatch) -> None:
    """Timers stay."""
    give = MemoryStore.hand_over_group
    patch.setattr(MemoryStore, "hand_over_group", lambda self, group: (give(self, group)[0], []))
    encode = EntryCodec.encode_group
    patch.setattr(EntryCodec, "encode_group", lambda self, entries, timers: encode(self, entries, []))


def counts_as_caught_up(patch: pytest.MonkeyPatch) -> None:
    """A change comes right behind a roll-back."""
    for kind in (Merge, Arrivals):
        patch.setattr(kind, "is_caught_up", True)
    patch.setattr(ChangingHost, "_may_change", property(lambda self: True, lambda self, value: None), raising=False)


def begins_at_first(patch: pytest.MonkeyPatch) -> None:
    """A new instance does not wait for the others."""
    init = Successor.__init__

    def impatient(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        self.needs = self.needs[:1]

    patch.setattr(Successor, "__init__", impatient)


def taken_twice(patch: pytest.MonkeyPatch) -> None:
    """Something left that comes again counts as another one's."""

    def handed(self: Any, left: Any) -> bool:
        if self.has_begun:
            return False
        self.came = [*getattr(self, "came", []), left]
        if len(self.came) < len(self.needs):
            return False
        self.has_begun = True
        self._begin(self.came)
        return True

    patch.setattr(Successor, "hand", handed)


def shared(patch: pytest.MonkeyPatch) -> None:
    """The old owner keeps what it has given: its timers fire once more, where its other groups are saved."""

    def kept(self: Any, group: int) -> Any:
        return {key: self._entries[key] for key in self._by_group().get(group, {})}, []

    patch.setattr(MemoryStore, "hand_over_group", kept)


MUTANTS: dict[str, tuple[Plant, bool]] = {
    "a sender switches early": (switches_early, False),
    "a sender switches late": (switches_late, False),
    "a closed input counts as ended": (closed_counts_as_ended, False),
    "one stops before its frontier": (
        lambda p: p.setattr(Instance, "_is_draining_before", lambda self, barrier: False),
        False,
    ),
    "queued rows stay": (lambda p: p.setattr(GenerationHandover, "_queues", lambda self: {}), False),
    "timers stay": (no_timers, False),
    "groups stay": (lambda p: p.setattr(GenerationHandover, "state_into", lambda self, state: None), False),
    "both hold a group": (shared, False),
    "one begins at the first": (begins_at_first, False),
    "what is left counts twice": (taken_twice, False),
    "the new term is taken at once": (lambda p: takes_in_wrongly(p, at_once), False),
    "a new channel too high": (lambda p: takes_in_wrongly(p, too_high), False),
    "its rows in the snapshot": (lambda p: takes_in_wrongly(p, no_cut), True),
    "taken in one by one": (
        lambda p: p.setattr(
            StagePlan, "followers", lambda self, edge, source: self.members(self.edges[edge].source)[:1] or (0,)
        ),
        False,
    ),
    "the term is not fenced": (term_not_fenced, False),
    "barriers are not waited for": (requests_not_compared, False),
    "a change before all have caught up": (counts_as_caught_up, True),
    "ends are not told": (lambda p: has_inputs(p, lambda here, ended: (here, [])), False),
    "merges hold credit back": (lambda p: p.setattr(Instance, "expect_change", lambda self, barrier: None), False),
    "the frontier falls after a restore": (restored_frontier_falls, True),
    "the old table stays": (lambda p: p.setattr(Outbox, "retarget", lambda self, plan: None), False),
}
"""Name → how it is planted, and whether roll-backs are needed to see it."""
