"""Upcoming generations in an executor: the steps of a stage change before, at and after the barrier that carries it.

    prepared     instances of the next generation wait; links and channels of their plan are open, and carry nothing
    barrier      senders and receivers switch over by themselves (`Instance`, `InstanceHost`)
    preloaded    waiting instances build committed state that they will take over from other processes
    handed over  by reference from an instance in this process, else by a snapshot on this disk; complete instances begin
    dropped      waiting instances and their channels are closed, as if the change had not been requested

Source: scaling specification, section 8.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agiledart_dataflow.plan.deployment import DeploymentPart, SnapshotChain
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan, member
from agiledart_dataflow.runtime.generation_handover import ChangeFailed, SnapshotParts, Successor
from agiledart_dataflow.runtime.program import Program
from agiledart_executor.handover.previous_generation import ReadSnapshot, previous_stage
from agiledart_executor.handover.state_preload import StatePreload
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import InputEnd, RunningInstance
from agiledart_executor.wire.agent_messages import PreloadSnapshots, PreviousStateStored
from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.node_id import NodeId


@dataclass(eq=False)
class _PendingGeneration:
    """Plan that a barrier may bring: the instances that wait for it, and the channels that were opened for it.

    Attributes:
        program: user code joined with the plan.
        waiting: (stage, instance) → the waiting instance, and its successor once the previous stage is known.
        inputs, outputs: channels that were opened for the plan, with their instances.
        preloads: preloaded state of the waiting instances.
        before: changing stages as they were in the previous generation, once one of their instances has handed over.
    """

    program: Program
    waiting: dict[tuple[int, int], tuple[RunningInstance, Successor | None]] = field(default_factory=dict)
    inputs: list[tuple[RunningInstance, tuple[int, int]]] = field(default_factory=list)
    outputs: list[tuple[RunningInstance, tuple[int, int]]] = field(default_factory=list)
    preloads: dict[tuple[int, int], StatePreload] = field(default_factory=dict)
    before: dict[int, Stage] = field(default_factory=dict)

    def successor(self, key: tuple[int, int]) -> Successor | None:
        """Return the successor of a waiting instance; None while its previous stage is unknown."""
        running, successor = self.waiting[key]
        if successor is None and key[0] in self.before:
            assert running.instance is not None  # sources never change
            after = self.program.plan.stages[key[0]]
            successor = Successor(self.before[key[0]], after, running.instance.index, running.instance.take_over)
            self.waiting[key] = running, successor
        return successor

    def preload_of(self, key: tuple[int, int], read: ReadSnapshot) -> StatePreload:
        """Return the preloaded state of a waiting instance."""
        return self.preloads.setdefault(key, StatePreload(self.waiting[key][0], read))

    def end_preload(self, key: tuple[int, int]) -> None:
        """Stop the preload of an instance that has begun or was dropped."""
        preload = self.preloads.pop(key, None)
        if preload is not None:
            preload.is_over = True


class UpcomingGenerations:
    """Plans that later barriers may bring to one executor.

    Args:
        host: of its instances.
        on_failure: called with an instance that cannot begin or go on because of a change, and the reason.
    """

    def __init__(self, host: InstanceHost, on_failure: Callable[[RunningInstance, str], None]) -> None:
        self._host, self._on_failure = host, on_failure
        self._generations: dict[bytes, _PendingGeneration] = {}
        host.on_handed_over = self._left

    def plan(self, name: bytes, program: Program) -> Program:
        """Register a plan by its name and return the program that was first registered under that name."""
        for other, generation in list(self._generations.items()):
            if other != name and not generation.waiting:  # its barrier has come, and all instances follow it
                del self._generations[other], self._host.programs[other]
        generation = self._generations.setdefault(name, _PendingGeneration(program))
        self._host.programs[name] = generation.program
        return generation.program

    def wait(self, name: bytes, running: RunningInstance) -> None:
        """Let an instance of a plan wait for its state; it buffers the frames that come until then."""
        running.has_begun = False
        assert running.instance is not None  # sources never change
        plan = running.instance.plan
        for channel in plan.inputs(running.stage, running.instance.index):
            running.inputs[channel] = _buffering_input()
        self._generations[name].waiting[running.stage, running.index] = running, None
        self._host.running[running.stage, running.index] = running

    def open_inputs(self, name: bytes) -> None:
        """Open the new channels of a plan at instances that stay; they buffer frames until a barrier brings the plan."""
        generation = self._generations[name]
        after = generation.program.plan
        for running in self._continuing_instances(after):
            if running.instance is not None:
                for channel in after.inputs(running.stage, running.instance.index):
                    if channel not in running.inputs:
                        running.inputs[channel] = _buffering_input()
                        generation.inputs.append((running, channel))

    def missing_outputs(self, name: bytes) -> list[tuple[RunningInstance, int, int]]:
        """Return (instance, edge, target) of each channel that a plan needs and that is not open yet."""
        generation = self._generations[name]
        after = generation.program.plan
        senders = [*self._continuing_instances(after), *(running for running, _ in generation.waiting.values())]
        return [
            (running, edge.index, target)
            for running in senders
            for edge in after.outgoing(running.stage)
            for target in after.targets(edge.index, running.index)
            if (edge.index, target) not in running.outputs
        ]

    def opened(self, name: bytes, running: RunningInstance, channel: tuple[int, int]) -> None:
        """Record a channel that was opened for a plan."""
        self._generations[name].outputs.append((running, channel))

    def ready(self, name: bytes) -> None:
        """Start using the channels of a plan, all of which are open now."""
        for running in self._continuing_instances(self._generations[name].program.plan):
            running.take_outputs()
        for running, _ in self._generations[name].waiting.values():
            self._host.add(running)

    def _continuing_instances(self, after: StagePlan) -> list[RunningInstance]:
        """Return the instances whose stage keeps its generation in a plan."""
        continuing = []
        for running in self._host.running.values():
            part = running.instance or running.source
            if part is None or not running.has_begun or running.has_handed_over or running.broken:
                continue
            if part.plan.stages[running.stage].generation == after.stages[running.stage].generation:
                continuing.append(running)
        return continuing

    def drop(self, name: bytes) -> None:
        """Drop a plan that will not come: close its waiting instances and its channels."""
        generation = self._generations.pop(name, None)
        self._host.programs.pop(name, None)
        if generation is None:
            return
        for running, channel in generation.inputs:
            running.inputs.pop(channel, None)
        for running, channel in generation.outputs:
            if (output := running.outputs.pop(channel, None)) is not None:
                output.close()
                running.take_outputs()
        for key, (running, _) in generation.waiting.items():
            generation.end_preload(key)
            self._host.running.pop(key, None)
            running.close()

    def _left(self, running: RunningInstance) -> None:
        """Hand the final snapshot of a local instance over to the waiting instances, by reference."""
        instance = running.instance
        assert instance is not None  # sources never change
        assert instance.final_snapshot is not None  # set before the host calls this
        for generation in self._generations.values():
            if keys := [key for key in generation.waiting if key[0] == running.stage]:
                generation.before.setdefault(running.stage, instance.plan.stages[running.stage])
                for key in keys:
                    self._hand_over(generation, key, instance.final_snapshot, running.barrier)

    async def receive_previous_state(self, message: PreviousStateStored, read: ReadSnapshot) -> None:
        """Hand the final snapshot of a remote instance, which is on this disk now, over to the waiting instances."""
        generation = self._generations.get(message.after)
        if generation is None:
            return
        stage, index = message.origin.stage, message.origin.index
        saved = SnapshotChain(stage, index, message.digest, message.before)
        for key in [key for key in generation.waiting if key[0] == stage]:
            if not self._waits(generation, message.after, key) or not _may_need(generation, key, index):
                continue
            running, _ = generation.waiting[key]
            try:
                header, left = await generation.preload_of(key, read).receive_previous_state(saved)
            except AgileDartError as error:
                if self._waits(generation, message.after, key):
                    self._on_failure(running, str(error))
                continue
            if not self._waits(generation, message.after, key):
                continue
            assert running.instance is not None  # as above
            generation.before.setdefault(stage, previous_stage(running.instance, header))
            self._hand_over(generation, key, left, message.epoch)

    def _waits(self, generation: _PendingGeneration, name: bytes, key: tuple[int, int]) -> bool:
        """Return True while an instance still waits: during a read it may have begun with local state, or been dropped."""
        return key in generation.waiting and generation is self._generations.get(name)

    async def preload_state(self, message: PreloadSnapshots, read: ReadSnapshot) -> None:
        """Let the instances that wait for a plan build state from committed snapshots of remote instances.

        Raises:
            AgileDartError: a snapshot cannot be read, or does not fit.
        """
        generation = self._generations.get(message.plan_name)
        for key in () if generation is None else tuple(generation.waiting):
            if generation is not None and self._waits(generation, message.plan_name, key):
                mine = [
                    chain
                    for chain in message.snapshots
                    if chain.stage == key[0] and not self._is_local(generation, key, chain)
                ]
                await generation.preload_of(key, read).build(mine)

    def _is_local(self, generation: _PendingGeneration, key: tuple[int, int], saved: SnapshotChain) -> bool:
        """Return True when the instance of a snapshot runs in this process: its state is taken over by reference."""
        instance = generation.waiting[key][0].instance
        assert instance is not None  # sources never change
        return any(
            running.stage == saved.stage
            and running.instance is not None
            and running.instance is not instance
            and running.instance.index == saved.index
            and running.instance.plan.stages[saved.stage].generation != instance.plan.stages[saved.stage].generation
            for running in self._host.running.values()
        )

    def _hand_over(self, generation: _PendingGeneration, key: tuple[int, int], left: SnapshotParts, epoch: int) -> None:
        running, successor = generation.waiting[key][0], generation.successor(key)
        assert successor is not None, "the caller has recorded the previous stage"
        try:
            begins = successor.hand(left)
        except (ChangeFailed, AgileDartError) as error:
            self._on_failure(running, f"{running.name}: {error}")
            return
        if begins:
            del generation.waiting[key]
            generation.end_preload(key)
            running.has_begun = True
            running.barrier = running.wanted = epoch
            self._host.channels.admit_waiting(running)


def by_channel_number(plan: StagePlan, known: Mapping[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    """Return addresses keyed by (stage, instance as channels name it) instead of (stage, index)."""
    return {(stage, member(plan.stages[stage].generation, index)): address for (stage, index), address in known.items()}


def nodes_of(plan: StagePlan, part: DeploymentPart) -> dict[tuple[int, int], NodeId]:
    """Return (stage, instance as channels name it) → the node that runs the instance."""
    return {
        (stage, member(plan.stages[stage].generation, index)): peer.node
        for (stage, index), peer in part.places().items()
    }


def _may_need(generation: _PendingGeneration, key: tuple[int, int], which: int) -> bool:
    """Return True when a waiting instance may need the state of a previous instance."""
    successor = generation.successor(key)
    return successor is None or successor.misses(which)


def _buffering_input() -> InputEnd:
    """Return an input that buffers frames; it acknowledges the first one alone, because the sender measures when that happens."""
    end = InputEnd(waiting=[])
    end.channel.acknowledge_next()
    return end
