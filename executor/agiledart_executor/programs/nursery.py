"""Nursery of an agent's executors: it has imported what executors need, and forks them on request.

    python -m agiledart_executor.programs.nursery FD

FD is one end of a SOCK_SEQPACKET pair to the agent. A request brings four descriptors: the executor's end of its socket
pair, the writing end of its crash report, its output, and its end of the pair for connections. A fork takes some
milliseconds where an interpreter with its imports takes hundreds, and the pages of the imports are shared. The nursery has
no thread, no event loop, no key and no other socket, so a child inherits none. It ends when the agent's end closes; its
children live on.
"""

import gc
import importlib
import os
import select
import signal
import socket
import ssl
import sys
import traceback
from typing import Final

import msgspec

from agiledart_executor.process.immortal_objects import keep_for_ever
from agiledart_executor.programs import worker
from agiledart_executor.wire.nursery_messages import (
    CHILD_DESCRIPTORS,
    MAX_MESSAGE,
    ChildEnded,
    ChildRefused,
    ChildStarted,
    NurseryMessage,
    NurseryReady,
    StartChild,
)

WARM_MODULES: Final = (
    "uvloop",
    "agiledart",
    "agiledart_connectors.codecs.dict_lines",
    "agiledart_connectors.files.appended_file",
    "agiledart_connectors.files.rolled_files",
    "agiledart_connectors.files.text_writer",
    "agiledart_connectors.logs.log_opener",
    "agiledart_dataflow.plan.stages",
)
"""Modules that most executors would import: the loop, what users' code imports, and the usual sources and sinks."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_START: Final = msgspec.msgpack.Decoder(StartChild)


class Nursery:
    """The loop of the process.

    Args:
        agent: socket to the agent.
    """

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)

    def run(self) -> None:
        """Fork executors, and report their ends, until the agent goes."""
        signal.signal(signal.SIGCHLD, _do_nothing)  # a handler is needed, or the kernel writes no wake-up
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._send(NurseryReady(threads=len(os.listdir("/proc/self/task"))))
        looking = select.poll()
        looking.register(self._agent, select.POLLIN)
        looking.register(self._woken, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in looking.poll()}
            if self._woken in ready:
                os.read(self._woken, 4_096)
                self._reap()
            if self._agent.fileno() in ready and not self._take():
                return

    def _take(self) -> bool:
        """Take one request. Return whether the agent is still there."""
        data, descriptors, _, _ = socket.recv_fds(self._agent, MAX_MESSAGE, CHILD_DESCRIPTORS)
        if not data:
            return False
        try:
            request = _START.decode(data)
            if len(descriptors) == CHILD_DESCRIPTORS:
                self._start(request, descriptors)
            else:
                self._send(ChildRefused(request.number, "it has too few descriptors"))
        except OSError as error:
            self._send(ChildRefused(request.number, error.strerror or str(error)))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _start(self, request: StartChild, descriptors: list[int]) -> None:
        """Fork one executor, and send a descriptor of its process: its number alone may be another's one day."""
        pid = os.fork()
        if pid == 0:
            self._become_executor(request, descriptors)
        handle = os.pidfd_open(pid)
        try:
            socket.send_fds(self._agent, [_ENCODER.encode(ChildStarted(request.number, pid))], [handle])
        finally:
            os.close(handle)

    def _become_executor(self, request: StartChild, descriptors: list[int]) -> None:
        """Run an executor in this child; never returns."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            pair, report, output, handover = descriptors
            os.dup2(output, 1)
            os.dup2(output, 2)
            for descriptor in (output, self._woken, self._waker):
                os.close(descriptor)
            self._agent.close()
            os.chdir(request.directory)
            sys.argv = [worker.__file__ or "", str(pair), str(report), str(handover)]
            os._exit(worker.main())
        except BaseException:  # noqa: BLE001  a child that returned would go on as a second nursery
            traceback.print_exc()
        finally:
            os._exit(1)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._send(ChildEnded(pid, os.waitstatus_to_exitcode(status)))

    def _send(self, message: NurseryMessage) -> None:
        try:
            self._agent.send(_ENCODER.encode(message))
        except OSError:
            os._exit(0)  # the agent has gone


def _do_nothing(_number: int, _frame: object) -> None:
    pass


def _warm_up() -> None:
    """Do once what each executor would do for itself: the memory that it takes is then shared by all."""
    for name in WARM_MODULES:
        importlib.import_module(name)
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        ssl.SSLContext(protocol)  # OpenSSL makes its tables of algorithms, 3 MB, and draws no randomness


def main() -> None:
    """Run the nursery."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent decides when this process ends
    agent = socket.socket(fileno=int(sys.argv[1]))
    _warm_up()
    gc.collect()
    keep_for_ever()
    gc.freeze()  # a collection in a child would write to the pages that it shares with the others
    Nursery(agent).run()
    os._exit(0)  # the interpreter's own end expects objects that can be freed


if __name__ == "__main__":
    main()
