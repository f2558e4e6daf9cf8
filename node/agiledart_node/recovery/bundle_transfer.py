"""Transfer of a run's code to a node that takes something over; a host of the attempt gives it, to other hosts only."""

from collections.abc import Callable

import msgspec

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.hosting.hosted_application import is_sound
from agiledart_node.recovery.hosted_run import HostedRun
from agiledart_node.wire.recovery_messages import PartReply, RequestPart
from agiledart_node.wire.shared_model import SharedModel
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import Plan, RegisterValue

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)

RESEND_INTERVALS = 5
"""Resend intervals before the code is requested again, because it may have megabytes."""


async def fetch_bundle(
    context: NodeContext, run: RunId, attempt: int, plan: Plan, objection: Callable[[DeploymentPart], str]
) -> tuple[DeploymentPart, tuple[SharedModel, ...], Peer]:
    """Return the part of another host, without its instances; the models that this host has; and the host.

    Args:
        plan: plan of the attempt, whose hosts have the code.
        objection: returns why a part does not follow from its user's command; empty: it does.

    Raises:
        OperationFailed: no other host gives it.
    """
    for peer in plan.hosts.values():
        if peer.node == context.me.node or context.requests.is_gone(peer):
            continue
        number = context.requests.number()
        question = PeerRequest(peer, RequestPart(number, run.app, run.version, attempt), PartReply, RESEND_INTERVALS)
        answers = await context.requests.answers({number: question}, Duration(context.config.ask_timeout_ns))
        answer = answers.get(number)
        if isinstance(answer, PartReply) and answer.part:
            try:
                part = _PART.decode(answer.part)
            except RemoteProtocolError:
                context.drop("part form")
                continue
            if is_sound(part) and part.bundle and (part.application, part.version) == (run.app, run.version):
                if objection(part):
                    context.drop("command: refused")
                    continue
                return msgspec.structs.replace(part, instances=(), addresses=(), most=0), answer.models, peer
    raise OperationFailed(f"no other host gave {context.me.name} the code of {run.app}")


def bundle_answer(
    run: HostedRun | None,
    value: RegisterValue | None,
    pending: Plan | None,
    sender: Peer,
    message: RequestPart,
    models: tuple[SharedModel, ...] = (),
) -> PartReply | None:
    """Return the answer to a host of the attempt, or of a plan that is made ready in it, with the models that this node has.

    Standby hosts receive it, too. None, which means no answer, to every other node, and while this node has not entered that
    attempt.
    """
    if run is None or value is None or value.attempt < message.attempt:
        return None
    if sender.node not in value.informed and (pending is None or sender.node not in pending.hosts):
        return None
    return PartReply(message.request, encode(run.part), models)
