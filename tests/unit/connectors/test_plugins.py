"""Sources, sinks and formats of other packages, as they are installed: found, listed, and harmless when they are broken."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import ConfigurationError, OperationFailed, Topology, collect
from agiledart_cli.main import run_cli
from agiledart_connectors import plugins
from agiledart_connectors.catalogue import SINKS, SOURCES
from agiledart_connectors.opening import open_sink, open_source
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.local_runs.local_run import run_topology

CODE = """
from agiledart_dataflow.plan.connector_kinds import Guarantee
from agiledart_dataflow.plan.connectors import Reading
from agiledart_connectors.memory import MemoryWriter


class Squares:
    api_version = 1
    what = "squares of numbers"
    options = ("count",)
    guarantee = Guarantee("made again", can_rewind=True)

    def open_source(self, connector, row_type):
        if connector.path == "raise":
            raise RuntimeError("no squares today")
        return Reader(row_type, int(connector.option("count", "3")))


class Reader:
    stamps = True

    def __init__(self, row_type, count):
        self.rows = [row_type(i, i * i) for i in range(count)]

    def read(self, max_rows, wall_ns):
        rows, self.rows = self.rows[:max_rows], self.rows[max_rows:]
        return Reading(rows, len(rows), {}, not self.rows)

    def close(self):
        pass


class Bucket:
    api_version, what, options = 1, "a bucket", ()
    guarantee = Guarantee("lost")

    def open_sink(self, connector, row_type, clock):
        return MemoryWriter(connector, row_type, clock)


class Old(Squares):
    api_version = 99


class Halves:
    def __init__(self, row_type):
        self.row_type = row_type

    def rows(self, payload, wall_ns):
        return [self.row_type(*map(int, payload.split(b"/")))]

    def lines(self, data, wall_ns):
        return None
"""

POINTS = """
[agiledart.sources]
squares = squares_plugin:Squares
old = squares_plugin:Old
gone = no_such_module:Thing
csv = squares_plugin:Squares
[agiledart.sinks]
bucket = squares_plugin:Bucket
[agiledart.codecs]
halves = squares_plugin:Halves
bad = no_such_module:make
"""


class Row(NamedTuple):
    """A number and its square."""

    number: int
    square: int


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with plugins."""
    (tmp_path / "squares_plugin.py").write_text(CODE)
    info = tmp_path / "squares-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: squares\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "squares_plugin", raising=False)


def rows_of(url: str) -> list[Any]:
    topology = Topology("plugins")
    topology.source("rows", parse_connector(url), rows=Row).sink("out", collect)
    rows: list[Any] = run_topology(topology).collected["out"]
    return rows


def test_a_package_may_provide_a_source_a_sink_and_a_format(tmp_path: Path) -> None:
    assert rows_of("squares:?count=4") == [Row(i, i * i) for i in range(4)]
    writer: Any = open_sink(parse_connector("bucket:"), Row)
    writer.write([Row(1, 1)])
    (tmp_path / "x").write_text("3/9\n4/16\n")
    assert rows_of(f"lines:{tmp_path}/x?format=halves") == [Row(3, 9), Row(4, 16)]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("squares:?cuont=4", "has no option 'cuont'; it knows count"),
        ("squares:raise", "the source squares .* failed: RuntimeError: no squares today"),
        ("old:", "made for version 99 .*; this is 1: install another version of squares"),
        ("gone:", "the source gone .* cannot be loaded: No module named 'no_such_module'"),
        ("lines:/dev/null?format=bad", "the format bad .* cannot be used"),
        ("mqqt://broker/t", r"there is no source 'mqqt'\. Did you mean mqtt\?"),
        ("stdout:", r"there is no source 'stdout' \(stdout is a sink only\)"),
    ],
)
def test_a_broken_or_misspelt_plugin_is_reported(url: str, words: str) -> None:
    with pytest.raises((ConfigurationError, OperationFailed), match=words):
        open_source(parse_connector(url), Row)


def test_a_kind_with_a_missing_extra_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "find_spec", lambda name: None)
    for opened in (open_source, open_sink):
        with pytest.raises(ConfigurationError, match=r"'mqtt' here:  pip install 'agiledart\[mqtt\]'"):
            opened(parse_connector("mqtt://broker/t"), Row)
    found = {(one.role, one.name): one for one in plugins.all_plugins()}
    assert found["source", "mqtt"].extra == "agiledart[mqtt]"
    assert found["source", "csv"].extra == ""


def test_all_plugins_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["plugins", "list", "-o", "json"]) == 0
    found = {(one["role"], one["name"], one["origin"]): one for one in json.loads(capsys.readouterr().out)["plugins"]}
    assert found["source", "squares", "squares"]["version"] == "2.5"
    assert found["source", "squares", "squares"]["guarantee"]["can_rewind"] is True
    assert "made for version 99" in found["source", "old", "squares"]["fault"]
    assert "cannot be loaded" in found["source", "gone", "squares"]["fault"]
    assert "agiledart brings one of this name" in found["source", "csv", "squares"]["fault"]
    assert found["sink", "parquet", "agiledart"]["options"] == ["roll_age", "roll_bytes"]
    assert ("format", "halves", "squares") in found
    assert run_cli(["plugins", "list"]) == 0
    told = capsys.readouterr().out
    assert "squares of numbers" in told
    assert "read again from the beginning" in told


@pytest.mark.parametrize("kinds", [SOURCES, SINKS])
def test_every_kind_names_its_opener(kinds: dict[str, Any]) -> None:
    for kind in kinds.values():
        if plugins.is_extra_missing(kind):
            continue
        module, _, function = kind.opens.partition(":")
        opens: Callable[..., Any] = getattr(import_module(f"agiledart_connectors.{module}"), function)
        assert callable(opens)
        assert kind.guarantee.duplicates
        assert bool(kind.extra) is bool(kind.needs)
