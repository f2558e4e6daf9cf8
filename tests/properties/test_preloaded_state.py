"""Shares that are built beforehand: joined, they are what the whole state was, whatever is changed, committed and lost."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from agiledart_dataflow.operators.base import Operator
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.state import preloaded_state
from agiledart_dataflow.state.dirty_keys import Increment
from agiledart_dataflow.state.key_groups import StateSnapshot
from agiledart_dataflow.state.move_group import move_group
from agiledart_dataflow.state.preloaded_state import PreloadedState
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import KEY_GROUPS
from agiledart_kernel.randomness import RandomStream
from tests.conformance.operator_cases import Case
from tests.conformance.test_operators import ROWS
from tests.properties.test_increments import (  # `soon`: a fixture
    SEEDS,
    deletes_forgotten,
    play,
    rows_of,
    soon,  # noqa: F401
    timers_forgotten,
)
from tests.properties.test_key_groups import ALL_CASES, operator_of, recorded
from tests.reference.rows import Row

EVEN, ODD = dict.fromkeys(range(0, KEY_GROUPS, 2)), dict.fromkeys(range(1, KEY_GROUPS, 2))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is put in place at a time."""
    monkeypatch.setattr(preloaded_state, "SLICE_BYTES", 1)


def element(told: StateSnapshot | Increment) -> bytes:
    """As an instance encodes it, without what waits, was sent and counted."""
    return msgspec.msgpack.encode((None, told, None, None, None))


def put(share: PreloadedState, digest: bytes, onto: bytes, snapshot: bytes) -> int:
    """At once; in how many slices."""
    return sum(1 for _ in share.put(digest, onto, snapshot))


def in_shares(new: Callable[[], Operator], state: Operator, whole: bytes, behind: list[bytes]) -> None:
    """Half of the groups is built where it stays, half beside it, before they are joined."""
    halves = PreloadedState(state, EVEN), PreloadedState(new(), ODD)
    digest = b""
    told: list[Any] = [msgspec.msgpack.decode(whole, type=StateSnapshot)]
    told += [msgspec.msgpack.decode(raw, type=Increment) for raw in behind]
    for number, one in enumerate(told):
        onto, digest = digest, b"%d" % number
        for share in halves:
            put(share, digest, onto, element(one))
    for group in halves[1].state.groups():
        move_group(halves[1].state, state, group)


def made_by(program: Program, stage: int) -> Callable[[Operator, bytes, list[bytes]], None]:
    return partial(in_shares, lambda: operator_of(program, stage))


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
@given(rows=ROWS, seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_shares_of_a_chain_equal_a_full_snapshot(case: Case, rows: list[Row], seed: int) -> None:
    program, inputs = recorded(case, sorted(rows, key=lambda row: row.at), seed, "positions" if seed % 2 else "rows")
    for stage, calls in inputs.items():
        play(program, stage, calls, RandomStream(seed, "shares"), (seed % 3 == 0, False), made_by(program, stage))


def longest(case: Case) -> int:
    """Of some runs of a case."""
    found = 0
    for seed in range(6):
        program, inputs = recorded(case, rows_of(60, seed), seed, "positions" if seed % 2 else "rows")
        for stage, calls in inputs.items():
            restore = made_by(program, stage)
            found = max(found, play(program, stage, calls, RandomStream(seed, "plays"), (False, False), restore))
    return found


# ---- what must not be left out


def sessions() -> Case:
    return next(case for case in ALL_CASES if case.name == "sessions")


def a_link_missed(patch: pytest.MonkeyPatch) -> None:
    """State of an extra epoch is taken as applied."""
    done = PreloadedState.put

    def once(self: PreloadedState, digest: bytes, onto: bytes, snapshot: bytes) -> Any:
        if onto and digest == b"1":
            self.digest = digest
            return iter(())
        return done(self, digest, onto, snapshot)

    patch.setattr(PreloadedState, "put", once)


def one_slice_only(patch: pytest.MonkeyPatch) -> None:
    """State after the first slice is not applied."""
    patch.setattr(
        PreloadedState,
        "_changed",
        lambda self, increment: (
            self.state.apply(increment.changes._replace(groups=increment.changes.groups[:1])) or iter(())
        ),
    )


@pytest.mark.parametrize("mutant", [deletes_forgotten, timers_forgotten, a_link_missed, one_slice_only])
def test_planted_bugs_are_detected(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert longest(sessions()) > 2
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(Exception):  # noqa: B017  whatever it breaks first
            longest(sessions())


# ---- one share


def test_an_increment_is_applied_to_its_base_and_to_nothing_else() -> None:
    program, inputs = recorded(sessions(), rows_of(60, 1), 1, "positions")
    ((stage, calls),) = inputs.items()
    live = operator_of(program, stage)
    for one in calls[: len(calls) // 2]:
        live.run(list(one.rows), list(one.positions), one.watermark)
    live.take_dirty_keys()
    whole = element(
        StateSnapshot([(group, live.snapshot_group(group)) for group in live.groups()], live.snapshot_rest())
    )
    for one in calls[len(calls) // 2 :]:
        live.run(list(one.rows), list(one.positions), one.watermark)
    dirty_keys = live.take_dirty_keys()
    assert dirty_keys
    changes = element(Increment(live.changes(dirty_keys), live.snapshot_rest()))
    share = PreloadedState(operator_of(program, stage), EVEN | ODD)
    with pytest.raises(OperationFailed, match="rests on another"):
        put(share, b"B", b"A", changes)
    assert share.missing([b"A", b"B"]) == [b"A", b"B"]
    assert put(share, b"A", b"", whole) > 1, "others work in between"
    assert share.missing([b"A", b"B"]) == [b"B"]
    with pytest.raises(OperationFailed):
        put(share, b"B", b"other", changes)
    put(share, b"B", b"A", changes)
    assert share.missing([b"A", b"B"]) == []
    assert share.missing([b"C", b"D"]) == [b"C", b"D"], "on another chain it is built anew"
    assert sorted(share.state.groups()) == sorted(live.groups())
    unfinished = share.put(b"A", b"", whole)
    next(unfinished)
    assert share.digest == b"", "a partial build counts as nothing"
    share.clear()
    assert share.state.groups() == []
