"""Messages between nodes after the permanent loss of a majority of a run's voters. Tags 480 to 489.

The agent asked by an admin collects the rest of the register (`QueryRegister`) and has one of the remaining voters carry out the
recovery (`RequestQuorumRecovery`). That voter collects the rest again. Each of them verifies the admin's signed command.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.checkpoint_commands import RecoverRun
from agiledart_recovery.limits import MAX_VOTERS
from agiledart_recovery.wire.register_status import RegisterStatus

_Text = Annotated[str, msgspec.Meta(max_length=4_096)]
_SignedCommand = Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)]


class QueryRegister(Message, frozen=True, gc=False, tag=480):
    """Request for the receiver's part of this run's register. Answered by `RegisterReply`.

    Args:
        signed_command: the command signed by its admin, required because the answer contains the key of the run.
    """

    request: int
    version: Count
    command: RecoverRun
    signed_command: _SignedCommand = b""


class RegisterReply(Message, frozen=True, gc=False, tag=481):
    """The sender's part of a register, and agents that may have other parts. `refusal`: why the sender does not show it."""

    request: int
    status: RegisterStatus = RegisterStatus()
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()
    refusal: _Text = ""


class RequestQuorumRecovery(Message, frozen=True, gc=False, tag=482):
    """Request to a remaining voter: continue the run without its lost voters. Answered by `QuorumRecoveryReply` after the write.

    Args:
        submitter: requester, for people, where nothing is signed.
    """

    request: int
    application: ApplicationName
    version: Count
    command: RecoverRun
    signed_command: _SignedCommand = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class QuorumRecoveryReply(Message, frozen=True, gc=False, tag=483):
    """The run continues in this quorum generation with these voters; or the reason why not."""

    request: int
    quorum_generation: Count = 0
    voters: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=MAX_VOTERS)] = ()
    refusal: _Text = ""


QuorumRecoveryMessage = QueryRegister | RegisterReply | RequestQuorumRecovery | QuorumRecoveryReply
QUORUM_RECOVERY_REPLIES = (RegisterReply, QuorumRecoveryReply)
