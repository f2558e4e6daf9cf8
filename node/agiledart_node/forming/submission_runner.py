"""The scheduler of one submission: from a command to a running application.

Rounds: claim the record → JOIN paths → survey → place → deploy in waves → record says `running` → sources start. A failure after
the claim halts all touched nodes and closes the record with the reason.
"""

from collections.abc import Awaitable, Callable

import msgspec

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.frames import application_number
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.forming.blueprint import Blueprint, with_limits
from agiledart_node.forming.deployer import Deployer, Deployment, NodeFull
from agiledart_node.forming.host_checks import HostChecks
from agiledart_node.forming.join_protocol import JoinProtocol, Paths
from agiledart_node.forming.pinning import fed_sinks, pinned_nodes
from agiledart_node.forming.planner import Planner, Submission, could_fit
from agiledart_node.forming.surveyor import Surveyor
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.records.application import (
    DEPLOYING,
    FAILED,
    RUNNING,
    ApplicationRecord,
    HistoryEntry,
    advanced,
)
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.data_paths import data_paths_of, reasons_of
from agiledart_node.records.log_permissions import check_logs
from agiledart_node.records.merged_applications import as_rival
from agiledart_node.records.owner_quotas import check_applications
from agiledart_node.records.permission_checks import check
from agiledart_node.records.records import Records
from agiledart_node.records.signed_entries import inherited_entries
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.recovery.register_bootstrap import InitialCheckpoint
from agiledart_node.wire.formation_messages import NodeLoad
from agiledart_node.wire.submission_responses import DryRunResponse, SubmitResponse
from agiledart_placement.baselines.ledger import NoCapacity
from agiledart_placement.problem.request import Placement

PLANS = 4
"""Plans tried for one application when nodes became full meanwhile."""

Progress = Callable[[str], None]
"""Function for lines that the waiting user may want to read."""

Wait = Callable[[ApplicationRecord, str, Progress], Awaitable[None]]
"""Function that waits until capacity may be free; receives the reason of the lack. Raises CommandRefused."""


async def _no_places() -> int:
    return 0


class SubmissionRunner:
    """Deploys applications.

    Attributes:
        deploying: (application, version) of those that are not yet running.
        checking: asks hosts for a dry run, and answers as host.
        planning: makes the plans.
        leasable_places: returns the instance places that gates may still lease.
    """

    def __init__(
        self,
        context: NodeContext,
        records: Records,
        joining: JoinProtocol,
        surveying: Surveyor,
        watching: ApplicationWatcher,
        recovery_service: RecoveryService,
        verifier: CommandVerifier,
        random: RandomStream,
    ) -> None:
        self._context, self._records, self._joining, self._verifier = context, records, joining, verifier
        self._recovery_service = recovery_service
        self._surveying, self._watching, self._random = surveying, watching, random
        self._deploying = Deployer(context)
        self.planning = Planner(context, surveying)
        self.checking = HostChecks(context, verifier)
        self.deploying: dict[tuple[str, int], bool] = {}
        self.leasable_places: Callable[[], Awaitable[int]] = _no_places

    async def deploy(
        self, submission: Submission, progress: Progress, claimed: Callable[[ApplicationRecord], None], wait: Wait
    ) -> tuple[ApplicationRecord, SubmitResponse]:
        """Start an application; return its record and the answer for the user.

        Args:
            claimed: called with the record as soon as it exists.
            wait: called when no node has free capacity.

        Raises:
            CommandRefused: it does not run; everything is undone.
        """
        record = await self._claim(submission)
        claimed(record)
        key = (record.name, record.version)
        self.deploying[key] = True
        for peer in submission.pinned.values():
            self._context.watch(peer)
        work: list[Deployment] = []
        try:
            await self._records.add_name(record.name)
            return await self._placed(record, submission, progress, work, wait)
        except OperationFailed as failure:
            raise await self._abandoned(record, work, failure) from None
        finally:
            del self.deploying[key]
            for peer in submission.pinned.values():
                self._context.unwatch(peer)

    def strategy_of(self, signed: bytes) -> str:
        """Return the strategy and objective of a submission, as users write them."""
        return self.planning.choice_of(signed).text

    async def pinned_nodes(self, blueprint: Blueprint) -> dict[int, Peer]:
        """Return stage → the node that must run it; see `pinning.pinned_nodes`."""
        return await pinned_nodes(self._context, self._records, self._surveying, blueprint)

    async def dry_run(
        self, blueprint: Blueprint, bundle: bytes, signed: bytes, pinned: dict[int, Peer]
    ) -> DryRunResponse:
        """Return the placement that a submission would get, and whether it could run."""
        number = self._random.bits(63)
        paths = await self._joining.form(number, fed_sinks(blueprint, pinned))
        loads = await self.planning.survey(blueprint, pinned, paths)
        choice = self.planning.choice_of(signed)
        placement = await self.planning.place(blueprint, pinned, paths, loads, {}, choice)
        names_by_id = display_names(tuple(peer for peer, _ in loads.values()))
        hosts = [[names_by_id[node] for node in placement.hosts_of(stage)] for stage in range(len(blueprint.stages))]
        reasons = reasons_of(placement, loads, len(blueprint.stages), self.planning.balanced_shares(loads))
        return DryRunResponse(
            name=blueprint.name,
            dry_run=True,
            digest=blueprint.digest,
            placement={stage.name: nodes for stage, nodes in zip(blueprint.stages, hosts, strict=True)},
            paths=[[names_by_id.get(peer.node, peer.name) for peer in path] for path in paths],
            relaxed=list(placement.relaxed),
            strategy=choice.text,
            reasons={stage.name: why for stage, why in zip(blueprint.stages, reasons, strict=True) if why},
            data_paths=data_paths_of([stage.kind for stage in blueprint.stages], blueprint.edges, hosts),
            checks=await self.checking.checked(
                blueprint, bundle, signed, placement, {node: peer for node, (peer, _) in loads.items()}, names_by_id
            ),
        )

    async def _claim(self, submission: Submission) -> ApplicationRecord:
        """Create the record of the next version. Raises CommandRefused when the name runs already."""
        blueprint, asked = submission.blueprint, submission.submitted_to
        name, me, wall_ms = blueprint.name, self._context.me, self._context.wall_ms
        while True:
            revision, last = await self._records.application(name)
            if last is not None and last.is_unverified and await self._watching.refresher.is_alive(last):
                raise CommandRefused(_already(msgspec.structs.replace(last, state=RUNNING)))
            if last is not None and not last.is_final:
                last = await self._watching.refresher.refreshed(last)
                if not last.is_final:
                    raise CommandRefused(_already(last))
                # The refresh closed the record, so its revision has changed: read it again.
                continue
            # The asked agent has checked this too, but another submission may have come since.
            check(submission.principal, "submit", name, last)
            self._verifier.check_not_replayed(submission.signed, last)
            await check_logs(self._records, submission.principal, name, last, blueprint.specification)
            await check_applications(
                self._records, submission.principal, name, self._context.config.max_applications_per_owner
            )
            version = last.version + 1 if last is not None else 1
            record = ApplicationRecord(
                name,
                version,
                application_number(name, version, submission.ticket),
                submission.ticket,
                DEPLOYING,
                me,
                submitter=submission.submitter,
                submitted_to=asked.name,
                submitted_ms=wall_ms,
                changed_ms=wall_ms,
                stages=blueprint.stages,
                edges=blueprint.edges,
                specification=blueprint.specification,
                plan=blueprint.plan,
                history=(HistoryEntry(wall_ms, DEPLOYING, f"submitted to {asked.name}{_from(submission)}"),),
                by_epoch=submission.delivery.is_saved,
                owner_key=(last.owner_key if last is not None else b"") or submission.principal.key,
                shared_keys=last.shared_keys if last is not None else (),
                rivals=(as_rival(last),) if last is not None and last.is_unverified else (),
                signed_command=submission.signed,
                signed_entries=inherited_entries(last),
                held=with_limits(blueprint.plan) if submission.delivery.is_saved else (),
                duplicates=submission.delivery.duplicates,
                saves_less=submission.delivery.saves_less,
            )
            if await self._records.create(revision, record):
                return record

    async def _placed(
        self, record: ApplicationRecord, submission: Submission, progress: Progress, work: list[Deployment], wait: Wait
    ) -> tuple[ApplicationRecord, SubmitResponse]:
        """Deploy the application as soon as there is capacity."""
        tried = 0
        while True:
            try:
                return await self._form(record, submission, progress, work, tried)
            except NoCapacity as lack:
                if not lack.could_fit:
                    places = await self.leasable_places()
                    if lack.missing and 0 < places < lack.missing:
                        raise OperationFailed(f"{lack} {_too_small(places, lack.missing)}") from None
                    if not 0 < lack.missing <= places:
                        raise
                reason = str(lack)
            work.clear()  # all touched nodes have been halted
            tried += PLANS
            await wait(record, reason, progress)

    async def _form(
        self, record: ApplicationRecord, submission: Submission, progress: Progress, work: list[Deployment], tried: int
    ) -> tuple[ApplicationRecord, SubmitResponse]:
        """Find paths and places, and deploy; plan again when nodes became full meanwhile, at last without the balance rule.

        Args:
            tried: number of earlier plans; later ones have higher numbers.

        Raises:
            NoCapacity: nothing of it is left on any node.
        """
        blueprint = submission.blueprint
        paths = await self._joining.form(record.number, fed_sinks(blueprint, submission.pinned))
        full: dict[NodeId, bool] = {}
        choice = self.planning.choice_of(submission.signed)
        for number in range(1, PLANS + 1):
            loads = await self.planning.survey(blueprint, submission.pinned, paths)
            placement = await self.planning.place(blueprint, submission.pinned, paths, loads, full, choice)
            # Survey more nodes before a placement rule is dropped.
            if placement.relaxed:
                loads = await self._surveying.wider(loads)
                placement = await self.planning.place(blueprint, submission.pinned, paths, loads, full, choice)
            limits = self.planning.limits(submission, placement, loads) if number < PLANS else {}
            plan = self.planning.deployment(record, submission, loads, placement, tried + number, limits)
            work.append(plan)
            if number == 1 and not tried:
                progress(_where(record.name, blueprint, placement, plan.nodes))
                for text in exposure_warnings([loads[peer.node] for peer in plan.nodes]):
                    progress(text)
            # Watched hosts answer None at once when they die, instead of after the timeout of the wave.
            for peer in plan.nodes:
                self._context.watch(peer)
            try:
                await self._deploying.deploy(plan)
                running = await self._run(record, paths, plan, submission)
                return running, running_response(running, placement.relaxed, choice.text)
            except NodeFull as refusal:
                await self._watching.halt(
                    tuple(plan.touched), (record.name, record.version), refusal.reason, record.number
                )
                if number == PLANS:
                    text = f"{refusal.reason}; {PLANS} plans found too little capacity. Start more agents, or stop an application."
                    raise NoCapacity(text, could_fit=could_fit(plan, loads)) from None
                full.update(dict.fromkeys(refusal.nodes, True))
            finally:
                for peer in plan.nodes:
                    self._context.unwatch(peer)
        raise AssertionError("the last plan is tried or refused")

    async def _run(
        self, record: ApplicationRecord, paths: Paths, work: Deployment, submission: Submission
    ) -> ApplicationRecord:
        """Record `running` once all instances listen, and start the sources."""
        seconds = round((self._context.now - submission.began) / SECOND, 6)

        def close(current: ApplicationRecord) -> ApplicationRecord | None:
            running = advanced(current, RUNNING, "", self._context.wall_ms)
            if running is None or current.ticket != record.ticket:
                return None
            return msgspec.structs.replace(
                running,
                coordinator=work.coordinator,
                nodes=work.nodes,
                guards=work.guards,
                assignment=work.assignment(),
                paths=paths,
                attempt=1
                if work.delivery.is_saved
                else work.attempt,  # the register counts attempts from its bootstrap on
                away=work.away,
                seconds_to_running=seconds,
            )

        running = await self._records.change(record.name, record.version, close, record.number)
        if running is None:
            raise CommandRefused(
                f"{record.name} was deployed, but its record cannot be written: the ring did not answer, or another run of "
                "this name was submitted elsewhere while the network was partitioned."
            )
        if running.state != RUNNING:
            raise CommandRefused(running.reason or f"{record.name} was {running.state} while it was being deployed.")
        if work.delivery.is_saved:
            whole = self._deploying.whole_part(work)
            await self._recovery_service.bootstrap.create(whole, whole.places(), work.guards, _brought(submission))
            return running
        silent = await self._deploying.start_flow(work)
        if silent:
            names = ", ".join(peer.name or peer.node.short for peer in silent)
            raise CommandRefused(f"{names} left while {record.name} was starting.")
        return running

    async def _abandoned(
        self, record: ApplicationRecord, work: list[Deployment], failure: OperationFailed
    ) -> CommandRefused:
        """Undo a failed deployment: halt all touched nodes, close the record; return the error for the user."""
        reason = str(failure)
        closed = await self._records.change(
            record.name,
            record.version,
            lambda current: (
                advanced(current, FAILED, reason, self._context.wall_ms) if current.ticket == record.ticket else None
            ),
            record.number,
        )
        touched: dict[NodeId, Peer] = {}
        for plan in work:
            for peer in plan.touched:
                touched.setdefault(peer.node, peer)
        text = closed.reason if closed is not None and closed.is_final else reason
        await self._watching.halt(tuple(touched.values()), (record.name, record.version), text, record.number)
        code = failure.exit_code if isinstance(failure, CommandRefused) else 1
        return CommandRefused(text or reason, code)


def _from(submission: Submission) -> str:
    return f"; it starts from {submission.origin.about}" if submission.origin is not None else ""


def _brought(submission: Submission) -> InitialCheckpoint | None:
    origin = submission.origin
    return None if origin is None else InitialCheckpoint(origin.kind, submission.submitted_to.node, origin.snapshots)


def _already(record: ApplicationRecord) -> str:
    by = f" by {record.submitter}" if record.submitter else ""
    return (
        f"{record.name} is already {record.state}, submitted to {record.submitted_to}{by}. "
        f"Stop it first: agiledart stop {record.name}"
    )


def _too_small(places: int, missing: int) -> str:
    return (
        f"Gates may still lease machines for {places} instances; it needs {missing} more than all nodes can take. Raise max_hosts "
        "or max_spend of a gate, or choose an offer with more capacity."
    )


def _where(name: str, blueprint: Blueprint, placement: Placement, nodes: tuple[Peer, ...]) -> str:
    names_by_id = display_names(nodes)
    parts = []
    for number, stage in enumerate(blueprint.stages):
        names = list(dict.fromkeys(names_by_id[node] for node in placement.hosts_of(number)))
        parts.append(f"{stage.name}@{','.join(names)}")
    return f"{name} → {'  '.join(parts)}"


def exposure_warnings(nodes: list[tuple[Peer, NodeLoad]]) -> list[str]:
    """Return what the user's code can do to the agents of these nodes."""

    def names(peers: list[Peer]) -> str:
        return ", ".join(peer.name or peer.node.short for peer in peers)

    texts = []
    if open_to_users := [peer for peer, load in nodes if not load.confines]:
        why = "there it is not confined (agiledart doctor says why)"
        texts.append(f"your code can read the keys of {names(open_to_users)}: {why}")
    if changeable := [peer for peer, load in nodes if load.exposes_python]:
        why = "its agent's user may write there (agiledart doctor names the folders)"
        texts.append(f"your code can change the Python of {names(changeable)}: {why}")
    return texts


def running_response(record: ApplicationRecord, relaxed: tuple[str, ...], strategy: str) -> SubmitResponse:
    """Return the answer to a submission that runs; `relaxed`: dropped placement rules."""
    names_by_id = record.names()
    return SubmitResponse(
        name=record.name,
        version=record.version,
        state=record.state,
        placement=record.placement,
        nodes=[names_by_id[peer.node] for peer in record.hosts()],
        coordinator=names_by_id[record.coordinator.node] if record.coordinator is not None else "",
        paths=[[names_by_id[peer.node] for peer in path] for path in record.paths],
        relaxed=list(relaxed),
        strategy=strategy,
        reasons=record.reasons,
        data_paths=record.data_paths,
        seconds_to_running=record.seconds_to_running,
        scheduler=record.scheduler.name or record.scheduler.node.short,
    )
