"""What nodes say to each other when a majority of a run's voters is gone for ever. Tags 480 to 489.

The agent that an admin asked looks what is left of the register (`QueryRegister`), and has one of those that are left carry it out
(`RequestQuorumRecovery`), who looks for itself. Each of them checks the admin's order.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME
from agiledart_kernel.machine import Message
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import RecoverRun
from agiledart_recovery.limits import MAX_VOTERS
from agiledart_recovery.wire.register_status import RegisterStatus

_Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]
_Text = Annotated[str, msgspec.Meta(max_length=4_096)]
_SignedCommand = Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)]


class QueryRegister(Message, frozen=True, gc=False, tag=480):
    """What have you of this run's register? Answered by `RegisterReply`.

    Args:
        order: the command signed by its admin, for what is told holds the key of the run.
    """

    request: int
    version: Count
    command: RecoverRun
    signed_command: _SignedCommand = b""


class RegisterReply(Message, frozen=True, gc=False, tag=481):
    """This; and agents that may have something of it. `refusal`: why it is not told."""

    request: int
    status: RegisterStatus = RegisterStatus()
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()
    refusal: _Text = ""


class RequestQuorumRecovery(Message, frozen=True, gc=False, tag=482):
    """To a node that is left: have the run go on without its lost voters. Answered by `QuorumRecoveryReply` when the register says so.

    Args:
        submitter: who asks, for people, where nothing is signed.
    """

    request: int
    application: _Name
    version: Count
    command: RecoverRun
    signed_command: _SignedCommand = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class QuorumRecoveryReply(Message, frozen=True, gc=False, tag=483):
    """It goes on in this generation, with these voters; or why not."""

    request: int
    quorum_generation: Count = 0
    voters: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=MAX_VOTERS)] = ()
    refusal: _Text = ""


QuorumRecoveryMessage = QueryRegister | RegisterReply | RequestQuorumRecovery | QuorumRecoveryReply
QUORUM_RECOVERY_REPLIES = (RegisterReply, QuorumRecoveryReply)
