"""Terms to come, in an executor: what a change of a stage asks of it before, at and after the barrier that carries it.

    prepared     instances of the next term wait; links and channels of their plan are open, and carry nothing
    the barrier  senders and receivers change over by themselves (`Instance`, `InstanceHost`)
    built ahead  what they will take over from other processes, as far as it is committed
    handed over  by reference from an instance beside them, else as an element on this disk: instances that have all begin
    let go       what waited is closed, as if nobody had asked

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
    """A plan that may come: whoever waits for it, and what was opened for it beside them.

    Attributes:
        before: stages that change, in the term before, as far as one of their instances has handed over.
    """

    program: Program
    waiting: dict[tuple[int, int], tuple[RunningInstance, Successor | None]] = field(default_factory=dict)
    inputs: list[tuple[RunningInstance, tuple[int, int]]] = field(default_factory=list)
    outputs: list[tuple[RunningInstance, tuple[int, int]]] = field(default_factory=list)
    preloads: dict[tuple[int, int], StatePreload] = field(default_factory=dict)
    before: dict[int, Stage] = field(default_factory=dict)

    def successor(self, key: tuple[int, int]) -> Successor | None:
        """What one that waits waits for; None: nobody has said yet what its stage was."""
        running, successor = self.waiting[key]
        if successor is None and key[0] in self.before:
            assert running.instance is not None  # sources never change
            after = self.program.plan.stages[key[0]]
            successor = Successor(self.before[key[0]], after, running.instance.index, running.instance.take_over)
            self.waiting[key] = running, successor
        return successor

    def preload_of(self, key: tuple[int, int], read: ReadSnapshot) -> StatePreload:
        """What one that waits has built."""
        return self.preloads.setdefault(key, StatePreload(self.waiting[key][0], read))

    def end_preload(self, key: tuple[int, int]) -> None:
        """It has begun, or never will."""
        preload_of = self.preloads.pop(key, None)
        if preload_of is not None:
            preload_of.is_over = True


class UpcomingGenerations:
    """The plans that may come to one executor.

    Args:
        host: its instances.
        fails: told of an instance that cannot begin or go on because of a change, and why.
    """

    def __init__(self, host: InstanceHost, on_failure: Callable[[RunningInstance, str], None]) -> None:
        self._host, self._on_failure = host, on_failure
        self._generations: dict[bytes, _PendingGeneration] = {}
        host.on_handed_over = self._left

    def plan(self, name: bytes, program: Program) -> Program:
        """Know a plan by its name; the program with it, the one that was known first."""
        for other, generation in list(self._generations.items()):
            if other != name and not generation.waiting:  # it has come, and all follow it
                del self._generations[other], self._host.programs[other]
        generation = self._generations.setdefault(name, _PendingGeneration(program))
        self._host.programs[name] = generation.program
        return generation.program

    def wait(self, name: bytes, running: RunningInstance) -> None:
        """Have an instance of a plan wait until it is handed over to; it takes frames in, and keeps them."""
        running.has_begun = False
        assert running.instance is not None  # sources never change
        plan = running.instance.plan
        for channel in plan.inputs(running.stage, running.instance.index):
            running.inputs[channel] = _buffering_input()
        self._generations[name].waiting[running.stage, running.index] = running, None
        self._host.running[running.stage, running.index] = running

    def open_inputs(self, name: bytes) -> None:
        """Let instances that stay take frames of channels of a plan, and keep them until a barrier tells of it."""
        generation = self._generations[name]
        after = generation.program.plan
        for running in self._continuing_instances(after):
            if running.instance is not None:
                for channel in after.inputs(running.stage, running.instance.index):
                    if channel not in running.inputs:
                        running.inputs[channel] = _buffering_input()
                        generation.inputs.append((running, channel))

    def missing_outputs(self, name: bytes) -> list[tuple[RunningInstance, int, int]]:
        """(instance, edge, target) of each channel that a plan needs and that is not there."""
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
        """One of them is there now."""
        self._generations[name].outputs.append((running, channel))

    def ready(self, name: bytes) -> None:
        """All is open for a plan."""
        for running in self._continuing_instances(self._generations[name].program.plan):
            running.take_outputs()
        for running, _ in self._generations[name].waiting.values():
            self._host.add(running)

    def _continuing_instances(self, after: StagePlan) -> list[RunningInstance]:
        """Instances whose stage keeps its term in a plan."""
        found = []
        for running in self._host.running.values():
            part = running.instance or running.source
            if part is None or not running.has_begun or running.has_handed_over or running.broken:
                continue
            if part.plan.stages[running.stage].generation == after.stages[running.stage].generation:
                found.append(running)
        return found

    def drop(self, name: bytes) -> None:
        """A plan will not come."""
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
        """An instance beside those that wait has handed over: what they take of it stays where it is."""
        instance = running.instance
        assert instance is not None  # sources never change
        assert instance.left is not None  # it is told of then
        for generation in self._generations.values():
            if keys := [key for key in generation.waiting if key[0] == running.stage]:
                generation.before.setdefault(running.stage, instance.plan.stages[running.stage])
                for key in keys:
                    self._hand_over(generation, key, instance.left, running.barrier)

    async def receive_previous_state(self, message: PreviousStateStored, read: ReadSnapshot) -> None:
        """What an instance elsewhere left has come to this disk."""
        generation = self._generations.get(message.after)
        if generation is None:
            return
        stage, which = message.origin.stage, message.origin.index
        saved = SnapshotChain(stage, which, message.digest, message.before)
        for key in [key for key in generation.waiting if key[0] == stage]:
            if not self._waits(generation, message.after, key) or not _may_need(generation, key, which):
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
        """Does one still wait? While something is read it may have begun, with what was handed over beside it, or been let go."""
        return key in generation.waiting and generation is self._generations.get(name)

    async def preload_state(self, message: PreloadSnapshots, read: ReadSnapshot) -> None:
        """Have those that wait for a plan build what others have saved of what they will take over.

        Raises:
            AgileDartError: it cannot be read, or does not fit.
        """
        generation = self._generations.get(message.plan_name)
        for key in () if generation is None else tuple(generation.waiting):
            if generation is not None and key in generation.waiting:
                mine = [
                    one for one in message.snapshots if one.stage == key[0] and not self._is_local(generation, key, one)
                ]
                await generation.preload_of(key, read).build(mine)

    def _is_local(self, generation: _PendingGeneration, key: tuple[int, int], saved: SnapshotChain) -> bool:
        """Whether one that has saved an element is in this process: what it leaves is taken over as it is."""
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
        assert successor is not None, "who hands over says what the stage was"
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
            self._host.admit_waiting(running)


def by_channel_number(plan: StagePlan, known: Mapping[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    """Addresses by (stage, index), by the numbers of channels instead."""
    return {(stage, member(plan.stages[stage].generation, index)): where for (stage, index), where in known.items()}


def nodes_of(plan: StagePlan, part: DeploymentPart) -> dict[tuple[int, int], NodeId]:
    """(stage, instance as channels name it) → the node that runs it."""
    return {
        (stage, member(plan.stages[stage].generation, index)): peer.node
        for (stage, index), peer in part.places().items()
    }


def _may_need(generation: _PendingGeneration, key: tuple[int, int], which: int) -> bool:
    """May one that waits need what an instance of the term before left?"""
    successor = generation.successor(key)
    return successor is None or successor.misses(which)


def _buffering_input() -> InputEnd:
    """An input that keeps what comes; its first frame is acknowledged by itself, since its sender measures when it is taken."""
    end = InputEnd(waiting=[])
    end.channel.acknowledge_next()
    return end
