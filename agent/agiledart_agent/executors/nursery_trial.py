"""Trial of the nursery outside an agent: whether executors can be forked on this machine."""

import contextlib
import os
import socket
import subprocess

import msgspec

from agiledart_agent.executors import executor_nursery
from agiledart_agent.executors.bare_process import executor_environment
from agiledart_agent.executors.isolated_python import isolated_command
from agiledart_executor.wire.nursery_messages import MAX_MESSAGE, NurseryReady


def try_nursery(seconds: float = executor_nursery.START_SECONDS) -> str:
    """Start a nursery and end it. Return why executors cannot be forked; empty when they can."""
    try:
        os.close(os.pidfd_open(os.getpid()))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        return error.strerror or str(error)
    with ours, theirs:
        try:
            process = subprocess.Popen(
                [*isolated_command(executor_nursery.PROGRAM), str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), env=executor_environment(os.environ), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return error.strerror or str(error)
        theirs.close()
        try:
            return _reason(ours, seconds)
        finally:
            process.kill()
            process.wait()


def _reason(channel: socket.socket, seconds: float) -> str:
    channel.settimeout(seconds)
    data = b""
    with contextlib.suppress(ConnectionError):
        try:
            data = channel.recv(MAX_MESSAGE)
        except TimeoutError:
            return f"their nursery did not start within {seconds:.0f} s"
    if not data:
        return "their nursery ends at its start"
    threads = msgspec.msgpack.decode(data, type=NurseryReady).threads
    return f"the imports of their nursery started {threads - 1} threads" if threads > 1 else ""
