"""What nodes say to each other when a majority of a run's voters is gone for ever. Tags 480 to 489.

The agent that an admin asked looks what is left of the register (`AskStanding`), and has one of those that are left carry it out
(`AskRegain`), who looks for itself. Each of them checks the admin's order.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.count import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME
from agiledart_kernel.machine import Message
from agiledart_kernel.orders import MAX_ORDER_BYTES
from agiledart_kernel.peer import Peer
from agiledart_node.wire.commands import RecoverRun
from agiledart_recovery.limits import MAX_VOTERS
from agiledart_recovery.wire.register_left import Standing

_Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]
_Text = Annotated[str, msgspec.Meta(max_length=4_096)]
_Order = Annotated[bytes, msgspec.Meta(max_length=MAX_ORDER_BYTES)]


class AskStanding(Message, frozen=True, gc=False, tag=480):
    """What have you of this run's register? Answered by `StandingIs`.

    Args:
        order: the command signed by its admin, for what is told holds the key of the run.
    """

    request: int
    version: Count
    command: RecoverRun
    order: _Order = b""


class StandingIs(Message, frozen=True, gc=False, tag=481):
    """This; and agents that may have something of it. `refusal`: why it is not told."""

    request: int
    standing: Standing = Standing()
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()
    refusal: _Text = ""


class AskRegain(Message, frozen=True, gc=False, tag=482):
    """To a node that is left: have the run go on without its lost voters. Answered by `RegainedIs` when the register says so.

    Args:
        submitter: who asks, for people, where nothing is signed.
    """

    request: int
    application: _Name
    version: Count
    command: RecoverRun
    order: _Order = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class RegainedIs(Message, frozen=True, gc=False, tag=483):
    """It goes on in this generation, with these voters; or why not."""

    request: int
    generation: Count = 0
    voters: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=MAX_VOTERS)] = ()
    refusal: _Text = ""


RegainMessage = AskStanding | StandingIs | AskRegain | RegainedIs
REGAIN_ANSWERS = (StandingIs, RegainedIs)
