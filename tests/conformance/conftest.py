"""Fixtures that the suites of this folder share: every event loop that agents and executors may use."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a scenario to its end; an error that the loop could not deliver to a handler fails the test."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_scenario(scenario: Coroutine[Any, Any, None]) -> None:
        complaints: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: complaints.append(context))
            runner.run(scenario)
        assert not complaints

    return run_scenario
