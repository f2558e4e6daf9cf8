"""Output of a process that several applications share: each reads its own."""

import asyncio
import contextvars
import os
import sys

import pytest

from agiledart_executor.process.application_output import OUTPUT, divide_output


def test_output_goes_to_the_application_of_the_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    pipes = {name: os.pipe() for name in ("a", "b")}
    divide_output()

    async def play() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        for name, (_, writing) in pipes.items():
            context = contextvars.copy_context()
            context.run(OUTPUT.set, writing)

            def later(name: str = name) -> None:
                print(f"{name} é\ud800")
                sys.stderr.write("to stderr\n")
                sys.stdout.buffer.write(b"bytes\n")
                if name == "b":
                    done.set()

            loop.call_later(0, later, context=context)
        await done.wait()

    asyncio.run(play())
    for name, (reading, writing) in pipes.items():
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert pipe.read() == f"{name} é?\nto stderr\nbytes\n".encode()
