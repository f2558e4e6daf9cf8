"""Messages between an agent and its nursery of executors, one a packet, as MessagePack."""

from typing import Annotated, Final

import msgspec

MAX_MESSAGE: Final = 8_192
CHILD_DESCRIPTORS: Final = 4
"""Descriptors of a request: the executor's end of its socket pair, its crash report, its output, its pair for connections."""

_Path = Annotated[str, msgspec.Meta(max_length=4_096)]


class StartChild(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """Fork an executor in this working directory. `number`: of the request."""

    number: int
    directory: _Path


class NurseryReady(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """The nursery has imported everything. `threads`: of the process; with more than one a fork is not safe."""

    threads: int


class ChildStarted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """An executor runs. A descriptor of its process comes with this message."""

    number: int
    pid: int


class ChildRefused(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    """The system gave no process."""

    number: int
    reason: str


class ChildEnded(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """An executor has ended. `code`: its exit code; negative: the signal that ended it."""

    pid: int
    code: int


NurseryMessage = NurseryReady | ChildStarted | ChildRefused | ChildEnded
