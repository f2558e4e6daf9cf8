"""Handlers of user commands. Each command is a conversation that ends with one reply, or a refusal."""

from collections.abc import Callable, Coroutine
from typing import Any

from agiledart_kernel.errors import OperationFailed
from agiledart_node.context.node_context import CommandRefused, NotAllowed
from agiledart_node.node_parts import NodeParts
from agiledart_node.user_commands.checkpoint_list import checkpoints
from agiledart_node.wire import checkpoint_commands, commands, lease_messages
from agiledart_node.wire.effects import RefusedRequest
from agiledart_node.wire.events import UserRequest

Handling = Coroutine[Any, None, None]


def _change_commands(parts: NodeParts) -> dict[type, Callable[..., Handling]]:
    """Return handlers of commands that change what runs, or where; they get the submitter, the principal and the signed command."""
    return {
        commands.Submit: parts.schedulers.submission_dispatcher.submit,
        commands.Stop: parts.stop_requests.stop,
        commands.ScaleStage: parts.user_change_requests.change,
        commands.MoveStage: parts.user_change_requests.change,
        commands.DrainNode: parts.drain_requests.drain,
        checkpoint_commands.ExportCheckpoint: parts.retained_checkpoints.export_or_remove,
        checkpoint_commands.RemoveCheckpoint: parts.retained_checkpoints.export_or_remove,
        checkpoint_commands.RecoverRun: parts.quorum_recovery.recover,
        lease_messages.OrderGate: parts.gate_reports.order,
    }


def _admin_commands(parts: NodeParts) -> dict[type, Callable[..., Handling]]:
    """Return handlers of commands that change stored facts, or give rows; they get the principal and the signed command."""
    return {
        commands.Tap: parts.tap_requests.tap,
        commands.Forget: parts.application_removal.forget,
        commands.SetBan: parts.banning.ban,
        commands.ShareModel: parts.model_sharing.share,
        commands.SetSecret: parts.secret_provisioning.provision_secret,
        commands.CreateFeed: parts.feed_commands.change,
        commands.RemoveFeed: parts.feed_commands.change,
        commands.ShareApplication: parts.application_sharing.share,
        lease_messages.RenewHostLease: parts.lease_keeper.renew,
        lease_messages.NoteLease: parts.gate_reports.note,
    }


def _queries(parts: NodeParts) -> dict[type, Callable[[int, Any, Any], Handling]]:
    """Return handlers of queries, and of the renewal of a user's membership; they get the principal."""
    status_queries = parts.status_queries
    return {
        commands.RenewUserMembership: parts.renewing.renew_user,
        commands.Secrets: parts.secret_provisioning.secrets,
        commands.Feeds: parts.feed_commands.feeds,
        lease_messages.ReportGate: parts.gate_reports.report,
        lease_messages.ShowProvisioning: parts.gate_reports.show,
        commands.Tokens: lambda request, command, principal: parts.registering.tokens(request),
        commands.ListBans: lambda request, command, principal: parts.banning.bans(request),
        commands.Audit: lambda request, command, principal: parts.audit_queries.audit(request, command),
        checkpoint_commands.Checkpoints: lambda request, command, principal: checkpoints(
            parts.context, status_queries, parts.retained_checkpoints, request, command, principal
        ),
        commands.ListApplications: lambda request, command, principal: status_queries.list_applications(
            request, principal
        ),
        commands.Status: lambda request, command, principal: status_queries.status(request, command.name, principal),
        commands.Nodes: lambda request, command, principal: parts.node_queries.nodes(
            request, with_network=command.network
        ),
        commands.TraceRoute: lambda request, command, principal: parts.node_queries.route(request, command.key),
        commands.Logs: lambda request, command, principal: parts.log_queries.logs(
            request, command.name, command.after, principal
        ),
        commands.Info: lambda request, command, principal: parts.node_queries.info(request),
        commands.ExplainRecovery: lambda request, command, principal: parts.explanation_queries.recovery(
            request, command.name, principal
        ),
        commands.ExplainPlacement: parts.placement_queries.explain,
        commands.ExplainScaling: lambda request, command, principal: parts.explanation_queries.scaling(
            request, command.name, command.stage, principal
        ),
    }


class CommandHandlers:
    """Dispatches commands of users to their handlers."""

    def __init__(self, parts: NodeParts) -> None:
        self._context = parts.context
        self._change_commands, self._admin_commands, self._queries = (
            _change_commands(parts),
            _admin_commands(parts),
            _queries(parts),
        )

    def asked(self, event: UserRequest) -> None:
        """Begin to answer a command, or refuse it when this node is too busy or not in a ring."""
        request, me = event.request, self._context.me.name
        if self._context.requests.is_full:
            self._refuse(
                request,
                f"{me} is busy with {self._context.config.max_conversations:,} requests; try again in a moment.",
            )
        elif not self._context.overlay.joined and not isinstance(event.command, commands.Info):
            self._refuse(request, f"{me} is not in a ring yet; try again in a few seconds.")
        elif (handling := self._handling(event)) is not None:
            self._context.requests.begin(self._answered(request, handling))
        else:
            self._refuse(request, f"{type(event.command).__name__} is answered by the agent, not by its node.")

    def _handling(self, event: UserRequest) -> Handling | None:
        kind = type(event.command)
        if (change := self._change_commands.get(kind)) is not None:
            return change(event.request, event.command, event.submitter, event.principal, event.signed_command)
        if (handle := self._admin_commands.get(kind)) is not None:
            return handle(event.request, event.command, event.principal, event.signed_command)
        if (question := self._queries.get(kind)) is not None:
            return question(event.request, event.command, event.principal)
        return None

    async def _answered(self, request: int, handling: Handling) -> None:
        try:
            await handling
        except NotAllowed as refusal:
            self._refuse(request, refusal.text, refusal.exit_code, refusal.reason)
        except CommandRefused as refusal:
            self._refuse(request, refusal.text, refusal.exit_code)
        except OperationFailed as failure:
            self._refuse(request, str(failure))

    def _refuse(self, request: int, text: str, exit_code: int = 1, reason: str = "") -> None:
        self._context.emit(RefusedRequest(request, text, exit_code, reason))
