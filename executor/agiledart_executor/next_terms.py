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

from agiledart_dataflow.plan.deployment import DeploymentPart, SavedAt
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan, member
from agiledart_dataflow.runtime.handover import ChangeFailed, Left, Successor
from agiledart_dataflow.runtime.program import Program
from agiledart_executor.epochs import Epochs
from agiledart_executor.host import InstanceHost
from agiledart_executor.messages import BuildAhead, Handed
from agiledart_executor.running_instance import InputEnd, Running
from agiledart_executor.taking_over.building_ahead import BuildingAhead
from agiledart_executor.taking_over.left_behind import stage_before
from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.node_id import NodeId


@dataclass(eq=False)
class _Term:
    """A plan that may come: whoever waits for it, and what was opened for it beside them.

    Attributes:
        before: stages that change, in the term before, as far as one of their instances has handed over.
    """

    program: Program
    waiting: dict[tuple[int, int], tuple[Running, Successor | None]] = field(default_factory=dict)
    inputs: list[tuple[Running, tuple[int, int]]] = field(default_factory=list)
    outputs: list[tuple[Running, tuple[int, int]]] = field(default_factory=list)
    ahead: dict[tuple[int, int], BuildingAhead] = field(default_factory=dict)
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

    def building(self, key: tuple[int, int], epochs: Epochs) -> BuildingAhead:
        """What one that waits has built."""
        return self.ahead.setdefault(key, BuildingAhead(self.waiting[key][0], epochs.read))

    def end_building(self, key: tuple[int, int]) -> None:
        """It has begun, or never will."""
        building = self.ahead.pop(key, None)
        if building is not None:
            building.is_over = True


class NextTerms:
    """The plans that may come to one executor.

    Args:
        host: its instances.
        fails: told of an instance that cannot begin or go on because of a change, and why.
    """

    def __init__(self, host: InstanceHost, fails: Callable[[Running, str], None]) -> None:
        self._host, self._fails = host, fails
        self._terms: dict[bytes, _Term] = {}
        host.on_left = self._left

    def plan(self, name: bytes, program: Program) -> Program:
        """Know a plan by its name; the program with it, the one that was known first."""
        for other, term in list(self._terms.items()):
            if other != name and not term.waiting:  # it has come, and all follow it
                del self._terms[other], self._host.programs[other]
        term = self._terms.setdefault(name, _Term(program))
        self._host.programs[name] = term.program
        return term.program

    def wait(self, name: bytes, running: Running) -> None:
        """Have an instance of a plan wait until it is handed over to; it takes frames in, and keeps them."""
        running.has_begun = False
        assert running.instance is not None  # sources never change
        plan = running.instance.plan
        for channel in plan.inputs(running.stage, running.instance.index):
            running.inputs[channel] = _waiting()
        self._terms[name].waiting[running.stage, running.index] = running, None
        self._host.running[running.stage, running.index] = running

    def open_inputs(self, name: bytes) -> None:
        """Let instances that stay take frames of channels of a plan, and keep them until a barrier tells of it."""
        term = self._terms[name]
        after = term.program.plan
        for running in self._staying(after):
            if running.instance is not None:
                for channel in after.inputs(running.stage, running.instance.index):
                    if channel not in running.inputs:
                        running.inputs[channel] = _waiting()
                        term.inputs.append((running, channel))

    def missing_outputs(self, name: bytes) -> list[tuple[Running, int, int]]:
        """(instance, edge, target) of each channel that a plan needs and that is not there."""
        term = self._terms[name]
        after = term.program.plan
        senders = [*self._staying(after), *(running for running, _ in term.waiting.values())]
        return [
            (running, edge.index, target)
            for running in senders
            for edge in after.outgoing(running.stage)
            for target in after.targets(edge.index, running.index)
            if (edge.index, target) not in running.outputs
        ]

    def opened(self, name: bytes, running: Running, channel: tuple[int, int]) -> None:
        """One of them is there now."""
        self._terms[name].outputs.append((running, channel))

    def ready(self, name: bytes) -> None:
        """All is open for a plan."""
        for running in self._staying(self._terms[name].program.plan):
            running.take_outputs()
        for running, _ in self._terms[name].waiting.values():
            self._host.add(running)

    def _staying(self, after: StagePlan) -> list[Running]:
        """Instances whose stage keeps its term in a plan."""
        found = []
        for running in self._host.running.values():
            part = running.instance or running.source
            if part is None or not running.has_begun or running.has_left or running.broken:
                continue
            if part.plan.stages[running.stage].term == after.stages[running.stage].term:
                found.append(running)
        return found

    def drop(self, name: bytes) -> None:
        """A plan will not come."""
        term = self._terms.pop(name, None)
        self._host.programs.pop(name, None)
        if term is None:
            return
        for running, channel in term.inputs:
            running.inputs.pop(channel, None)
        for running, channel in term.outputs:
            if (output := running.outputs.pop(channel, None)) is not None:
                output.close()
                running.take_outputs()
        for key, (running, _) in term.waiting.items():
            term.end_building(key)
            self._host.running.pop(key, None)
            running.close()

    def _left(self, running: Running) -> None:
        """An instance beside those that wait has handed over: what they take of it stays where it is."""
        instance = running.instance
        assert instance is not None  # sources never change
        assert instance.left is not None  # it is told of then
        for term in self._terms.values():
            if keys := [key for key in term.waiting if key[0] == running.stage]:
                term.before.setdefault(running.stage, instance.plan.stages[running.stage])
                for key in keys:
                    self._hand(term, key, instance.left, running.barrier)

    async def handed(self, message: Handed, epochs: Epochs) -> None:
        """What an instance elsewhere left has come to this disk."""
        term = self._terms.get(message.after)
        if term is None:
            return
        stage, which = message.origin.stage, message.origin.index
        saved = SavedAt(stage, which, message.digest, message.before)
        for key in [key for key in term.waiting if key[0] == stage]:
            if not self._waits(term, message.after, key) or not _misses(term, key, which):
                continue
            running, _ = term.waiting[key]
            try:
                header, left = await term.building(key, epochs).handed(saved)
            except AgileDartError as error:
                if self._waits(term, message.after, key):
                    self._fails(running, str(error))
                continue
            if not self._waits(term, message.after, key):
                continue
            assert running.instance is not None  # as above
            term.before.setdefault(stage, stage_before(running.instance, header))
            self._hand(term, key, left, message.epoch)

    def _waits(self, term: _Term, name: bytes, key: tuple[int, int]) -> bool:
        """Does one still wait? While something is read it may have begun, with what was handed over beside it, or been let go."""
        return key in term.waiting and term is self._terms.get(name)

    async def build_ahead(self, message: BuildAhead, epochs: Epochs) -> None:
        """Have those that wait for a plan build what others have saved of what they will take over.

        Raises:
            AgileDartError: it cannot be read, or does not fit.
        """
        term = self._terms.get(message.plan_name)
        for key in () if term is None else tuple(term.waiting):
            if term is not None and key in term.waiting:
                mine = [one for one in message.elements if one.stage == key[0] and not self._is_beside(term, key, one)]
                await term.building(key, epochs).build(mine)

    def _is_beside(self, term: _Term, key: tuple[int, int], saved: SavedAt) -> bool:
        """Whether one that has saved an element is in this process: what it leaves is taken over as it is."""
        instance = term.waiting[key][0].instance
        assert instance is not None  # sources never change
        return any(
            running.stage == saved.stage
            and running.instance is not None
            and running.instance is not instance
            and running.instance.index == saved.index
            and running.instance.plan.stages[saved.stage].term != instance.plan.stages[saved.stage].term
            for running in self._host.running.values()
        )

    def _hand(self, term: _Term, key: tuple[int, int], left: Left, epoch: int) -> None:
        running, successor = term.waiting[key][0], term.successor(key)
        assert successor is not None, "who hands over says what the stage was"
        try:
            begins = successor.hand(left)
        except (ChangeFailed, AgileDartError) as error:
            self._fails(running, f"{running.name}: {error}")
            return
        if begins:
            del term.waiting[key]
            term.end_building(key)
            running.has_begun = True
            running.barrier = running.wanted = epoch
            self._host.let_in(running)


def addressed(plan: StagePlan, known: Mapping[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    """Addresses by (stage, index), by the numbers of channels instead."""
    return {(stage, member(plan.stages[stage].term, index)): where for (stage, index), where in known.items()}


def nodes_of(plan: StagePlan, part: DeploymentPart) -> dict[tuple[int, int], NodeId]:
    """(stage, instance as channels name it) → the node that runs it."""
    return {
        (stage, member(plan.stages[stage].term, index)): peer.node for (stage, index), peer in part.places().items()
    }


def _misses(term: _Term, key: tuple[int, int], which: int) -> bool:
    """May one that waits need what an instance of the term before left?"""
    successor = term.successor(key)
    return successor is None or successor.misses(which)


def _waiting() -> InputEnd:
    """An input that keeps what comes; its first frame is acknowledged by itself, since its sender measures when it is taken."""
    end = InputEnd(waiting=[])
    end.channel.acknowledge_next()
    return end
