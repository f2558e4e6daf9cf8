"""Parts of one node, created in order and connected with each other."""

from functools import partial

from agiledart_kernel.observation import Observer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.autoscaling.autoscaler import Autoscaler
from agiledart_node.autoscaling.mopa_hosting import MopaHosting
from agiledart_node.autoscaling.path_renewal import PathRenewal
from agiledart_node.autoscaling.replacement_service import ReplacementService
from agiledart_node.banning.ban_commands import BanCommands
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.node_context import NodeContext
from agiledart_node.draining.drain_requests import DrainRequests
from agiledart_node.draining.evacuation_requests import EvacuationRequests
from agiledart_node.draining.node_drain import NodeDrain
from agiledart_node.forming.join_protocol import JoinProtocol
from agiledart_node.forming.submission_runner import SubmissionRunner
from agiledart_node.forming.surveyor import Surveyor
from agiledart_node.gates.gate_reports import GateReports
from agiledart_node.gates.host_lease import LeaseKeeper
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.hosting.ended_records import EndedRecords
from agiledart_node.hosting.hosted_application import HostedApplication
from agiledart_node.hosting.load_reporter import LoadReporter
from agiledart_node.live_placement.placement_queries import PlacementQueries
from agiledart_node.live_placement.plan_solver import PlanSolver
from agiledart_node.live_placement.submission_plans import SubmissionPlans
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.merged_applications import applications
from agiledart_node.records.record_kind import NAMES, NODE_NAMES, merge_of
from agiledart_node.records.records import Records
from agiledart_node.records.signatures import Signatures, VerifyCommand
from agiledart_node.records.sink_directory import SINKS, SinkDirectory
from agiledart_node.recovery.change_requests import ChangeRequests
from agiledart_node.recovery.checkpoint_exporter import CheckpointExporter
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.registering.membership_renewal import MembershipRenewal
from agiledart_node.registering.token_registry import TokenRegistry
from agiledart_node.registering.token_uses import TOKENS, USES
from agiledart_node.scheduling.claims import CLAIMS
from agiledart_node.scheduling.node_scheduling import NodeScheduling
from agiledart_node.user_commands.application_removal import ApplicationRemoval
from agiledart_node.user_commands.application_sharing import ApplicationSharing
from agiledart_node.user_commands.audit_queries import AuditQueries
from agiledart_node.user_commands.command_service import CommandParts
from agiledart_node.user_commands.explanation_queries import ExplanationQueries
from agiledart_node.user_commands.feed_commands import FeedCommands
from agiledart_node.user_commands.log_lists import LogLists
from agiledart_node.user_commands.log_queries import LogQueries
from agiledart_node.user_commands.model_sharing import ModelSharing
from agiledart_node.user_commands.node_queries import NodeQueries
from agiledart_node.user_commands.recover_command import QuorumRecovery
from agiledart_node.user_commands.retained_checkpoints import RetainedCheckpoints
from agiledart_node.user_commands.secret_provisioning import SecretProvisioning
from agiledart_node.user_commands.status_queries import StatusQueries
from agiledart_node.user_commands.stop_requests import StopRequests
from agiledart_node.user_commands.tap_requests import TapRequests
from agiledart_node.user_commands.user_change_requests import UserChangeRequests

_KINDS = (SINKS, NAMES, NODE_NAMES, CLAIMS, USES, TOKENS)
"""Kinds of records on the ring beside those of applications."""


class NodeParts:
    """All parts of one node. They share the context; each part gets those that it calls.

    Args: as of `Node`.
    """

    def __init__(
        self,
        me: Peer,
        config: NodeConfig,
        random: RandomStream,
        observe: Observer,
        verify: VerifyCommand | None,
        secret: bytes,
    ) -> None:
        signatures = Signatures(verify)
        self.context = context = NodeContext(
            me, config, random, observe, merge_of((applications(signatures.checker), *_KINDS))
        )
        self.verifier = verifier = CommandVerifier(context, verify, signatures)
        self.records = records = Records(context, verifier)
        self.hosting = hosting = ApplicationHost(context, verifier, records)
        self.loading = LoadReporter(context, hosting)
        self.joining = JoinProtocol(context)
        self.surveying = surveying = Surveyor(context, hosting)
        self.watching = watching = ApplicationWatcher(context, records, hosting, verifier)
        draws = RandomStream(random.bits(64), "recovery")
        self.recovery_service = RecoveryService(context, records, hosting, draws, secret, verifier.is_recovery)
        self.submissions = SubmissionRunner(
            context,
            records,
            self.joining,
            surveying,
            watching,
            self.recovery_service,
            verifier,
            RandomStream(random.bits(64), "tickets"),
        )
        self.schedulers = NodeScheduling(
            context,
            records,
            hosting,
            watching,
            self.submissions,
            verifier,
            RandomStream(random.bits(64), "scheduling"),
        )
        surveying.served = lambda: self.schedulers.served
        self.ended_records = EndedRecords(context, records)
        self._connect_recovery()
        self._make_queries()
        self._make_run_endings()
        self._make_changes()
        self.banning = BanCommands(context, verifier, verify)
        self.audit_queries, self.secret_provisioning = (
            AuditQueries(context),
            SecretProvisioning(context, records, verifier),
        )
        self.renewing = MembershipRenewal(context, records)
        self.registering = TokenRegistry(context, records, verifier, RandomStream(int(me.node), "registering"))
        self._make_logs()

    def _make_queries(self) -> None:
        """Make what answers questions, about applications, nodes and the output of code."""
        context, records, hosting, watching = self.context, self.records, self.hosting, self.watching
        self.status_queries = StatusQueries(context, records, hosting, watching)
        self.explanation_queries = ExplanationQueries(context, self.status_queries, watching)
        self.log_queries = LogQueries(context, self.status_queries)
        self.node_queries = NodeQueries(context, hosting, self.surveying)
        self.application_sharing = ApplicationSharing(context, records, self.status_queries, self.verifier)
        self.application_removal = ApplicationRemoval(context, records, self.status_queries, watching, self.verifier)
        self.status_queries.on_ended_long_ago = self.application_removal.forget_old
        self.tap_requests = TapRequests(context, self.status_queries, hosting, records, self.verifier)

    def _make_logs(self) -> None:
        """Make what serves logs of sinks and feeds."""
        self.feed_commands = FeedCommands(self.context, self.records, self.verifier)
        self.log_lists = LogLists(self.context)
        self.sinks = SinkDirectory(self.context, self.records, self.verifier)

    def _connect_recovery(self) -> None:
        """Connect recovery: it receives failures, ends and records; runs that it gives up are closed like all others."""
        close_renewals = self.hosting.on_close

        def closed(hosted: HostedApplication) -> None:
            close_renewals(hosted)
            self.recovery_service.forget(hosted)
            self.ended_records.closed(hosted)

        self.hosting.on_close = closed
        self.recovery_service.closed = self.watching.closed
        self.recovery_service.attempt_records.drain = self.watching.stops.drain
        self.watching.on_broken = self.recovery_service.broken
        self.watching.changes_of = self.recovery_service.status.changes_known
        self.watching.on_record = self.recovery_service.attempt_records.record_read

    def _make_run_endings(self) -> None:
        """Create the parts that end runs at a user's request, also with a checkpoint; and what models nodes share."""
        about = self.context, self.records
        parts = self._command_parts = CommandParts(*about, self.status_queries, self.watching, self.verifier)
        self.model_sharing = ModelSharing(parts)
        entry = self.recovery_service.attempt_entry
        entry.models_of, entry.fetch_models = self.model_sharing.models_of, self.model_sharing.fetch_models
        self.retained_checkpoints = RetainedCheckpoints(parts)
        self.checkpoint_exporter = CheckpointExporter(*about, self.recovery_service, self.verifier)
        self.quorum_recovery = QuorumRecovery(*about, self.recovery_service, self.verifier)
        self.stop_requests = StopRequests(parts, self.retained_checkpoints)

    def _make_changes(self) -> None:
        """Create the parts that change stages, for users and by autoscaling; `changes` works where a run is coordinated."""
        about = self.context, self.records
        self.plan_solver = PlanSolver(self.context)
        self.submissions.planning.solve = SubmissionPlans(self.plan_solver).solve
        loads = partial(self.surveying.loads, wants_round_trips=True)
        self.changes = ChangeRequests(*about, self.recovery_service, self.verifier, loads)
        self.autoscaler = Autoscaler(*about, self.recovery_service, self.changes, loads)
        self.path_renewal = PathRenewal(*about, self.recovery_service, self.joining)
        self.replacement_service = ReplacementService(
            *about, self.recovery_service, self.changes, self.surveying, self.plan_solver
        )
        self.mopa_hosting = MopaHosting(
            self.context, self.hosting, self.recovery_service, RandomStream(int(self.context.me.node), "mopa")
        )
        self.user_change_requests = UserChangeRequests(self._command_parts)
        self.recovery_service.status.scaling_of = self.autoscaler.statuses
        self.recovery_service.status.placement_of = self.replacement_service.statuses
        self.node_drain = NodeDrain(*about, self.hosting, self.recovery_service, self.verifier)
        self.evacuation_requests = EvacuationRequests(self.context, self.recovery_service, self.changes)
        self.placement_queries = PlacementQueries(self.context, self.status_queries, self.watching, self.surveying)
        self.drain_requests = DrainRequests(self.context, self.verifier)
        self.gate_reports = GateReports(*about, self.verifier)
        self.lease_keeper = LeaseKeeper(self.context, self.node_drain, self.verifier)
        self.surveying.lease = self.lease_keeper.lease
        self.submissions.leasable_places = self.gate_reports.leasable_places

    async def learn_labels(self) -> None:
        """Learn the labels of nodes that runs may need whose registers this node votes in."""
        timeout = self.context.config.report_timeout_ns
        service = self.recovery_service
        await service.host_rules.learn(service.machine, lambda peers: self.surveying.loads(peers, timeout))

    def violations(self) -> list[str]:
        """Return the violated invariants of the parts that check themselves."""
        checked = (self.context, self.hosting, self.loading, self.schedulers)
        return [line for part in checked for line in part.violations()]
