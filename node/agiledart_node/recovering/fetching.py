"""The state of an instance that another host had: found on this disk, or rebuilt from any m fragments of its neighbours.

An element that lies here is taken only when it is whole; a damaged one is rebuilt like one that never was here.
"""

from collections.abc import Callable, Container

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import Desk
from agiledart_node.wire.checkpoint_effects import BringElement
from agiledart_node.wire.fragment_effects import FetchFragment, FindElement, RebuildElement, StoreFragment
from agiledart_recovery.fragments.arithmetic import fragment_bytes
from agiledart_recovery.fragments.rebuild import Rebuild, State
from agiledart_recovery.machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Element, Role, Saved, Value

_PLAN: Codec[StagePlan] = Codec(StagePlan)

Told = Callable[[int, int], None]
"""(bytes that are here, of how many)"""


GIVEN_BYTES = 32 << 20
"""Larger elements are fetched from their holders, who are told how far that is: in one go nobody would hear for minutes."""


class StateLacking(OperationFailed):
    """A state cannot be rebuilt of the fragments that there are.

    Attributes:
        holders: of all its fragments.
    """

    def __init__(self, text: str, holders: tuple[NodeId, ...]) -> None:
        super().__init__(text)
        self.holders = holders


class Fetching:
    """Brings fragments to holders and back.

    Args:
        step: hands an outcome to the recovery machine; `flush` carries out what it was asked outside of a step.
    """

    def __init__(
        self, desk: Desk, machine: RecoveryMachine, step: Callable[[Event], None], flush: Callable[[], None]
    ) -> None:
        self._desk, self._machine, self._step, self._flush = desk, machine, step, flush
        self._rebuilding: dict[int, tuple[Rebuild, Told | None]] = {}

    # ---- one fragment

    def send(self, effect: asked.SendFragment, secret: bytes) -> None:
        """Bring a fragment to its holder."""
        self._desk.talks.begin(self._sent(effect, secret))

    async def _sent(self, effect: asked.SendFragment, secret: bytes) -> None:
        holder, number = self._peer(effect.holder), self._desk.talks.number()
        if holder is None:
            self._step(Failed(effect.request, "nobody knows where it is"))
            return
        order = StoreFragment(number, holder, effect.key, effect.element, secret, effect.life)
        answers = await self._desk.driven(number, order, self._patience(effect.element))
        self._step(_outcome(effect.request, answers.get(number)))

    def fetch(self, effect: asked.FetchStripe) -> None:
        """Fetch a fragment, or a stripe of it."""
        self._desk.talks.begin(self._fetched(effect))

    async def _fetched(self, effect: asked.FetchStripe) -> None:
        holder, number = self._peer(effect.holder), self._desk.talks.number()
        if holder is None:
            outcome: Event = Failed(effect.request, "nobody knows where it is")
        else:
            order = FetchFragment(number, holder, effect.key, effect.element, effect.offset, effect.length)
            answers = await self._desk.driven(number, order, self._patience(effect.element))
            outcome = _outcome(effect.request, answers.get(number))
        self._step(outcome)
        for waiting, (rebuild, told) in list(self._rebuilding.items()):
            if rebuild.state in (State.READY, State.LOST):
                self._desk.talks.answered(waiting, True)
            else:
                self._tell(rebuild, told)

    def _patience(self, element: Element) -> int:
        config = self._desk.config.recovery
        return config.ack_timeout_ns + element.length * config.slowest_ns

    def _peer(self, node: NodeId) -> Peer | None:
        if node == self._desk.me.node:
            return self._desk.me  # who takes over may hold a fragment itself
        return next((peer for peer in self._desk.overlay.known_peers() if peer.node == node), None)

    # ---- one element

    async def have(
        self,
        run: Run,
        saved: Saved,
        value: Value,
        known: Container[bytes] = (),
        told: Told | None = None,
        origin: Peer | None = None,
    ) -> list[Element]:
        """See to it that the elements of a party lie here; those that did not.

        Args:
            known: digests of elements of which that was seen before.
            told: of how much of one is here; None: the coordinator of the life.
            origin: who has saved them, and is asked before their holders are.

        Raises:
            StateLacking: too few of its fragments can be had; says of whom.
        """
        brought: list[Element] = []
        for element in saved.chain:
            if element.digest in known:
                continue
            number = self._desk.talks.number()
            find = FindElement(number, run, element.digest)
            found = (await self._desk.driven(number, find, self._patience(element))).get(number)
            if isinstance(found, Completed) and found.result is True:
                continue
            if value.is_brought:
                await self._brought(run, saved, element)
            elif origin is not None and await self._given(origin, run, element):
                pass
            else:
                await self._rebuild(run, saved, element, value, told)
            brought.append(element)
        return brought

    async def _given(self, origin: Peer, run: Run, element: Element) -> bool:
        """Fetch an element from who has saved it; is it here?"""
        is_near = origin.node == self._desk.me.node or self._desk.talks.is_gone(origin)
        if is_near or (element.length > GIVEN_BYTES and element.holders):
            return False
        number = self._desk.talks.number()
        order = BringElement(number, origin, run, element.digest, element.length)
        return isinstance((await self._desk.driven(number, order, self._patience(element))).get(number), Completed)

    async def _brought(self, run: Run, saved: Saved, element: Element) -> None:
        """Fetch an element of a checkpoint from the agent that was asked to begin with it."""
        holder, number = self._peer(element.holders[0]) if element.holders else None, self._desk.talks.number()
        if holder is None and element.holders[:1] == (self._desk.me.node,):
            holder = self._desk.me
        if holder is not None:
            order = BringElement(number, holder, run, element.digest, element.length)
            answer = (await self._desk.driven(number, order, self._patience(element))).get(number)
            if isinstance(answer, Completed):
                return
            why = answer.reason if isinstance(answer, Failed) else "it took too long"
        else:
            why = "it cannot be reached"
        names = ", ".join(self._machine.name_of(one) for one in element.holders)
        raise StateLacking(f"the checkpoint with which {saved.party} begins lies on {names}: {why}", element.holders)

    async def _rebuild(self, run: Run, saved: Saved, element: Element, value: Value, told: Told | None) -> None:
        if not any(element.holders):
            # Of what is bound to its node: nobody else can help, so it is this node that is waited for, as of another one a holder.
            raise StateLacking(_only_here(run, saved, element, value, self._desk.me), (self._desk.me.node,))
        rebuild = self._machine.rebuild(run, saved.party, element)
        self._flush()
        while True:
            await self._until_settled(rebuild, told)
            if rebuild.state is not State.READY:
                raise StateLacking(self._lacking(saved, element), tuple(holder for holder in element.holders if holder))
            number = self._desk.talks.number()
            key = asked.FragmentKey(run, saved.party, element.snapshot, 0)
            order = RebuildElement(number, key, element, tuple(rebuild.pieces), value.key)
            answers = await self._desk.driven(number, order, self._patience(element))
            if isinstance(answers.get(number), Completed):
                return
            rebuild.on_wrong_hash()
            self._flush()

    async def _until_settled(self, rebuild: Rebuild, told: Told | None) -> None:
        while rebuild.state not in (State.READY, State.LOST):
            number = self._desk.talks.number()
            self._rebuilding[number] = rebuild, told
            try:
                patience = Duration(2 * self._patience(rebuild.element))
                if not await self._desk.talks.answers({number: None}, patience):
                    return
            finally:
                del self._rebuilding[number]

    def _tell(self, rebuild: Rebuild, told: Told | None) -> None:
        part = self._machine.participants.get(rebuild.run)
        got = sum(len(piece) for stripe in rebuild.pieces for piece in stripe.values())
        of = rebuild.element.m * fragment_bytes(rebuild.element.length, rebuild.element.m)
        if told is not None:
            told(got, of)
        elif part is not None:
            self._machine.tell_entering(rebuild.run, part.life, "fetch", got, of)
            self._flush()

    def _lacking(self, saved: Saved, element: Element) -> str:
        holders = sorted(self._machine.name_of(holder) for holder in element.holders if holder)
        where = ", ".join(holders)
        return f"the state of {saved.party} needs {element.m} of its fragments, which lie on {where}: fewer could be had whole"


def _only_here(run: Run, saved: Saved, element: Element, value: Value, me: Peer) -> str:
    """What is the matter with an element of which there is one copy, and what to do."""
    roles = {each.party: each.role for each in value.plan.assignments}
    stages = _PLAN.decode(value.plan.body).stages if value.plan.body else ()
    title = next((stage.name for stage in stages if str(stage.index) == saved.party.stage), str(saved.party))
    return (
        f"what the {roles.get(saved.party, Role.STAGE)} {title} saved at epoch {element.snapshot.epoch} is damaged or gone on"
        f" {me.name or me.node.short}, and lies nowhere else. Put back the file elements/{element.digest.hex()[:16]}… of {run.app}"
        f" there, or end it (agiledart stop {run.app} --now) and begin it anew"
    )


def _outcome(request: int, answer: Completed | Failed | None) -> Event:
    if isinstance(answer, Completed):
        return Completed(request, answer.result)
    return Failed(request, answer.reason if isinstance(answer, Failed) else "the holder did not answer in time")
