"""Remains of runs: freed by the record, or by the register where a power cut took the record."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_kernel.instants import Instant
from agiledart_node.recovery.garbage_collector import GarbageCollector
from agiledart_node.wire.effects import ForgetRun

KEY = ("app", 1)


class Bench:
    """One run with files here, and no record of it anywhere."""

    def __init__(self, *, is_over: bool, is_hosted: bool = False) -> None:
        self.done: list[Any] = []
        self.runs = {KEY: 1}
        machine = SimpleNamespace(
            voter_slots={}, participants={}, fragment_store=SimpleNamespace(runs=()), is_over=lambda _: is_over
        )
        keeper = SimpleNamespace(
            machine=machine,
            runs_on_disk={},
            hosted_runs=lambda: self.runs,
            forget_run=self.runs.pop,
            emitted=lambda key: (b"sink",) if key in self.runs else (),
        )
        self.hosting = SimpleNamespace(table={})
        requests = SimpleNamespace(is_full=False, begin=asyncio.run)
        context = SimpleNamespace(requests=requests, emit=self.done.append, now=Instant(0))
        records = SimpleNamespace(application=self._read)
        self.tidying = GarbageCollector(*(cast(Any, each) for each in (context, records, self.hosting, keeper)))
        self.is_hosted = is_hosted

    async def _read(self, name: str) -> tuple[int, None]:
        if self.is_hosted:
            self.hosting.table[KEY] = True  # it was entered while the record was looked for
        return 0, None


@pytest.mark.parametrize(
    ("is_over", "is_hosted", "expected"),
    [(True, False, [ForgetRun(*KEY, (b"sink",))]), (False, False, []), (True, True, [])],
    ids=["over", "not over", "entered again"],
)
def test_without_a_record_the_register_decides_what_is_collected(
    is_over: bool, is_hosted: bool, expected: list[Any]
) -> None:
    bench = Bench(is_over=is_over, is_hosted=is_hosted)
    bench.tidying.patrol()
    assert bench.done == expected
    assert (KEY in bench.runs) is not bool(expected)
