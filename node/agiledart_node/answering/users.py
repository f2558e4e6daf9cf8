"""`Users`: which part answers which command of a user. Each command is a conversation that ends with one reply, or a refusal."""

from collections.abc import Callable, Coroutine
from typing import Any

from agiledart_kernel.errors import OperationFailed
from agiledart_node.asking.checkpoints import checkpoints
from agiledart_node.desk.desk import CommandRefused, NotAllowed
from agiledart_node.parts import Parts
from agiledart_node.wire import commands
from agiledart_node.wire.effects import RefusedRequest
from agiledart_node.wire.events import Asked

Conversation = Coroutine[Any, None, None]


def _changes(parts: Parts) -> dict[type, Callable[..., Conversation]]:
    """Commands that change what runs, or where: told who submitted them, who asks, and the signed order."""
    return {
        commands.Submit: parts.schedulers.dispatching.submit,
        commands.Stop: parts.stopping.stop,
        commands.Scale: parts.wanting.change,
        commands.Move: parts.wanting.change,
        commands.DrainNode: parts.wanting_drains.drain,
        commands.ExportCheckpoint: parts.kept.wanted,
        commands.RemoveCheckpoint: parts.kept.wanted,
        commands.RecoverRun: parts.regaining.recover,
    }


def _orders(parts: Parts) -> dict[type, Callable[..., Conversation]]:
    """Commands that change what is known: told who asks, and the signed order."""
    return {
        commands.Forget: parts.forgetting.forget,
        commands.Ban: parts.banning.ban,
        commands.SetSecret: parts.entrusting.entrust,
        commands.Share: parts.sharing.share,
    }


def _questions(parts: Parts) -> dict[type, Callable[[int, Any, Any], Conversation]]:
    """Commands of who only wants to know, or to stay: told who asks."""
    questions = parts.questions
    return {
        commands.Renew: parts.renewing.renew_user,
        commands.Secrets: parts.entrusting.secrets,
        commands.Tap: parts.tapping.tap,
        commands.Tokens: lambda request, command, asker: parts.registering.tokens(request),
        commands.Bans: lambda request, command, asker: parts.banning.bans(request),
        commands.Audit: lambda request, command, asker: parts.auditing.audit(request, command),
        commands.Checkpoints: lambda request, command, asker: checkpoints(
            parts.desk, questions, parts.kept, request, command, asker
        ),
        commands.ListApplications: lambda request, command, asker: questions.list_applications(request, asker),
        commands.Status: lambda request, command, asker: questions.status(request, command.name, asker),
        commands.Nodes: lambda request, command, asker: questions.nodes(request),
        commands.Route: lambda request, command, asker: questions.route(request, command.key),
        commands.Logs: lambda request, command, asker: questions.logs(request, command.name, command.after, asker),
        commands.Info: lambda request, command, asker: questions.info(request),
        commands.ExplainRecovery: lambda request, command, asker: questions.recovery(request, command.name, asker),
        commands.ExplainScaling: lambda request, command, asker: questions.scaling(
            request, command.name, command.stage, asker
        ),
    }


class Users:
    """Takes commands of users."""

    def __init__(self, parts: Parts) -> None:
        self._desk = parts.desk
        self._changes, self._orders, self._questions = _changes(parts), _orders(parts), _questions(parts)

    def asked(self, event: Asked) -> None:
        """Begin to answer, unless this node cannot now."""
        request, me = event.request, self._desk.me.name
        if self._desk.talks.is_full:
            self._refuse(
                request, f"{me} is busy with {self._desk.config.max_conversations:,} requests; try again in a moment."
            )
        elif not self._desk.overlay.joined and not isinstance(event.command, commands.Info):
            self._refuse(request, f"{me} is not in a ring yet; try again in some seconds.")
        elif (conversation := self._conversation(event)) is not None:
            self._desk.talks.begin(self._answered(request, conversation))
        else:
            self._refuse(request, f"{type(event.command).__name__} is not answered by the node but by its agent.")

    def _conversation(self, event: Asked) -> Conversation | None:
        kind = type(event.command)
        if (change := self._changes.get(kind)) is not None:
            return change(event.request, event.command, event.submitter, event.asker, event.order)
        if (order := self._orders.get(kind)) is not None:
            return order(event.request, event.command, event.asker, event.order)
        if (question := self._questions.get(kind)) is not None:
            return question(event.request, event.command, event.asker)
        return None

    async def _answered(self, request: int, conversation: Conversation) -> None:
        try:
            await conversation
        except NotAllowed as refusal:
            self._refuse(request, refusal.text, refusal.exit_code, refusal.reason)
        except CommandRefused as refusal:
            self._refuse(request, refusal.text, refusal.exit_code)
        except OperationFailed as failure:
            self._refuse(request, str(failure))

    def _refuse(self, request: int, text: str, exit_code: int = 1, reason: str = "") -> None:
        self._desk.emit(RefusedRequest(request, text, exit_code, reason))
