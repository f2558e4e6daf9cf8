"""`OtherNodes`: which part takes which message of another node."""

from collections.abc import Callable, Coroutine
from typing import Any

from agiledart_kernel.machine import Received
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import Desk
from agiledart_node.parts import Parts
from agiledart_node.scheduling.schedulers import ANSWERS as SCHEDULING_ANSWERS
from agiledart_node.wire import drain_messages, formation_messages, recovery_messages
from agiledart_node.wire.audit_messages import AskAudit, AuditLines
from agiledart_node.wire.ban_messages import BanDigest, BanNews
from agiledart_node.wire.change_messages import AskChange, ChangeTaken
from agiledart_node.wire.checkpoint_messages import (
    CHECKPOINT_ANSWERS,
    AskCheckpoint,
    AskCopy,
    AskKept,
    AskLoan,
    AskRemoval,
)
from agiledart_node.wire.regain_messages import REGAIN_ANSWERS, AskRegain, AskStanding
from agiledart_node.wire.renewal_messages import AskRenewal, RenewalIs
from agiledart_node.wire.secret_messages import AskSecrets, SecretsAre, SecretStored, StoreSecret
from agiledart_recovery.wire.messages import RunMessage

_ANSWERS = (
    recovery_messages.VoterMade,
    recovery_messages.PartIs,
    recovery_messages.RecoveryIs,
    formation_messages.JoinTree,
    formation_messages.Load,
    formation_messages.Deployed,
    formation_messages.Acknowledged,
    formation_messages.Reports,
    formation_messages.LogLines,
    formation_messages.TapRows,
    formation_messages.HostChecked,
    AuditLines,
    SecretStored,
    SecretsAre,
    RenewalIs,
    ChangeTaken,
    drain_messages.DrainIs,
    drain_messages.Relieved,
    *CHECKPOINT_ANSWERS,
    *REGAIN_ANSWERS,
    *SCHEDULING_ANSWERS,
)
"""Messages that answer a numbered question of a conversation."""


def _in_conversations(parts: Parts) -> dict[type, Callable[[Peer, Any], Coroutine[Any, None, None]]]:
    """Questions that take a conversation of our own."""
    return {
        formation_messages.AskLogs: parts.questions.local_logs,
        formation_messages.AskTap: parts.tapping.local,
        AskAudit: parts.auditing.local,
        StoreSecret: parts.entrusting.store,
        AskSecrets: parts.entrusting.local,
        AskChange: parts.changes.asked,
        AskCheckpoint: parts.keeping.asked,
        AskCopy: parts.keeping.copy,
        AskStanding: parts.regaining.standing,
        AskRegain: parts.regaining.asked,
        AskKept: parts.kept.local,
        AskRemoval: parts.kept.ordered,
        AskLoan: parts.kept.ordered,
        drain_messages.AskDrain: parts.draining.asked,
        drain_messages.AskRelief: parts.relieving.asked,
    }


def _at_once(parts: Parts) -> dict[type, Callable[[Peer, Any], None]]:
    """Messages that are worked off in the step that brings them."""
    recovering = parts.recovering
    return {
        formation_messages.SendJoins: parts.joining.send_joins,
        formation_messages.CollectJoins: parts.joining.collect,
        formation_messages.JoinArrived: parts.joining.arrived,
        formation_messages.Survey: lambda sender, message: parts.desk.send(sender, parts.surveying.load(message)),
        formation_messages.Deploy: parts.hosting.deploy,
        formation_messages.StartFlow: parts.hosting.start_flow,
        formation_messages.Halt: parts.hosting.halt,
        formation_messages.Drain: parts.hosting.drain,
        formation_messages.InstancesEnded: parts.watching.ended,
        formation_messages.AskStop: parts.watching.ask_stop,
        formation_messages.AskReports: parts.questions.reports,
        formation_messages.CheckHost: parts.submissions.checking.asked,
        formation_messages.AskWhetherActive: lambda sender, message: parts.watching.whether_active(
            sender, message, is_scheduling=(message.application, message.version) in parts.submissions.deploying
        ),
        formation_messages.TraceHops: parts.questions.traced,
        recovery_messages.MakeVoter: recovering.make_voter,
        recovery_messages.FoundRegister: recovering.found_register,
        recovery_messages.Listening: recovering.listening,
        recovery_messages.RunClosed: recovering.ending.run_closed,
        recovery_messages.AskPart: recovering.ask_part,
        recovery_messages.AskRecovery: recovering.ask_recovery,
        recovery_messages.TermListening: recovering.term_listening,
        drain_messages.LookAtDrain: parts.draining.look,
        BanNews: parts.banning.spreading.on_news,
        BanDigest: parts.banning.spreading.on_digest,
        AskRenewal: parts.renewing.asked,
        **parts.schedulers.by_message,
    }


class OtherNodes:
    """Takes messages of other nodes, and of this node to itself."""

    def __init__(self, parts: Parts) -> None:
        self._desk, self._surveying, self._recovering = parts.desk, parts.surveying, parts.recovering
        self._taken = {
            **_at_once(parts),
            **{kind: _begun(parts.desk, answer) for kind, answer in _in_conversations(parts).items()},
        }

    def received(self, event: Received) -> None:
        """A message: of the applications' side, or of the overlay."""
        sender, message = event.sender, event.message
        self._desk.talks.seen(sender)
        take = self._taken.get(type(message))
        if take is not None:
            take(sender, message)
        elif isinstance(message, RunMessage):
            self._recovering.received(sender, message)
        elif isinstance(message, _ANSWERS):
            if isinstance(message, formation_messages.Load):
                self._surveying.heard(sender, message)
            if not self._desk.talks.heard(sender, message.request, message):
                self._desk.drop("late answer")
        else:
            self._desk.tell_overlay(event)


def _begun(desk: Desk, answer: Callable[[Peer, Any], Coroutine[Any, None, None]]) -> Callable[[Peer, Any], None]:
    """Begins the conversation; when there are too many, the other node asks again."""

    def begin(sender: Peer, message: Any) -> None:
        if not desk.talks.is_full:
            desk.talks.begin(answer(sender, message))

    return begin
