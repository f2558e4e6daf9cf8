"""A state of the committed epoch is lost for ever: with its host, and with every fragment of what it saved last.

Only where the run may go back and the epoch before is whole, and while nothing newer was saved: what is looked at is the way back,
not whether more is lost than can be. Nor is it a host with a part of a sink: away when the run ends, it does not hear up to where
that is committed, which is a stated limit of sinks that move.
"""

from collections.abc import Iterator

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_recovery.wire.names import Run, Snapshot
from agiledart_recovery.wire.value import Assignment, Role, State, Value
from agiledart_simulation.runs.theatre import Theatre

_MOMENTS = 200
"""Looks at the run, 20 ms apart, for a moment in which nothing newer was saved."""

_AWAY_S = 20


class LosingStates:
    """Destroys elements of stages."""

    def __init__(self, run: Theatre, about: Run) -> None:
        self._run, self._about = run, about

    def lose(self) -> bool:
        """Let it happen; false when it can't now."""
        run = self._run
        if len(run.hosts) <= len(run.ids) - run.scenario.max_down:
            return False
        for _ in range(_MOMENTS):
            value = run.ledger.newest
            found = list(self._destructible(value)) if value is not None else []
            if found:
                self._destroy(*run.random.choice(found))
                return True
            run.world.run_for(20 * MILLISECOND)
        return False

    def _destructible(self, value: Value) -> Iterator[tuple[Assignment, Snapshot]]:
        """Parties, with what they saved last, without which the epoch before is as whole as it was."""
        if value.state is not State.RUNNING or value.earlier is None or value.gone_back is not None:
            return
        disks, parts = self._run.disks, [end.host for end in value.parts]
        free = [host.me.node for host in self._run.hosts if host.me.node not in parts]
        kept = {(saved.party, element.snapshot): element for saved in value.before for element in saved.chain}
        newest = {saved.party: saved.chain[-1] for saved in value.saved if saved.chain}
        if any(key in self._run.ledger.destroyed for key in value.needed):
            return
        for (party, _), element in kept.items():
            if any(element.holders) and self._run.ledger.fragments(self._about, party, element) < element.m:
                return
        for each in value.plan.of(Role.STAGE):
            last = newest.get(each.party)
            if last is None or (each.party, last.snapshot) in kept or each.host.node not in free:
                continue
            is_newer = any(
                party == each.party and snapshot.epoch > value.committed.epoch
                for disk in disks.values()
                for party, snapshot in disk.elements
            )
            if not is_newer:
                yield each, last.snapshot

    def _destroy(self, each: Assignment, snapshot: Snapshot) -> None:
        run, node = self._run, each.host.node
        run.crash(node, is_power=bool(run.random.index(2)))
        run.stays_down[node] = run.world.now + run.random.index(_AWAY_S) * SECOND
        run.ledger.destroyed[each.party, snapshot] = None
        for disk in run.disks.values():
            disk.elements.pop((each.party, snapshot), None)
            for key in [key for key in disk.fragments if (key.party, key.snapshot) == (each.party, snapshot)]:
                del disk.fragments[key]
                disk.owners.pop(key, None)
