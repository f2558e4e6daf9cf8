"""Warnings of `submit` about what the user's code can do to the agents of its nodes."""

import pytest

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.forming.submission_runner import exposure_warnings
from agiledart_node.wire.formation_messages import NodeLoad

A1, A2 = Peer(NodeId(1), 1, "a1"), Peer(NodeId(2), 1, "a2")


def load(*, confines: bool, exposes_python: bool) -> NodeLoad:
    return NodeLoad(1, 0, (), 4, 1, False, (), confines=confines, exposes_python=exposes_python)


KEYS = "your code can read the keys of a1: there it is not confined (agiledart doctor says why)"
PYTHON = "your code can change the Python of a1: its agent's user may write there (agiledart doctor names the folders)"


@pytest.mark.parametrize(
    ("confines", "exposes_python", "texts"),
    [(True, False, []), (False, False, [KEYS]), (False, True, [KEYS, PYTHON])],
)
def test_nodes_that_are_open_to_users_code_are_named(confines: bool, exposes_python: bool, texts: list[str]) -> None:
    safe = load(confines=True, exposes_python=False)
    exposed = load(confines=confines, exposes_python=exposes_python)
    assert exposure_warnings([(A1, exposed), (A2, safe)]) == texts
