"""A life is entered on this node: code, room, state, and then what `bringing_back` does.

Where something is missing the life is refused, in words; a life that is lived without this node ends what ran of the run here.
"""

from collections.abc import Callable, Container
from typing import Protocol

import msgspec

from agiledart_dataflow.plan.deployment import DOES_NOT_FIT
from agiledart_kernel.codec import encode
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import Desk
from agiledart_node.hosting.hosted import Hosted, Key
from agiledart_node.hosting.hosting import Hosting
from agiledart_node.recovering.bringing_back import HostedRun, bring_back
from agiledart_node.recovering.fetching import Fetching, StateLacking, Told
from agiledart_node.recovering.founding import copy_of
from agiledart_node.recovering.lending import borrow
from agiledart_node.recovering.settling import Settling
from agiledart_node.wire.effects import StopInstances
from agiledart_recovery.machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Element, Plan, Saved, State, Value


class Home(Protocol):
    """Where runs of this node are kept, and who carries out what the machine says about them."""

    machine: RecoveryMachine
    runs: dict[Key, HostedRun]
    closed: Callable[[Hosted, str, str], None]

    def step(self, event: Event) -> None:
        """An event for the machine."""
        ...

    def flush(self) -> None:
        """Carry out what a call to the machine has begun."""
        ...

    def value(self, run: Run) -> Value | None:
        """What a host knows of the register."""
        ...

    def keep(self, key: Key, name: str, content: bytes) -> None:
        """Keep a file without waiting."""
        ...


class Entering:
    """Brings lives in at this node."""

    def __init__(self, desk: Desk, hosting: Hosting, home: Home, fetching: Fetching, settling: Settling) -> None:
        self._desk, self._hosting, self._home = desk, hosting, home
        self._fetching, self._settling = fetching, settling

    async def enter(self, effect: asked.EnterLife) -> None:
        """Enter a life, or say why not."""
        key = (effect.run.app, effect.run.version)
        hosted, value = self._hosting.table.get(key), self._home.value(effect.run)
        assert value is not None, "a life is entered by its value"
        if not effect.assignments:
            self._leave_to_others(effect, hosted)
            return
        try:
            run = await self.known_run(effect.run, effect.life, effect.plan)
            hosted = self._hosting.adopt(run.part)
            hosted.has_register = True
            mine = [copy_of(one.party) for one in effect.assignments]
            if effect.life == 1 and run.life == 0 and all(copy in hosted.instances for copy in mine):
                run.life = 1
                self._home.step(Completed(effect.request, None))
                return
            self._check_open(hosted)
            self._check_room(hosted, len(mine))
            self._desk.emit(StopInstances(*key))
            for saved in (*effect.saved, *effect.shown):
                await self._fetching.have(effect.run, saved, value)
            part = self._home.machine.participants.get(effect.run)
            if part is None or part.life != effect.life:
                return  # it is over, or a later life has begun meanwhile
            self._check_open(hosted)
            self._home.machine.tell_entering(effect.run, effect.life, "restore")
            self._home.flush()
            hosted.begin_again(dict.fromkeys(mine, 0), run.base + effect.life)
            lived = await bring_back(self._desk, run, effect, value.committed.epoch, value.origin)
        except OperationFailed as error:
            part = self._home.machine.participants.get(effect.run)
            if isinstance(error, StateLacking) and part is not None:
                part.lacks(effect.life, error.holders)
            self._home.step(Failed(effect.request, str(error)))
            if value.is_brought and DOES_NOT_FIT in str(error) and hosted is not None:
                self._home.closed(hosted, State.FAILED.value, str(error))  # it would not fit the next time either
            return
        self._hosting.moved(hosted, msgspec.structs.replace(lived, bundle=b""))
        self._home.step(Completed(effect.request, None))

    async def known_run(self, run: Run, life: int, plan: Plan) -> HostedRun:
        """The code of a run, from this node's disk or another host's. Raises OperationFailed."""
        key = (run.app, run.version)
        if key not in self._home.runs:
            part = await borrow(self._desk, run, life, plan, self._hosting.objection_to_order)
            self._home.runs.setdefault(key, HostedRun(part, part.life - 1))
            self._home.keep(key, "part", encode(part))
        return self._home.runs[key]

    async def have_of(
        self, run: Run, saved: Saved, known: Container[bytes], told: Told, origin: Peer | None
    ) -> list[Element]:
        """What an old instance saved is to lie here; the elements that did not. Raises OperationFailed.

        Args:
            known: digests of elements that are here; told: of bytes that have come; origin: who has saved it.
        """
        value = self._home.value(run)
        assert value is not None, "who takes over is in the life"
        return await self._fetching.have(run, saved, value, known, told, origin)

    def check_more_room(self, key: Key, more: int) -> None:
        """Raises OperationFailed where so many more instances have no room."""
        hosted = self._hosting.table.get(key)
        held, desk = self._hosting.operators, self._desk
        if more > 0 and (desk.takes_nothing or held + more > desk.config.capacity):
            why = desk.takes_nothing or f"has room for {desk.config.capacity} instances and runs {held}"
            raise OperationFailed(f"{desk.me.name} {why}")
        if more > 0 and hosted is not None:
            self._check_open(hosted)

    def _check_open(self, hosted: Hosted) -> None:
        """Raises OperationFailed where a run is being ended: nothing is started of it that nobody would stop."""
        if hosted.is_closing:
            raise OperationFailed(f"{hosted.part.application} is being ended on {self._desk.me.name}")

    def _check_room(self, hosted: Hosted, count: int) -> None:
        desk = self._desk
        held = self._hosting.operators - hosted.reserved
        if count > hosted.reserved and (desk.takes_nothing or held + count > desk.config.capacity):
            why = desk.takes_nothing or f"has room for {desk.config.capacity} instances and runs {held}"
            raise OperationFailed(f"{desk.me.name} {why}")

    def _leave_to_others(self, effect: asked.EnterLife, hosted: Hosted | None) -> None:
        """The life is lived without this node."""
        if hosted is not None and hosted.instances:
            hosted.has_moved = True
            self._hosting.close(hosted, f"its instances run on other nodes since life {effect.life}")
        elif hosted is not None:
            self._settling.left(hosted)
        self._home.step(Completed(effect.request, None))
