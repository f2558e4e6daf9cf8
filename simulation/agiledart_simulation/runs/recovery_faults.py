"""Faults of a run's hosts: deaths, power cuts, sleeps, partitions, changes of stages, lost disks."""

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
"""Checks of a change, 10 ms apart, for the moment to strike."""


class RecoveryFaults:
    """Faults of the scenario `recovery`; each method returns whether the fault was possible."""

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
            "lose-quorum": QuorumLoss(run, RUN).lose_quorum,
            "lose": StateLoss(run, RUN).lose,
        }

    def do(self, kind: str) -> bool:
        """Apply a fault; return false when it can't happen now."""
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
        """Cut the power everywhere, and bring nodes back one by one."""
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
        """Let the coordinator sleep long enough for another one to take over, then continue as if nothing had happened."""
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
        """Give a node without pinned instances a new disk: once in a run, so that k = 1 has to be enough."""
        run = self._run
        # With one host dead and another without its disk, two replica nodes are lost: more than promised.
        free = [node for node in run.ids if run.may_lose_disk(node) and not run.disks[node].wipes]
        if not free or any(disk.wipes for disk in run.disks.values()):
            return False
        node = self._random.choice(free)
        if run.world.nodes[node].is_up:
            run.crash(node, is_power=True)
        run.disks[node].wipe()
        return True

    def _replace(self) -> bool:
        """Keep a voter away for longer than the voter timeout."""
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
        """Ask a voter, which may be the coordinator, for a while to give its slot away."""
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
                voter.voter_id != other.voter_id for other in (*newest.voters, *newest.old_voters)
            ):
                run.reached("voter slot given")
                return True
        return False

    def _stall(self) -> bool:
        """Stop a disk, perhaps for longer than an epoch may take; the node's messages go on."""
        up = self._up()
        if up:
            self._run.stall(self._random.choice(up), (3 + self._random.index(10)) * SECOND)
        return bool(up)

    def _silence(self) -> bool:
        """Let a live source fall silent for a while; barriers go on."""
        run = self._run
        run.silent_until[self._random.index(2)] = run.world.now + int(8 * SECOND * self._random.uniform())
        return True

    def _strike(self) -> bool:
        """Kill a node at a drawn moment of a change: the coordinator, an old host, or a new one."""
        run = self._run
        if not self._spare() or not self._change(lambda _, before: [*before[1:], self._random.choice(run.ids)]):
            return False
        step = self._random.choice((ChangeStep.PREPARING, ChangeStep.CHECKPOINTING_FASTER, ChangeStep.CARRIED))
        target = self._random.choice(("coordinator", "old", "new"))
        for _ in range(_MOMENTS):
            run.world.run_for(10 * MILLISECOND)
            for host in run.hosts:
                coordinator = host.machine.coordinators.get(RUN)
                if (
                    coordinator is not None
                    and run.leads(host)
                    and coordinator.commit_protocol.generation_change.step is step
                ):
                    return self._hit(target, step, host.me.node, coordinator)
        return False

    def _hit(self, target: str, step: ChangeStep, node: NodeId, coordinator: Coordinator) -> bool:
        stages = [change.stage for change in coordinator.commit_protocol.generation_change.plan.changes]
        plans = {"old": coordinator.value.plan, "new": coordinator.commit_protocol.generation_change.plan}
        if target in plans:
            places = [
                assignment.host.node for assignment in plans[target].assignments if assignment.instance.stage in stages
            ]
            node = self._random.choice(places)
        if node not in self._up():
            return False
        self._run.crash(node, is_power=bool(self._random.index(2)))
        self._run.reached(f"{target} died while {step.value}")
        return True

    # ---- changes

    def _handover(self) -> bool:
        """Move a whole stage to a node."""
        return self._change(lambda stage, before: [self._random.choice(self._run.ids)] * len(before))

    def _grow(self) -> bool:
        return self._change(lambda stage, before: [*before, self._random.choice(self._run.ids)])

    def _shrink(self) -> bool:
        return self._change(lambda stage, before: before[:-1])

    def _rebalance(self) -> bool:
        """Change the owners of groups in the same places."""
        return self._change(lambda stage, before: before)

    def _drain(self) -> bool:
        """Move all stages away from one node."""
        value = self._run.ledger.newest
        stages = value.plan.of(InstanceRole.STAGE) if value is not None else ()
        node = self._random.choice([stage.host.node for stage in stages] or self._run.ids)
        others = [other for other in self._run.ids if other != node]
        return self._change(
            lambda stage, before: [self._random.choice(others) if host == node else host for host in before],
            len(self._run.ids),
        )

    def _both(self) -> bool:
        """Change several stages at one barrier, adjacent ones too."""
        return self._change(lambda stage, before: [*before, self._random.choice(self._run.ids)], 3)

    def _change(self, places: Callable[[str, list[NodeId]], list[NodeId]], most: int = 1) -> bool:
        """Request a change from every coordinator; the second of two rivals sometimes gets another plan."""
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
        names = list(dict.fromkeys(assignment.instance.stage for assignment in value.plan.of(InstanceRole.STAGE)))
        self._random.shuffle(names)
        tables, made, changes = tables_of(value.plan), list(value.plan.assignments), []
        for stage in names[:most]:
            before = [assignment.host.node for assignment in value.plan.stage(stage)]
            nodes = places(stage, before)
            if not 1 <= len(nodes) <= GROUPS or (most > 1 and nodes == before):
                continue
            generation = next_generation(value, stage)
            changes.append(StageChange(stage, generation, len(before), len(nodes), "scale", "the scenario"))
            if stage in tables or len(nodes) > 1:
                tables[stage] = drawn_table(self._random, len(nodes))
            at = next(place for place, assignment in enumerate(made) if assignment.instance.stage == stage)
            if_lost = made[at].if_lost
            made = [assignment for assignment in made if assignment.instance.stage != stage]
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
