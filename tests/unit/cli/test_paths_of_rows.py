"""Paths of rows as `submit` and `status` print them."""

import pytest

from agiledart_cli.verbs.application_view import print_plan


def test_two_sources_on_one_node_have_one_path(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [["a2", "a3"], ["a2", "a3"], ["a1", "a2", "a3"]]
    print_plan({"name": "air", "placement": {"readings": ["a2"], "table": ["a3"]}, "data_paths": paths}, dry_run=True)
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith(" path ")]
    assert printed == [" path a2 → a3 (1 hop)", " path a1 → a2 → a3 (2 hops)"]
