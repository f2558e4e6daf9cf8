"""A child of users' code that returns into the engine ends there, and says why."""

import os

import pytest

from agiledart_executor.user_code.forked_child import EXIT_FORKED, ForkedChild


def test_only_the_child_ends(capfd: pytest.CaptureFixture[str]) -> None:
    forked = ForkedChild()
    forked.watch()
    pid = os.fork()
    forked.end_child("double")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == EXIT_FORKED
    assert not forked.is_here
    assert capfd.readouterr().err == (
        "double: user code forked its process, and the child returned; the child was ended (end it with os._exit)\n"
    )
