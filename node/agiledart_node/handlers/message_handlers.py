"""Handlers of the messages of other nodes."""

from collections.abc import Callable, Coroutine
from typing import Any

from agiledart_kernel.machine import Received
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.node_parts import NodeParts
from agiledart_node.scheduling.node_scheduling import ANSWERS as SCHEDULING_ANSWERS
from agiledart_node.wire import drain_messages, formation_messages, lease_messages, mopa_messages, recovery_messages
from agiledart_node.wire.audit_messages import AuditLines, QueryAudit
from agiledart_node.wire.ban_messages import BanDigest, BanNews
from agiledart_node.wire.change_messages import ChangeAccepted, RequestChange
from agiledart_node.wire.checkpoint_messages import (
    CHECKPOINT_REPLIES,
    QueryRetained,
    RequestCheckpoint,
    RequestCopy,
    RequestDownload,
    RequestRemoval,
)
from agiledart_node.wire.feed_messages import FeedChanged, FeedList, QueryFeeds, RequestFeedChange
from agiledart_node.wire.log_list_messages import LogNames, QueryLogNames
from agiledart_node.wire.model_messages import ModelPlaced, PlaceModel
from agiledart_node.wire.quorum_recovery_messages import QUORUM_RECOVERY_REPLIES, QueryRegister, RequestQuorumRecovery
from agiledart_node.wire.renewal_messages import RenewalReply, RequestRenewal
from agiledart_node.wire.secret_messages import QuerySecrets, SecretList, SecretStored, StoreSecret
from agiledart_recovery.wire.messages import RunMessage

_ANSWERS = (
    recovery_messages.VoterCreated,
    recovery_messages.PartReply,
    recovery_messages.RecoveryStatus,
    formation_messages.JoinTree,
    formation_messages.NodeLoad,
    formation_messages.Deployed,
    formation_messages.Acknowledged,
    formation_messages.Reports,
    formation_messages.LogLines,
    formation_messages.TapRows,
    formation_messages.HostChecked,
    AuditLines,
    SecretStored,
    SecretList,
    ModelPlaced,
    FeedChanged,
    FeedList,
    LogNames,
    RenewalReply,
    ChangeAccepted,
    drain_messages.DrainStatus,
    drain_messages.EvacuationStatus,
    lease_messages.LeaseStatus,
    lease_messages.GateList,
    mopa_messages.NearestNodes,
    mopa_messages.PlaceNoted,
    *CHECKPOINT_REPLIES,
    *QUORUM_RECOVERY_REPLIES,
    *SCHEDULING_ANSWERS,
)
"""Messages that answer a numbered request of a conversation."""


def _request_handlers(parts: NodeParts) -> dict[type, Callable[[Peer, Any], Coroutine[Any, None, None]]]:
    """Return handlers of requests that need a conversation of their own."""
    return {
        formation_messages.QueryLogs: parts.log_queries.local_logs,
        formation_messages.QueryTap: parts.tap_requests.answer_agent,
        QueryAudit: parts.audit_queries.answer_agent,
        StoreSecret: parts.secret_provisioning.store,
        QuerySecrets: parts.secret_provisioning.answer_agent,
        RequestFeedChange: parts.feed_commands.carry_out,
        PlaceModel: parts.model_sharing.placed,
        QueryLogNames: parts.log_lists.answer_agent,
        QueryFeeds: parts.feed_commands.answer_agent,
        RequestChange: parts.changes.asked,
        RequestCheckpoint: parts.checkpoint_exporter.asked,
        RequestCopy: parts.checkpoint_exporter.copy,
        QueryRegister: parts.quorum_recovery.status,
        RequestQuorumRecovery: parts.quorum_recovery.asked,
        QueryRetained: parts.retained_checkpoints.answer_agent,
        RequestRemoval: parts.retained_checkpoints.remove_or_transfer,
        RequestDownload: parts.retained_checkpoints.remove_or_transfer,
        drain_messages.RequestDrain: parts.node_drain.asked,
        lease_messages.RequestLease: parts.lease_keeper.asked,
        lease_messages.QueryGates: parts.gate_reports.answer_agent,
        drain_messages.RequestEvacuation: parts.evacuation_requests.asked,
    }


def _immediate_handlers(parts: NodeParts) -> dict[type, Callable[[Peer, Any], None]]:
    """Return handlers of messages that are handled in the step that brings them."""
    recovery_service = parts.recovery_service
    return {
        formation_messages.SendJoins: parts.joining.send_joins,
        formation_messages.CollectJoins: parts.joining.collect,
        formation_messages.JoinArrived: parts.joining.arrived,
        formation_messages.Survey: lambda sender, message: parts.context.send(sender, parts.surveying.load(message)),
        formation_messages.Deploy: parts.hosting.deploy,
        formation_messages.StartFlow: parts.hosting.start_flow,
        formation_messages.Halt: parts.hosting.halt,
        formation_messages.Drain: parts.hosting.drain,
        formation_messages.ApplicationForgotten: parts.ended_records.on_forgotten,
        formation_messages.InstancesEnded: parts.watching.ended,
        formation_messages.RequestStop: parts.watching.stops.ask_stop,
        formation_messages.QueryReports: parts.status_queries.reports,
        formation_messages.CheckHost: parts.submissions.checking.asked,
        formation_messages.QueryActive: lambda sender, message: parts.watching.answer_active_query(
            sender, message, is_scheduling=(message.application, message.version) in parts.submissions.deploying
        ),
        formation_messages.TraceHops: parts.node_queries.traced,
        mopa_messages.InstancePosition: parts.mopa_hosting.position_received,
        mopa_messages.QueryNearest: parts.mopa_hosting.nearest,
        mopa_messages.RequestPlace: parts.replacement_service.wishes.asked,
        recovery_messages.CreateVoter: recovery_service.bootstrap.make_voter,
        recovery_messages.BootstrapRegister: recovery_service.bootstrap.bootstrap_register,
        recovery_messages.AttemptListening: recovery_service.listening,
        recovery_messages.RunClosed: recovery_service.end_reporter.run_closed,
        recovery_messages.RequestPart: recovery_service.ask_part,
        recovery_messages.QueryRecovery: recovery_service.status.ask_recovery,
        recovery_messages.GenerationListening: recovery_service.generation_listening,
        drain_messages.QueryDrain: parts.node_drain.look,
        BanNews: parts.banning.spreading.on_news,
        BanDigest: parts.banning.spreading.on_digest,
        RequestRenewal: parts.renewing.asked,
        **parts.schedulers.by_message,
    }


class MessageHandlers:
    """Dispatches messages of other nodes, and of this node to itself, to their handlers."""

    def __init__(self, parts: NodeParts) -> None:
        self._context, self._surveying, self._recovery_service = parts.context, parts.surveying, parts.recovery_service
        self._handlers = {
            **_immediate_handlers(parts),
            **{kind: _as_request(parts.context, answer) for kind, answer in _request_handlers(parts).items()},
        }

    def received(self, event: Received) -> None:
        """Handle a message of the applications' protocols, or pass it to the overlay."""
        sender, message = event.sender, event.message
        self._context.requests.peer_seen(sender)
        take = self._handlers.get(type(message))
        if take is not None:
            take(sender, message)
        elif isinstance(message, RunMessage):
            self._recovery_service.received(sender, message)
        elif isinstance(message, _ANSWERS):
            if isinstance(message, formation_messages.NodeLoad):
                self._surveying.load_received(sender, message)
            if not self._context.requests.reply_received(sender, message.request, message):
                self._context.drop("late answer")
        else:
            self._context.deliver_to_overlay(event)


def _as_request(
    context: NodeContext, answer: Callable[[Peer, Any], Coroutine[Any, None, None]]
) -> Callable[[Peer, Any], None]:
    """Return a handler that begins the conversation; when there are too many, it does nothing and the other node asks again.

    A conversation that ends without an answer, because the ring did not give it a record, is counted. It must not end this node.
    """

    async def answered(sender: Peer, message: Any) -> None:
        try:
            await answer(sender, message)
        except CommandRefused:
            context.drop("request without answer")

    def begin(sender: Peer, message: Any) -> None:
        if not context.requests.is_full:
            context.requests.begin(answered(sender, message))

    return begin
