"""What may happen to the hosts of a run: deaths, power cuts, sleeps, cuts of the network, changes of stages, lost disks."""

from collections.abc import Callable

import msgspec

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.attempts.generation_change import ChangeStep, next_generation
from agiledart_recovery.wire.events import ChangeRequested, VoterEvacuation
from agiledart_recovery.wire.names import InstanceId, RunId
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, Plan, RegisterValue, RunState, StageChange
from agiledart_simulation.pipeline.tables import GROUPS, drawn_table, encode_tables, tables_of
from agiledart_simulation.runs.protocol_run import ProtocolRun
from agiledart_simulation.runs.quorum_loss import QuorumLoss
from agiledart_simulation.runs.state_loss import StateLoss
from agiledart_simulation.world.faults import Pause, Weather, apply

RUN = RunId("taxi", 1)

_MOMENTS = 400
"""Looks at a change, 10 ms apart, for the moment to strike."""


class RecoveryFaults:
    """Carries out the kinds of the scenario `recovery`; each says whether it could."""

    def __init__(self, run: ProtocolRun) -> None:
        self._run, self._random = run, run.random
        self._kinds: dict[str, Callable[[], bool]] = {
            "kill": lambda: self._crash(is_power=False),
            "power": lambda: self._crash(is_power=True),
            "blackout": self._blackout,
            "restart": self._restart,
            "pause": self._pause,
            "rival": self._rival,
            "partition": self._partition,
            "heal": self._heal,
            "weather": self._weather,
            "wipe": self._wipe,
            "replace": self._replace,
            "handover": self._handover,
            "silence": self._silence,
            "strike": self._strike,
            "grow": self._grow,
            "shrink": self._shrink,
            "rebalance": self._rebalance,
            "drain": self._drain,
            "both": self._both,
            "resign": self._resign,
            "stall": self._stall,
            "forsake": QuorumLoss(run, RUN).lose_quorum,
            "lose": StateLoss(run, RUN).lose,
        }

    def do(self, kind: str) -> bool:
        """Let it happen; false when it can't now."""
        return self._kinds[kind]()

    def _up(self) -> list[NodeId]:
        return [node.peer.node for node in self._run.world.live]

    def _spare(self) -> bool:
        return len(self._run.ids) - len(self._up()) < self._run.scenario.max_down

    def _crash(self, *, is_power: bool) -> bool:
        if not self._spare():
            return False
        self._run.crash(self._random.choice(self._up()), is_power=is_power)
        return True

    def _blackout(self) -> bool:
        """The power goes everywhere, and comes back here and there."""
        for node in self._up():
            self._run.crash(node, is_power=True)
        for node in self._run.ids:
            delay = int(3 * SECOND * self._random.uniform())
            self._run.world.call(delay, lambda node=node: self._run.start(node))  # type: ignore[misc]
        return True

    def _restart(self) -> bool:
        up = self._up()
        down = [node for node in self._run.ids if node not in up]
        if not down:
            return False
        self._run.start(self._random.choice(down))
        return True

    def _pause(self) -> bool:
        span = int(self._run.scenario.max_pause_ms * MILLISECOND * self._random.uniform())
        apply(self._run.world, Pause(self._random.choice(self._up() or [self._run.ids[0]]), span))
        return True

    def _rival(self) -> bool:
        """The coordinator sleeps long enough for another one to take over, then goes on as if nothing had been."""
        leaders = [host.me.node for host in self._run.hosts if self._run.leads(host)]
        if not leaders:
            return False
        apply(self._run.world, Pause(leaders[0], 4 * SECOND + int(3 * SECOND * self._random.uniform())))
        return True

    def _partition(self) -> bool:
        side = tuple(node for node in self._run.ids if self._random.index(2))
        self._run.world.network.partition(side)
        return True

    def _heal(self) -> bool:
        self._run.world.heal()
        return True

    def _weather(self) -> bool:
        scenario = self._run.scenario
        loss = scenario.loss * self._random.uniform()
        apply(self._run.world, Weather(loss, scenario.duplicate, scenario.reorder))
        return True

    def _wipe(self) -> bool:
        """A node that nothing is pinned to gets a new disk: once in a run, so that k = 1 has to be enough."""
        run = self._run
        # With one host dead and another without its disk, two of the holders are lost: more than promised.
        free = [node for node in run.ids if run.may_lose_disk(node) and not run.disks[node].wipes]
        if not free or any(disk.wipes for disk in run.disks.values()):
            return False
        node = self._random.choice(free)
        if run.world.nodes[node].is_up:
            run.crash(node, is_power=True)
        run.disks[node].wipe()
        return True

    def _replace(self) -> bool:
        """A voter stays away for longer than the others' patience."""
        value = self._run.ledger.newest
        if value is None or not self._spare():
            return False
        voter = self._random.choice(value.voters).peer.node
        if not self._run.world.nodes[voter].is_up:
            return False
        self._run.crash(voter, is_power=False)
        self._run.stays_down[voter] = self._run.world.now + 12 * SECOND
        return True

    def _resign(self) -> bool:
        """A voter, who may be the coordinator, gives its seat away, and is asked to for a while."""
        run, value = self._run, self._run.ledger.newest
        if value is None or value.state is not RunState.RUNNING:
            return False
        voter = self._random.choice(value.voters)
        for _ in range(12):
            for host in run.hosts:
                if run.leads(host):
                    run.world.inject(host.me.node, VoterEvacuation(RUN, voter.peer))
            run.wait(500 * MILLISECOND)
            newest = run.ledger.newest
            if newest is not None and all(
                voter.voter_id != one.voter_id for one in (*newest.voters, *newest.old_voters)
            ):
                run.reached("seat given")
                return True
        return False

    def _stall(self) -> bool:
        """A disk stands still, for longer than an epoch may take or not; what its node says and hears goes on."""
        up = self._up()
        if up:
            self._run.stall(self._random.choice(up), (3 + self._random.index(10)) * SECOND)
        return bool(up)

    def _silence(self) -> bool:
        """A live source falls silent for a while; barriers go on."""
        run = self._run
        run.silent_until[self._random.index(2)] = run.world.now + int(8 * SECOND * self._random.uniform())
        return True

    def _strike(self) -> bool:
        """A death at a moment of a change that is drawn: of the coordinator, of an old place, of a new one."""
        run = self._run
        if not self._spare() or not self._change(lambda _, before: [*before[1:], self._random.choice(run.ids)]):
            return False
        step = self._random.choice((ChangeStep.PREPARING, ChangeStep.CHECKPOINTING_FASTER, ChangeStep.CARRIED))
        who = self._random.choice(("coordinator", "old", "new"))
        for _ in range(_MOMENTS):
            run.world.run_for(10 * MILLISECOND)
            for host in run.hosts:
                coordinator = host.machine.coordinators.get(RUN)
                if (
                    coordinator is not None
                    and run.leads(host)
                    and coordinator.commit_protocol.generation_change.step is step
                ):
                    return self._hit(who, step, host.me.node, coordinator)
        return False

    def _hit(self, who: str, step: ChangeStep, node: NodeId, coordinator: Coordinator) -> bool:
        stages = [change.stage for change in coordinator.commit_protocol.generation_change.plan.changes]
        plans = {"old": coordinator.value.plan, "new": coordinator.commit_protocol.generation_change.plan}
        if who in plans:
            places = [
                assignment.host.node for assignment in plans[who].assignments if assignment.instance.stage in stages
            ]
            node = self._random.choice(places)
        if node not in self._up():
            return False
        self._run.crash(node, is_power=bool(self._random.index(2)))
        self._run.reached(f"{who} died while {step.value}")
        return True

    # ---- changes

    def _handover(self) -> bool:
        """A stage is to move, whole, to a node."""
        return self._change(lambda stage, before: [self._random.choice(self._run.ids)] * len(before))

    def _grow(self) -> bool:
        return self._change(lambda stage, before: [*before, self._random.choice(self._run.ids)])

    def _shrink(self) -> bool:
        return self._change(lambda stage, before: before[:-1])

    def _rebalance(self) -> bool:
        """Other owners in the same places."""
        return self._change(lambda stage, before: before)

    def _drain(self) -> bool:
        """All stages leave one node."""
        value = self._run.ledger.newest
        stages = value.plan.of(InstanceRole.STAGE) if value is not None else ()
        node = self._random.choice([stage.host.node for stage in stages] or self._run.ids)
        others = [other for other in self._run.ids if other != node]
        return self._change(
            lambda stage, before: [self._random.choice(others) if host == node else host for host in before],
            len(self._run.ids),
        )

    def _both(self) -> bool:
        """Several stages in one barrier, adjacent ones too."""
        return self._change(lambda stage, before: [*before, self._random.choice(self._run.ids)], 3)

    def _change(self, places: Callable[[str, list[NodeId]], list[NodeId]], most: int = 1) -> bool:
        """Ask whoever coordinates; the second of two rivals sometimes wants something else."""
        leaders = [host for host in self._run.hosts if self._run.leads(host)]
        value = self._run.ledger.newest
        if not leaders or value is None or value.state is not RunState.RUNNING:
            return False
        asked = False
        for host in leaders:
            plan = self._changed(value, places, most)
            if plan is not None:
                asked = True
                self._run.world.inject(host.me.node, ChangeRequested(value.run, plan))
        return asked

    def _changed(
        self, value: RegisterValue, places: Callable[[str, list[NodeId]], list[NodeId]], most: int
    ) -> Plan | None:
        names = list(dict.fromkeys(each.instance.stage for each in value.plan.of(InstanceRole.STAGE)))
        self._random.shuffle(names)
        tables, made, changes = tables_of(value.plan), list(value.plan.assignments), []
        for stage in names[:most]:
            before = [each.host.node for each in value.plan.stage(stage)]
            nodes = places(stage, before)
            if not 1 <= len(nodes) <= GROUPS or (most > 1 and nodes == before):
                continue
            generation = next_generation(value, stage)
            changes.append(StageChange(stage, generation, len(before), len(nodes), "scale", "the scenario"))
            if stage in tables or len(nodes) > 1:
                tables[stage] = drawn_table(self._random, len(nodes))
            at = next(place for place, each in enumerate(made) if each.instance.stage == stage)
            if_lost = made[at].if_lost
            made = [each for each in made if each.instance.stage != stage]
            made[at:at] = [
                Assignment(
                    InstanceId(stage, generation, index),
                    InstanceRole.STAGE,
                    self._run.world.nodes[node].peer,
                    if_lost=if_lost,
                )
                for index, node in enumerate(nodes)
            ]
        if not changes:
            return None
        return msgspec.structs.replace(
            value.plan, assignments=tuple(made), body=encode_tables(tables), changes=tuple(changes)
        )
