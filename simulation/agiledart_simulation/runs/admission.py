"""Runs about admission alone: one fault at every moment of a join, and flash crowds. Storms of faults are an ordinary run.

Links take 5 to 100 ms, so that a join is long enough to be hit, and `ownership_checker` checks every key after every event.

Source: the project's overlay specification §5, step 7; the shape of the experiments is that of its reliability notes.
"""

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_overlay.wire.events import LeaveRing
from agiledart_simulation.runs.ring_run import RingRun


class MomentRun(RingRun):
    """Run in which joiners enter one key range of a quiet ring, and a moment later a fault hits one of the nodes concerned.

    A ring of one is gone when its only member dies before its first joiner is a member. Then only one thing is expected: no key
    has two owners.
    """

    watched_keys = 64
    _is_lost = False

    def _harass(self) -> None:
        scenario, hostile, world, random = self.scenario, self.hostile, self.ring.world, self.random
        world.run_until(self._is_quiet, 20 * SECOND, SECOND // 2)
        ids, size = sorted(hostile.ids), 1 << self.bits
        range_owner, successor = ids[0], ids[1 % len(ids)]
        key_range, parts = (successor - range_owner) % size or size, scenario.steps + 2
        joiners = [NodeId((range_owner + key_range * (index + 1) // parts) % size) for index in range(scenario.steps)]
        for node in joiners:
            hostile.start(node, [ids[-1], range_owner])
        world.run_for(scenario.step_ms * MILLISECOND)
        (kind,) = scenario.kinds
        fault, _, role = kind.partition("-")
        hostile.count(kind)
        victim = {"joiner": joiners[0], "range-owner": range_owner, "successor": successor}.get(role, range_owner)
        if fault in ("crash", "restart"):
            hostile.kill(victim, silent=fault == "crash")
        if fault == "restart":
            hostile.start(victim, [node for node in (*ids, *joiners) if node != victim][: scenario.seeds_each])
        elif fault == "leave":
            world.inject(victim, LeaveRing())
        elif fault == "pause":
            hostile.pause(victim, int(random.between(0.2, 0.55) * scenario.max_pause_ms * MILLISECOND))
        world.run_for(0)
        self._is_lost = scenario.nodes == 1 and not hostile.up()
        if self._is_lost:
            hostile.count("ring-lost")

    def _is_quiet(self) -> bool:
        return self._is_lost or super()._is_quiet()

    def _check_outcome(self) -> None:
        if not self._is_lost:
            super()._check_outcome()


class CrowdRun(RingRun):
    """Run in which all nodes but the first join at once, or one every so often; the rest begins after the last start."""

    watched_keys = 64

    def _build(self) -> None:
        scenario, hostile, world = self.scenario, self.hostile, self.ring.world
        hostile.do(hostile.weather(1.0))
        hostile.start(hostile.ids[0], [])
        world.run_for(SECOND)
        interval = scenario.step_ms * MILLISECOND or 10 * MILLISECOND // scenario.nodes
        for index, node in enumerate(hostile.ids[1:], start=1):
            world.run_for(interval)
            hostile.start(node, [hostile.ids[self.random.index(index)], hostile.ids[0]])
        hostile.count("join")

    def _rest(self) -> int:
        world = self.ring.world
        started = world.now
        world.run_until(self._is_quiet, self.scenario.quiet_s * SECOND, SECOND // 10)
        took = world.now - started
        super()._rest()
        return took
