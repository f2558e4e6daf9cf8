"""What `submit` sends: the delivery that the topology says, unless the command line says another."""

from pathlib import Path

import pytest

from agiledart_cli.verbs.submit import make_submission

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
def test_the_command_line_says_the_delivery(tmp_path: Path, written: str, given: str, expected: str) -> None:
    (tmp_path / "flow.py").write_text(CODE.replace("{more}", written))
    settings = {"rows": f"csv:{tmp_path}/in.csv", "out": f"csv:{tmp_path}/out.csv"}
    assert make_submission(f"{tmp_path}/flow.py:flow", settings, {}, delivery=given).delivery == expected
