"""Two unnamed agents of one machine get different names, and keep them."""

import uuid
from pathlib import Path

import pytest

from agiledart_agent.identity.node_name import NodeName


@pytest.fixture
def machine() -> str:
    return f"vm{uuid.uuid4().hex[:12]}"


def name(machine: str, folder: Path, *, is_given: bool = False) -> NodeName:
    folder.mkdir(mode=0o700, exist_ok=True)
    return NodeName(machine, folder, is_given=is_given)


def test_the_second_node_is_numbered_whichever_starts_first(machine: str, tmp_path: Path) -> None:
    first, second = name(machine, tmp_path / "1"), name(machine, tmp_path / "2")
    assert (first.text, second.text) == (machine, f"{machine}-2")
    first.close()
    second.close()
    again = name(machine, tmp_path / "2")
    assert again.text == f"{machine}-2"
    other = name(machine, tmp_path / "1")
    assert other.text == machine
    third = name(machine, tmp_path / "3")
    assert third.text == f"{machine}-3"


def test_a_given_name_is_never_changed_but_other_nodes_avoid_it(machine: str, tmp_path: Path) -> None:
    first = name(machine, tmp_path / "1", is_given=True)
    assert name(machine, tmp_path / "2", is_given=True).text == machine
    other = name(machine, tmp_path / "3")
    assert (first.text, other.text) == (machine, f"{machine}-2")
