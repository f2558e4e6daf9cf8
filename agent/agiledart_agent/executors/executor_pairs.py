"""Socket pairs between executors of one run on this node: made here, handed to both, and held here no longer.

They have no name in the file system: all users' code has the same user id, so any of it could open one.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Final

from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_executor.wire.agent_messages import OpenPair, PairRefused
from agiledart_executor.wire.handed_connections import HandedPair
from agiledart_kernel.codec import encode
from agiledart_kernel.node_id import NodeId

MAX_PAIRS: Final = 64
"""Pairs that one executor gets within `PAIRS_SECONDS`: one for each executor of its run here, and new ones after losses."""

PAIRS_SECONDS: Final = 10.0


class ExecutorPairs:
    """Maker of socket pairs.

    Args:
        processes: returns the running executors.
        certificate_of: returns the TLS leaf, DER, that the agent made for an executor; empty: it is unknown.
    """

    def __init__(
        self, processes: Callable[[], Iterable[ExecutorProcess]], certificate_of: Callable[[NodeId], bytes]
    ) -> None:
        self._processes, self._certificate_of = processes, certificate_of

    def open(self, asked: OpenPair, caller: ExecutorProcess) -> None:
        """Hand a pair to the caller and to the executor that it names, or refuse."""
        target = self._target(asked.executor, caller)
        if target is None or not _is_within_bounds(caller) or not self._hand_over(asked.request, caller, target):
            caller.send(PairRefused(asked.request))

    def _target(self, executor: NodeId, caller: ExecutorProcess) -> ExecutorProcess | None:
        """Return another executor of the caller's run; None: there is none here with this id."""
        run = caller.application, caller.version
        for process in self._processes():
            is_open = process is not caller and not process.ending
            if process.own_node == executor and is_open and (process.application, process.version) == run:
                return process
        return None

    def _hand_over(self, request: int, caller: ExecutorProcess, target: ExecutorProcess) -> bool:
        own, other = self._certificate_of(caller.own_node), self._certificate_of(target.own_node)
        if not (own and other):
            return False
        try:
            near, far = socket.socketpair()
        except OSError:  # no descriptors left
            return False
        with near, far:
            # The target comes first: its end breaks at once when the caller takes none.
            return target.hand(encode(HandedPair(0, own)), far) and caller.hand(
                encode(HandedPair(request, other)), near
            )


def _is_within_bounds(caller: ExecutorProcess) -> bool:
    """Count a pair of this executor. Return False when it has got too many."""
    now = asyncio.get_running_loop().time()
    if now - caller.pairs_since > PAIRS_SECONDS:
        caller.pairs, caller.pairs_since = 0, now
    caller.pairs += 1
    return caller.pairs <= MAX_PAIRS
