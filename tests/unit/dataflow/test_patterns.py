"""State kept by patterns."""

from typing import Any, NamedTuple

from agiledart_dataflow.data.position import RECORD, Position
from agiledart_dataflow.data.rows import Match
from agiledart_dataflow.operators.keyed_step import KeyedStep
from agiledart_dataflow.operators.patterns import Pattern
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.key_groups import restore_state, snapshot_of
from agiledart_dataflow.state.store import MemoryStore


class Row(NamedTuple):
    """A row with a time, a key and a number."""

    at: int
    key: str
    value: int


def step() -> KeyedStep:
    """A one, then a two, within 10 ms."""
    pattern = Pattern([lambda row: row.value == 1, lambda row: row.value == 2], 10)
    store = MemoryStore(EntryCodec("p", str, list[tuple[list[int], list[Row]]], pattern.to_plain, pattern.from_plain))
    return KeyedStep("p", (lambda row: row.key,), pattern, store)


def run(pattern: KeyedStep, *rows: Row) -> list[Any]:
    """Output for rows, with time up to the last."""
    positions: list[Position] = [(row.at, RECORD, 0, row.at) for row in rows]
    return pattern.run(list(rows), positions, positions[-1])[0]


def test_a_key_without_a_pending_match_is_not_remembered() -> None:
    pattern = step()
    assert run(pattern, *(Row(at, f"key{at}", 0) for at in range(50))) == []
    assert pattern.state_keys == 0


def test_a_key_whose_match_is_complete_is_forgotten_with_its_timer() -> None:
    pattern = step()
    first, second, third, fourth = Row(1, "a", 1), Row(2, "a", 2), Row(3, "a", 1), Row(5, "a", 2)
    assert run(pattern, first, second) == [Match("a", [first, second])]
    again = step()
    restore_state(again, snapshot_of(pattern))
    assert run(again, third, Row(4, "a", 0), fourth) == [Match("a", [third, fourth])]
    assert again.state_keys == 1  # its timers wait
    assert run(again, Row(20, "b", 0)) == []
    assert again.state_keys == 0
