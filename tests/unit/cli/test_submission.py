"""What `submit` sends: the delivery that the topology says, unless the command line says another."""

from pathlib import Path

import pytest

from agiledart_cli.verbs.submit import show_plan
from agiledart_connectors.plugins import SOURCE_GROUP, likely_kind_error
from agiledart_control.submission import make_submission
from agiledart_executor.user_code.user_connectors import without_passwords
from agiledart_kernel.errors import ConfigurationError
from agiledart_node.wire.commands import Submit

CODE = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Row(NamedTuple):
    value: int


def flow(rows: Source[Row], out: Sink[Row]) -> Topology:
    topology = Topology("flow"{more})
    topology.source("rows", rows).sink("out", out)
    return topology
"""


@pytest.mark.parametrize(
    ("written", "given", "expected"),
    [
        ("", "", "survive"),
        ("", "exactly-once", "exactly-once"),
        (', delivery="exactly-once"', "", "exactly-once"),
        (', delivery="exactly-once"', "at-most-once", "at-most-once"),
    ],
)
def test_the_command_line_sets_the_delivery_guarantee(tmp_path: Path, written: str, given: str, expected: str) -> None:
    (tmp_path / "flow.py").write_text(CODE.replace("{more}", written))
    settings = {"rows": f"csv:{tmp_path}/in.csv", "out": f"csv:{tmp_path}/out.csv"}
    assert make_submission(f"{tmp_path}/flow.py:flow", settings, {}, delivery=given).delivery == expected


def test_delivery_of_the_command_line_wins_over_that_of_the_topology(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(CODE.replace("{more}", ', delivery="exactly-once"'))
    settings = {"rows": f"csv:{tmp_path}/in.csv", "out": f"csv:{tmp_path}/out.csv"}
    for word, expected in (
        ("exactly-once", []),
        ("", []),
        ("survive", ["--delivery survive counts; the topology says exactly-once."]),
    ):
        sentences: list[str] = []
        make_submission(f"{tmp_path}/flow.py:flow", settings, {}, delivery=word, notify=sentences.append)
        assert sentences == expected, word


@pytest.mark.parametrize(
    ("delivery", "asked", "nodes", "is_told"),
    [
        ("at-most-once", None, ["pi1", "pi2"], True),
        ("at-most-once", "at-most-once", ["pi1", "pi2"], False),
        ("exactly-once", None, ["pi1", "pi2"], False),
        ("at-most-once", None, ["pi1", "pi1"], False),
    ],
)
def test_a_submission_without_a_loss_policy_displays_the_cost_of_a_loss(
    capsys: pytest.CaptureFixture[str], delivery: str, asked: str | None, nodes: list[str], is_told: bool
) -> None:
    body = {
        "name": "flow",
        "version": 1,
        "placement": dict(zip(["rows", "out"], [[node] for node in nodes], strict=True)),
        "seconds_to_running": 0.1,
    }
    show_plan(body, Submit("flow", b"", b"", {}, 0, delivery=delivery), asked)
    said = capsys.readouterr().out
    assert ("--delivery survive" in said and "agiledart explain recovery flow" in said) == is_told, said


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("cvs", "Did you mean csv?"),
        ("postgresql", "a database is written sql:NAME?table=…"),
        ("mysql+pymysql", "a database is written sql:NAME?table=…"),
        ("stdout", "(stdout is a sink only)"),
        ("csv", ""),
        ("plugin-of-the-nodes", ""),
    ],
)
def test_a_mistyped_kind_is_refused_before_an_agent_is_asked(kind: str, text: str) -> None:
    error = likely_kind_error(SOURCE_GROUP, kind)
    assert text in str(error or "")
    assert (error is None) == (not text)


def test_passwords_of_urls_are_hidden() -> None:
    assert without_passwords("x=postgresql://shop:pw@db/plant?a=1") == "x=postgresql://shop:***@db/plant?a=1"
    assert without_passwords("x=mqtt://broker:1883/rooms") == "x=mqtt://broker:1883/rooms"


def test_the_parameter_is_named_by_which_files_are_passed(tmp_path: Path) -> None:
    file = tmp_path / "taxi.py"
    file.write_text(
        "from agiledart import *\n"
        "def build(given=records([1], row_type=int), out=collect):\n"
        "    t = Topology('t')\n"
        "    t.source('numbers', given).sink('report', out)\n"
        "    return t\n"
    )
    with pytest.raises(ConfigurationError, match="for example --set given=csv:FILE --set out=csv:FILE, or use"):
        make_submission(f"{file}:build", {}, {})
