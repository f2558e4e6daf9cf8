"""What `submit` sends: the delivery that the topology says, unless the command line says another."""

from pathlib import Path

import pytest

from agiledart_cli.verbs.submit import make_submission, show_plan
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
        ("", "", "at-most-once"),
        ("", "exactly-once", "exactly-once"),
        (', delivery="exactly-once"', "", "exactly-once"),
        (', delivery="exactly-once"', "at-most-once", "at-most-once"),
    ],
)
def test_the_command_line_sets_the_delivery_guarantee(tmp_path: Path, written: str, given: str, expected: str) -> None:
    (tmp_path / "flow.py").write_text(CODE.replace("{more}", written))
    settings = {"rows": f"csv:{tmp_path}/in.csv", "out": f"csv:{tmp_path}/out.csv"}
    assert make_submission(f"{tmp_path}/flow.py:flow", settings, {}, delivery=given).delivery == expected


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
    assert ("--delivery at-least-once" in said and "agiledart explain recovery flow" in said) == is_told, said
