"""Messages of any structure about a run, from a node without a vote, while the run goes on: its results stay exact."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.machine import Received
from agiledart_recovery.wire.messages import (
    Accept,
    Committed,
    Promise,
    RecoveryMessage,
    RequestVoterSlot,
    Reset,
    RunMessage,
)
from agiledart_simulation.runs.recovery_faults import RUN
from tests.adversary.test_messages_fuzzed import values_of
from tests.simulation.lying_nodes import OUTSIDER, LyingRun

CODEC: Codec[Any] = Codec(RecoveryMessage)
RAW = st.one_of(*(values_of(kind) for kind in get_args(RecoveryMessage))).map(encode)
AT_ONCE = 4


def about_the_run(raw: bytes) -> RunMessage | None:
    """Return a message about the run that is played; None when no node would decode it."""
    try:
        message: RunMessage = CODEC.decode(raw)
    except RemoteProtocolError:
        return None
    if isinstance(message, Accept | Committed | Promise | Reset) and message.value is not None:
        return msgspec.structs.replace(message, run=RUN, value=msgspec.structs.replace(message.value, run=RUN))
    return msgspec.structs.replace(message, run=RUN)


class FuzzedRun(LyingRun):
    """A run that hears these messages over and over, four at a time.

    Attributes:
        heard: number of messages that arrived.
    """

    def __init__(self, seed: int, script: list[RunMessage]) -> None:
        super().__init__(seed, "outsider")
        self.script, self.heard = script, 0

    def _lie(self) -> None:
        for _ in range(min(AT_ONCE, len(self.script))):
            self.world.inject(
                self.lying.choice(self.ids), Received(OUTSIDER, self.script[self.heard % len(self.script)])
            )
            self.heard += 1


def played(seed: int, raw: list[bytes]) -> FuzzedRun:
    """Play a run with these messages. Return it."""
    run = FuzzedRun(seed, [message for message in map(about_the_run, raw) if message is not None])
    run.run()
    return run


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 6), st.lists(RAW, min_size=60, max_size=120))
def test_messages_of_any_structure_change_no_result(seed: int, raw: list[bytes]) -> None:
    run = played(seed, raw)
    assert run.ledger.violations == {}
    assert run.heard or not run.script


@pytest.mark.parametrize("seed", [1, 3, 4, 5, 7, 12])
@pytest.mark.parametrize("at_once", [1, 3])
def test_requests_for_voter_slots_delay_no_epoch(seed: int, at_once: int) -> None:
    """A stranger asks nodes for slots before and after the coordinator does, and a former voter takes over."""
    run = FuzzedRun(seed, [RequestVoterSlot(RUN)] * at_once)
    run.run()
    assert run.ledger.violations == {}
    assert run.heard > 0


@pytest.mark.soak
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 100), st.lists(RAW, min_size=60, max_size=400))
def test_messages_of_any_structure_change_no_result_for_long(seed: int, raw: list[bytes]) -> None:
    assert played(seed, raw).ledger.violations == {}
