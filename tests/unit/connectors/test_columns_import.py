"""Until NumPy and pyarrow are there, rows come; then columns, and the same of both."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any, NamedTuple

import pytest

from agiledart import csv
from agiledart_connectors.codecs.columns_import import ColumnsImport
from agiledart_connectors.opening import open_source
from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.plan.connectors import SourceReader


class Pair(NamedTuple):
    """A row."""

    number: int
    name: str


def forms(reader: SourceReader) -> Iterator[tuple[bool, list[Any]]]:
    """(whether it came as columns, its rows) of each reading."""
    while not (reading := reader.read(100, 0)).exhausted:
        yield type(reading.rows) is not list, list(as_rows(reading.rows))
    reader.close()


def test_rows_come_until_the_import_has_ended_and_then_columns(tmp_path: Path) -> None:
    pairs = [Pair(number, f"name {number}") for number in range(20_000)]
    path = tmp_path / "pairs.csv"
    path.write_text("".join(f"{pair.number},{pair.name}\n" for pair in pairs))
    may_begin = False
    reader = open_source(csv(str(path)), Pair, columns=True, may_begin=lambda: may_begin)
    came: list[tuple[bool, list[Any]]] = []
    for form in forms(reader):
        came.append(form)
        may_begin = sum(len(rows) for _, rows in came) > 5_000
    as_columns = [columns for columns, _ in came]
    assert as_columns == sorted(as_columns)  # rows first
    assert set(as_columns) == {False, True}
    assert [row for _, rows in came for row in rows] == pairs


def ends(imports: ColumnsImport) -> bool:
    """Wait until it has ended; the test's time limit ends what does not."""
    while not imports.has_ended():
        pass
    return True


def test_the_import_starts_on_first_use_and_does_not_block() -> None:
    began, gate = Event(), Event()

    def load() -> None:
        began.set()
        gate.wait()

    imports = ColumnsImport(load)
    assert not began.is_set()
    assert not imports.has_ended()
    assert began.wait(10)
    assert not imports.has_ended()
    gate.set()
    assert ends(imports)


def test_waiting_callers_are_notified_from_the_thread_and_later_ones_at_once() -> None:
    gate, told = Event(), Event()
    threads: list[str] = []

    def tell() -> None:
        threads.append(current_thread().name)
        told.set()

    imports = ColumnsImport(lambda: None if gate.wait(10) else missing())
    assert not imports.has_ended()
    imports.call_when_done(tell)
    assert threads == []
    gate.set()
    assert told.wait(10)
    imports.call_when_done(tell)
    assert threads == ["columns import", current_thread().name]


def missing() -> None:
    """As an import that fails."""
    raise ModuleNotFoundError("No module named 'numpy'")


@pytest.mark.parametrize("load", [missing, lambda: None])
def test_the_import_ends_whether_it_succeeds_or_not(load: Callable[[], None]) -> None:
    assert ends(ColumnsImport(load))


def test_without_a_thread_the_user_of_columns_imports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    told: list[bool] = []
    imports = ColumnsImport(missing)
    assert imports.has_ended()
    imports.call_when_done(lambda: told.append(True))
    assert told


def test_the_import_loads_everything_that_columns_need() -> None:
    code = (
        "import sys; from typing import NamedTuple\n"
        "from agiledart_connectors.codecs.columns_import import ColumnsImport\n"
        "from agiledart_connectors.codecs.csv_columns_reader import ColumnParser\n"
        "class Row(NamedTuple):\n    at: int\n    word: str\n"
        "imports = ColumnsImport()\n"
        "while not imports.has_ended(): pass\n"
        "before = set(sys.modules)\n"
        "assert len(ColumnParser(Row).parse(b'1,a\\n' * 500, 0)) == 500\n"
        "print(*(name for name in set(sys.modules) - before if name.partition('.')[0] in ('numpy', 'pyarrow')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
