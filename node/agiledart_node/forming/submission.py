"""The scheduler of one submission: from an order to a running application.

Rounds: claim the record → JOIN paths → survey → place → deploy in waves → record says `running` → sources start. Whatever goes
wrong after the claim halts what was touched and closes the record with the reason.
"""

from collections.abc import Awaitable, Callable

import msgspec

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.frames import application_number
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.desk.names import display_names
from agiledart_node.forming.blueprint import Blueprint, with_limits
from agiledart_node.forming.deploying import Deploying, Deployment, NodeFull
from agiledart_node.forming.host_checks import Checking
from agiledart_node.forming.joining import Joining, Paths
from agiledart_node.forming.pinning import fed_sinks
from agiledart_node.forming.planning import Order, Planning, could_fit
from agiledart_node.forming.surveying import Surveying
from agiledart_node.hosting.watching import Watching
from agiledart_node.records.allowing import check
from agiledart_node.records.application import (
    DEPLOYING,
    FAILED,
    RUNNING,
    ApplicationRecord,
    HistoryEntry,
    advanced,
)
from agiledart_node.records.deeds import inherited
from agiledart_node.records.log_owners import check_logs
from agiledart_node.records.merged_applications import as_rival
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.quotas_of_owners import check_applications
from agiledart_node.records.records import Records
from agiledart_node.records.ways import reasons_of, ways_of
from agiledart_node.recovering.founding import Brought
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.wire.bodies import DryRunBody, SubmitBody
from agiledart_placement.ledger import NoRoom
from agiledart_placement.request import Placement

PLANS = 4
"""Plans tried for one application when nodes became full meanwhile."""

Progress = Callable[[str], None]
"""Takes lines that the waiting user may want to read."""

Wait = Callable[[ApplicationRecord, str, Progress], Awaitable[None]]
"""Waits until it is worth to look for room again; told why there is none. Raises CommandRefused."""


class Submissions:
    """Deploys applications.

    Attributes:
        deploying: (application, version) of those that are not yet running.
        checking: asks hosts for a dry run, and answers as host.
    """

    def __init__(
        self,
        desk: Desk,
        records: Records,
        joining: Joining,
        surveying: Surveying,
        watching: Watching,
        recovering: Recovering,
        orders: Orders,
        random: RandomStream,
    ) -> None:
        self._desk, self._records, self._joining, self._orders = desk, records, joining, orders
        self._recovering = recovering
        self._surveying, self._watching, self._random = surveying, watching, random
        self._deploying = Deploying(desk)
        self._planning = Planning(desk, surveying)
        self.checking = Checking(desk, orders)
        self.deploying: dict[tuple[str, int], bool] = {}

    async def deploy(
        self, order: Order, progress: Progress, claimed: Callable[[ApplicationRecord], None], wait: Wait
    ) -> tuple[ApplicationRecord, SubmitBody]:
        """Bring an application to run; returns its record and the answer for the user.

        Args:
            claimed: told of the record as soon as there is one.
            wait: called when no node has room.

        Raises:
            CommandRefused: it does not run; everything is undone.
        """
        record = await self._claim(order)
        claimed(record)
        key = (record.name, record.version)
        self.deploying[key] = True
        for peer in order.pinned.values():
            self._desk.watch(peer)
        work: list[Deployment] = []
        try:
            await self._records.add_name(record.name)
            return await self._placed(record, order, progress, work, wait)
        except OperationFailed as failure:
            raise await self._abandoned(record, work, failure) from None
        finally:
            del self.deploying[key]
            for peer in order.pinned.values():
                self._desk.unwatch(peer)

    async def dry_run(self, blueprint: Blueprint, bundle: bytes, signed: bytes, pinned: dict[int, Peer]) -> DryRunBody:
        """What would run where, and whether it could."""
        number = self._random.bits(63)
        paths = await self._joining.form(number, fed_sinks(blueprint, pinned))
        loads = await self._planning.survey(blueprint, pinned, paths)
        placement = self._planning.place(blueprint, pinned, paths, loads, {})
        shown = display_names(tuple(peer for peer, _ in loads.values()))
        hosts = [[shown[node] for node in placement.hosts_of(stage)] for stage in range(len(blueprint.stages))]
        reasons = reasons_of(placement, loads, len(blueprint.stages))
        return DryRunBody(
            name=blueprint.name,
            dry_run=True,
            digest=blueprint.digest,
            placement={stage.name: nodes for stage, nodes in zip(blueprint.stages, hosts, strict=True)},
            paths=[[shown.get(peer.node, peer.name) for peer in path] for path in paths],
            relaxed=list(placement.relaxed),
            strategy=self._desk.config.placement,
            reasons={stage.name: why for stage, why in zip(blueprint.stages, reasons, strict=True) if why},
            ways=ways_of([stage.kind for stage in blueprint.stages], blueprint.edges, hosts),
            checks=await self.checking.checked(
                blueprint, bundle, signed, placement, {node: peer for node, (peer, _) in loads.items()}, shown
            ),
        )

    async def _claim(self, order: Order) -> ApplicationRecord:
        """Create the record of the next version. Raises CommandRefused when the name runs already."""
        blueprint, asked = order.blueprint, order.submitted_to
        name, me, wall_ms = blueprint.name, self._desk.me, self._desk.wall_ms
        while True:
            revision, last = await self._records.application(name)
            if last is not None and last.by_hearsay and await self._watching.is_alive(last):
                raise CommandRefused(_already(msgspec.structs.replace(last, state=RUNNING)))
            if last is not None and not last.is_final:
                last = await self._watching.freshened(last)
                if not last.is_final:
                    raise CommandRefused(_already(last))
                continue
            check(
                order.asker, "submit", name, last
            )  # the asking agent looked, too, but that was before others may have come
            self._orders.check_new(order.signed, last)
            await check_logs(self._records, order.asker, name, last, blueprint.specification)
            await check_applications(self._records, order.asker, name, self._desk.config.most_applications)
            version = last.version + 1 if last is not None else 1
            record = ApplicationRecord(
                name,
                version,
                application_number(name, version, order.ticket),
                order.ticket,
                DEPLOYING,
                me,
                submitter=order.submitter,
                submitted_to=asked.name,
                submitted_ms=wall_ms,
                changed_ms=wall_ms,
                stages=blueprint.stages,
                edges=blueprint.edges,
                specification=blueprint.specification,
                plan=blueprint.plan,
                history=(HistoryEntry(wall_ms, DEPLOYING, f"submitted to {asked.name}{_from(order)}"),),
                by_epoch=order.delivery.is_saved,
                owner_key=(last.owner_key if last is not None else b"") or order.asker.key,
                shared_keys=last.shared_keys if last is not None else (),
                rivals=(as_rival(last),) if last is not None and last.by_hearsay else (),
                order=order.signed,
                deeds=inherited(last),
                held=with_limits(blueprint.plan) if order.delivery.is_saved else (),
                repeats=order.delivery.repeats,
            )
            if await self._records.create(revision, record):
                return record

    async def _placed(
        self, record: ApplicationRecord, order: Order, progress: Progress, work: list[Deployment], wait: Wait
    ) -> tuple[ApplicationRecord, SubmitBody]:
        """Forms it, as soon as there is room."""
        tried = 0
        while True:
            try:
                return await self._form(record, order, progress, work, tried)
            except NoRoom as lack:
                if not lack.could_fit:
                    raise
                reason = str(lack)
            work.clear()  # what was touched has been halted
            tried += PLANS
            await wait(record, reason, progress)

    async def _form(
        self, record: ApplicationRecord, order: Order, progress: Progress, work: list[Deployment], tried: int
    ) -> tuple[ApplicationRecord, SubmitBody]:
        """Paths, places, parts; plans anew when nodes became full meanwhile, at last without regard for balance.

        Args:
            tried: plans before; later ones have higher numbers.

        Raises:
            NoRoom: nothing of it is left on any node.
        """
        blueprint = order.blueprint
        paths = await self._joining.form(record.number, fed_sinks(blueprint, order.pinned))
        full: dict[NodeId, bool] = {}
        for number in range(1, PLANS + 1):
            loads = await self._planning.survey(blueprint, order.pinned, paths)
            placement = self._planning.place(blueprint, order.pinned, paths, loads, full)
            if placement.relaxed:
                loads = await self._surveying.wider(loads)
                placement = self._planning.place(blueprint, order.pinned, paths, loads, full)
            limits = self._planning.limits(order, placement, loads) if number < PLANS else {}
            plan = self._planning.deployment(record, order, loads, placement, tried + number, limits)
            work.append(plan)
            if number == 1 and not tried:
                progress(_where(record.name, blueprint, placement, plan.nodes))
                if open_to_users := [peer for peer in plan.nodes if not loads[peer.node][1].confines]:
                    progress(_unprotected(open_to_users))
            for peer in plan.nodes:
                self._desk.watch(peer)
            try:
                await self._deploying.deploy(plan)
                running = await self._run(record, paths, plan, order)
                return running, running_body(running, placement.relaxed, self._desk.config.placement)
            except NodeFull as refusal:
                await self._watching.halt(
                    tuple(plan.touched), (record.name, record.version), refusal.reason, record.number
                )
                if number == PLANS:
                    text = f"{refusal.reason}; {PLANS} plans found no room. Start more agents, or stop something."
                    raise NoRoom(text, could_fit=could_fit(plan, loads)) from None
                full.update(dict.fromkeys(refusal.nodes, True))
            finally:
                for peer in plan.nodes:
                    self._desk.unwatch(peer)
        raise AssertionError("the last plan is tried or refused")

    async def _run(self, record: ApplicationRecord, paths: Paths, work: Deployment, order: Order) -> ApplicationRecord:
        """All parts listen: the record says so, and the sources start."""
        took = round((self._desk.now - order.began) / SECOND, 6)

        def close(current: ApplicationRecord) -> ApplicationRecord | None:
            running = advanced(current, RUNNING, "", self._desk.wall_ms)
            if running is None or current.ticket != record.ticket:
                return None
            return msgspec.structs.replace(
                running,
                coordinator=work.coordinator,
                nodes=work.nodes,
                guards=work.guards,
                assignment=work.assignment(),
                paths=paths,
                life=1 if work.delivery.is_saved else work.life,  # the register counts from its founding on
                away=work.away,
                seconds_to_running=took,
            )

        running = await self._records.change(record.name, record.version, close, record.number)
        if running is None:
            raise CommandRefused(
                f"{record.name} was deployed, but its record cannot be written: the ring did not answer, or another run of "
                "this name was submitted elsewhere while the network was cut."
            )
        if running.state != RUNNING:
            raise CommandRefused(running.reason or f"{record.name} was {running.state} while it was being deployed.")
        if work.delivery.is_saved:
            whole = self._deploying.whole_part(work)
            await self._recovering.found(whole, whole.places(), work.guards, _brought(order))
            return running
        silent = await self._deploying.start_flow(work)
        if silent:
            names = ", ".join(peer.name or peer.node.short for peer in silent)
            raise CommandRefused(f"{names} went away while {record.name} was being started.")
        return running

    async def _abandoned(
        self, record: ApplicationRecord, work: list[Deployment], failure: OperationFailed
    ) -> CommandRefused:
        """Undo: halt everything touched, close the record; returns what the user is told."""
        reason = str(failure)
        closed = await self._records.change(
            record.name,
            record.version,
            lambda current: (
                advanced(current, FAILED, reason, self._desk.wall_ms) if current.ticket == record.ticket else None
            ),
            record.number,
        )
        touched: dict[NodeId, Peer] = {}
        for plan in work:
            for peer in plan.touched:
                touched.setdefault(peer.node, peer)
        told = closed.reason if closed is not None and closed.is_final else reason
        await self._watching.halt(tuple(touched.values()), (record.name, record.version), told, record.number)
        code = failure.exit_code if isinstance(failure, CommandRefused) else 1
        return CommandRefused(told or reason, code)


def _from(order: Order) -> str:
    return f"; it goes on from {order.origin.about}" if order.origin is not None else ""


def _brought(order: Order) -> Brought | None:
    origin = order.origin
    return None if origin is None else Brought(origin.kind, order.submitted_to.node, origin.elements)


def _already(record: ApplicationRecord) -> str:
    by = f" by {record.submitter}" if record.submitter else ""
    return (
        f"{record.name} is already {record.state}, submitted to {record.submitted_to}{by}. "
        f"Stop it first: agiledart stop {record.name}"
    )


def _where(name: str, blueprint: Blueprint, placement: Placement, nodes: tuple[Peer, ...]) -> str:
    shown = display_names(nodes)
    parts = []
    for number, stage in enumerate(blueprint.stages):
        names = list(dict.fromkeys(shown[node] for node in placement.hosts_of(number)))
        parts.append(f"{stage.name}@{','.join(names)}")
    return f"{name} → {'  '.join(parts)}"


def _unprotected(peers: list[Peer]) -> str:
    names = ", ".join(peer.name or peer.node.short for peer in peers)
    return f"your code can read the keys of {names}: there it is not confined (agiledart doctor says why)"


def running_body(record: ApplicationRecord, relaxed: tuple[str, ...], strategy: str) -> SubmitBody:
    """The answer to a submission that runs; `relaxed`: placement rules given up."""
    shown = record.names()
    return SubmitBody(
        name=record.name,
        version=record.version,
        state=record.state,
        placement=record.placement,
        nodes=[shown[peer.node] for peer in record.hosts()],
        coordinator=shown[record.coordinator.node] if record.coordinator is not None else "",
        paths=[[shown[peer.node] for peer in path] for path in record.paths],
        relaxed=list(relaxed),
        strategy=strategy,
        reasons=record.reasons,
        ways=record.ways,
        seconds_to_running=record.seconds_to_running,
        scheduler=record.scheduler.name or record.scheduler.node.short,
    )
