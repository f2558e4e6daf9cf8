"""Steps and sink in one loop give what they give from instance to instance: rows, counts, batches of the size asked for, errors."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import Topology, UserCodeError, collect, records
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.runtime.fused_path import FusedPath
from agiledart_dataflow.user_code.error_policy import ErrorPolicy
from agiledart_executor.local_runs import local_run
from agiledart_executor.local_runs.local_run import LocalRun, run_topology
from agiledart_kernel.errors import OperationFailed


class Pieces(list[Any]):
    """A sink's list that remembers how many rows came at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __iadd__(self, rows: Iterable[Any]) -> "Pieces":  # whatever the sink hands over
        before = len(self)
        self.extend(rows)
        self.sizes.append(len(self) - before)
        return self


def plus(x: int) -> int:
    return x + 1


def halved(x: int) -> int:
    return 60 // (x % 7)


def odd(x: int) -> bool:
    return x % 2 == 1


def odd_or_raises(x: int) -> bool:
    return 1 // (x % 5) > -1 and x % 3 > 0


def small(x: int) -> int | None:
    return x if x < 40 else None


def several(x: int) -> list[int]:
    return [x] * (x % 3)


STEPS = ("plus", "halved", "odd", "odd_or_raises", "small", "several")


def built(steps: list[tuple[str, ErrorPolicy]], count: int, timed: bool, out: Pieces) -> Topology:
    """Rows through these steps into a sink."""
    topology = Topology("fused")
    time_of: Callable[[int], int] | None = (lambda x: x // 3) if timed else None
    stream: Any = topology.source("rows", records(list(range(count))), rows=int, event_time=time_of)
    for number, (step, policy) in enumerate(steps):
        function = globals()[step]
        verb = stream.filter if "odd" in step else stream.flat_map if step in ("small", "several") else stream.map
        stream = verb(function, name=f"{step}{number}", on_error=policy)
    stream.sink("out", Connector("collect", payload=out))
    return topology


def outcome(topology: Topology, out: Pieces, logs: list[str], **options: Any) -> Any:
    """Rows and counts of a run, or its error."""
    try:
        run: LocalRun = run_topology(topology, on_log=logs.append, **options)
    except UserCodeError as error:
        return str(error), list(out)
    return list(out), run.summary, run.statistics


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from(("fail", "skip", "dead_letter"))), min_size=1, max_size=4
    ),
    st.integers(0, 2_000),
    st.integers(1, 900),
    st.booleans(),
)
def test_the_fused_loop_equals_separate_instances(
    steps: list[tuple[str, ErrorPolicy]], count: int, batch_rows: int, timed: bool
) -> None:
    fused, usual = Pieces(), Pieces()
    logs: tuple[list[str], list[str]] = ([], [])
    with pytest.MonkeyPatch.context() as patch:
        found = outcome(built(steps, count, timed, fused), fused, logs[0], batch_rows=batch_rows)
        patch.setattr(local_run, "fused_path", lambda *_: None)
        expected = outcome(built(steps, count, timed, usual), usual, logs[1], batch_rows=batch_rows)
    assert found == expected
    assert len(logs[0]) == len(logs[1])
    grown = 2 ** sum(step == "several" for step, _ in steps)
    assert max(fused.sizes, default=0) <= batch_rows * grown


def test_the_fused_loop_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take = FusedPath.take

    def counted(self: FusedPath, batch: Batch) -> Batch:
        taken.append(len(batch))
        return take(self, batch)

    monkeypatch.setattr(FusedPath, "take", counted)
    out = Pieces()
    run_topology(built([("plus", "fail"), ("odd", "fail")], 5_000, True, out), batch_rows=10)
    assert sum(taken) == 5_000 - 2 * 10  # all but the batches that are tried on the wire
    assert out == [x for x in range(5_001) if x % 2]
    assert set(out.sizes) == {5}


@pytest.mark.parametrize("keyed", [True, False])
def test_the_fused_loop_is_not_used_when_more_work_is_needed(keyed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FusedPath, "take", None)
    topology = Topology("more")
    rows = topology.source("rows", records(list(range(2_000))), rows=int).map(plus)
    if keyed:
        rows = rows.key_by(odd).distinct("once")
    else:
        rows.sink("second", collect)
    rows.sink("out", collect)
    assert len(run_topology(topology, batch_rows=10).collected["out"]) == (2 if keyed else 2_000)


class Full(Pieces):
    """A sink that cannot take more."""

    def __iadd__(self, rows: Iterable[Any]) -> "Full":  # whatever the sink hands over
        super().__iadd__(rows)
        if len(self) > 500:
            raise OperationFailed("it is full")
        return self


def test_a_sink_that_fails_is_named() -> None:
    with pytest.raises(OperationFailed, match=r"^out: it is full$"):
        run_topology(built([("plus", "fail")], 2_000, False, Full()), batch_rows=10)


def test_a_step_that_raises_a_sinks_exception_is_user_code() -> None:
    def refuse(x: int) -> int:
        if x == 1_234:
            raise OperationFailed("no")
        return x

    topology = Topology("refuses")
    topology.source("rows", records(list(range(2_000))), rows=int).map(plus).map(refuse).sink("out", collect)
    with pytest.raises(UserCodeError, match=r"refuse.*1234"):
        run_topology(topology, batch_rows=10)
