"""The code of a run, for a node that takes something over: another host of the life gives it, to nobody else."""

from collections.abc import Callable

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.peer import Peer
from agiledart_node.desk.conversations import Question
from agiledart_node.desk.desk import Desk
from agiledart_node.hosting.hosted import is_sound
from agiledart_node.recovering.bringing_back import HostedRun
from agiledart_node.wire.recovery_messages import AskPart, PartIs
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Plan, Value

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)

PATIENCE = 5
"""Resend intervals before the code is asked for again: it may have megabytes."""


async def borrow(
    desk: Desk, run: Run, life: int, plan: Plan, objection: Callable[[DeploymentPart], str]
) -> DeploymentPart:
    """The part of another host, without its instances.

    Args:
        plan: of the life; its hosts have the code.
        objection: why a part does not follow from its user's order; empty: it does.

    Raises:
        OperationFailed: no other host gives it.
    """
    for peer in plan.hosts.values():
        if peer.node == desk.me.node or desk.talks.is_gone(peer):
            continue
        number = desk.talks.number()
        question = Question(peer, AskPart(number, run.app, run.version, life), PartIs, PATIENCE)
        answers = await desk.talks.answers({number: question}, Duration(desk.config.ask_timeout_ns))
        answer = answers.get(number)
        if isinstance(answer, PartIs) and answer.part:
            try:
                part = _PART.decode(answer.part)
            except RemoteProtocolError:
                desk.drop("part form")
                continue
            if is_sound(part) and part.bundle and (part.application, part.version) == (run.app, run.version):
                if objection(part):
                    desk.drop("order: refused")
                    continue
                return msgspec.structs.replace(part, instances=(), addresses=(), most=0)
    raise OperationFailed(f"no other host gave {desk.me.name} the code of {run.app}")


def lent(
    run: HostedRun | None, value: Value | None, coming: Plan | None, sender: Peer, message: AskPart
) -> PartIs | None:
    """The answer to a host of the life, or of a plan that is made ready in it; None, which is no answer, to everybody else, and
    while this node is not that far.
    """
    if run is None or value is None or value.life < message.life:
        return None
    if sender.node not in value.plan.hosts and (coming is None or sender.node not in coming.hosts):
        return None
    return PartIs(message.request, encode(run.part))
