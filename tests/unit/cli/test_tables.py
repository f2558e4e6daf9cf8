"""Tables on a terminal fit its width; in a pipe they are whole."""

from typing import Any

import click
import pytest

from agiledart_cli import output
from agiledart_cli.output import print_line, print_table

LONG = (
    "a cell that is much too long for eighty columns, with a reason that says why something went wrong, and what helps"
)
ROWS = [["frequent-routes", click.style("running", fg="green"), LONG], ["b", "stopped", "short"]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setattr(output, "terminal_width", lambda: 80)


def printed(capsys: pytest.CaptureFixture[str], **how: Any) -> list[str]:
    """The lines of a table, without colours."""
    print_table(["application", "state", "reason"], ROWS, **how)
    return click.unstyle(capsys.readouterr().out).splitlines()


@pytest.mark.usefixtures("terminal")
def test_a_long_cell_is_cut_or_goes_on_in_the_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    cut = printed(capsys, cuts=(2,))
    assert len(cut) == 3
    assert max(map(len, cut)) == 80
    assert cut[1].endswith("…")
    wrapped = printed(capsys, wraps=(2,))
    assert max(map(len, wrapped)) <= 80
    assert " ".join(line[27:] for line in wrapped[1:-1]).split() == LONG.split()
    assert wrapped[-1].split() == ["b", "stopped", "short"]


@pytest.mark.usefixtures("terminal")
def test_notes_stand_below_their_rows(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, cuts=(2,), notes=[LONG, "a note"])
    assert max(map(len, lines)) <= 80
    assert " ".join(line.strip() for line in lines[2:4]) == LONG
    assert lines[-1] == "      a note"
    print_line("x" * 60, "   " + "y" * 30)
    assert capsys.readouterr().out == "x" * 60 + "\n " + "y" * 30 + "\n"


def test_in_a_pipe_a_table_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, cuts=(0, 2), wraps=(1,))
    assert lines[1].endswith(LONG)
    assert len(lines) == 3
    print_line("x" * 60, "   " + "y" * 30)
    assert capsys.readouterr().out == "x" * 60 + "   " + "y" * 30 + "\n"
