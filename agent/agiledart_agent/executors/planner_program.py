"""Program of the planner process: it answers questions about placements, one after the other, until its input ends.

The operating system ends it when it takes more memory than it may, or when it goes on after the time of a question: also then when
the agent that would end it is gone. Its own output is discarded, so a strategy may print.
"""

import os
import resource
import signal
import sys
import time
from typing import BinaryIO, Final

import msgspec

MAX_MESSAGE: Final = 1 << 24
"""Bytes of a question or an answer."""

OVERTIME_SECONDS: Final = 2.0
"""Time after the end of a question at which the process is ended by its own timer; the agent does so a second earlier."""

NICENESS: Final = 10
"""Lower priority than the agent, which must answer probes."""


def read_message(stream: BinaryIO) -> bytes:
    """Return the next message; empty: the stream has ended, or the message is too long."""
    head = stream.read(4)
    size = int.from_bytes(head, "big")
    if len(head) < 4 or size > MAX_MESSAGE:
        return b""
    body = stream.read(size)
    return body if len(body) == size else b""


def framed(body: bytes) -> bytes:
    """Return a message with its length before it."""
    return len(body).to_bytes(4, "big") + body


def main() -> None:
    """Answer questions. The first message says that the process is ready, and is empty.

    Argument: most bytes of its address space.
    """
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from agiledart_placement.plan_answering import answer_question
    from agiledart_placement.plan_question import MAX_SECONDS, PlanQuestion

    answers.write(framed(b""))
    answers.flush()
    while body := read_message(sys.stdin.buffer):
        question = msgspec.msgpack.decode(body, type=PlanQuestion)
        signal.setitimer(signal.ITIMER_REAL, min(MAX_SECONDS, question.seconds) + OVERTIME_SECONDS)
        answer = msgspec.msgpack.encode(answer_question(question, time.monotonic))
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(framed(answer))
        answers.flush()


if __name__ == "__main__":
    main()
