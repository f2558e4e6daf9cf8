"""Cases: small inputs with their expected lines, those of this folder and those of the data folder, from public reports."""

from pathlib import Path

import pytest

from tests.cases.playing import play
from tests.data import data_root

_CASES = data_root().parent / "cases" / "turn3"
_NAMES = sorted(case.name for case in _CASES.iterdir() if (case / "README.md").exists()) if _CASES.is_dir() else []

_SMALL = Path(__file__).parent / "small"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("reported-cases")]


@pytest.mark.skipif(not _NAMES, reason=f"{_CASES} does not exist; set AGILEDART_DATA to the data folder beside it")
@pytest.mark.parametrize("name", _NAMES or ["none"])
def test_a_reported_case_gives_its_expected_lines(name: str, tmp_path: Path) -> None:
    outcome = play(_CASES / name, tmp_path)
    assert (outcome.missing, outcome.forbidden) == ([], []), outcome.output[-3_000:]


@pytest.mark.parametrize("name", sorted(readme.parent.name for readme in _SMALL.glob("*/README.md")))
def test_a_small_case_gives_its_expected_lines(name: str, tmp_path: Path) -> None:
    outcome = play(_SMALL / name, tmp_path)
    assert (outcome.missing, outcome.forbidden) == ([], []), outcome.output[-3_000:]
