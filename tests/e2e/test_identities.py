"""Who somebody is at the command line: a token that was used goes on, by itself and by a name."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e]


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with mesh(1) as made:
        yield made


def test_a_token_that_was_used_goes_on_by_itself_and_by_name(ring: Mesh, tmp_path: Path) -> None:
    (agent,) = ring.agents
    made = cli("token", "create", "--role", "reader", "--expires", "3s", "--agent", str(agent.state_dir))
    used, late = tmp_path / "used.token", tmp_path / "late.token"
    used.write_text(made.stdout)
    late.write_text(
        cli("token", "create", "--role", "reader", "--expires", "1s", "--agent", str(agent.state_dir)).stdout
    )
    assert cli("identity", "add", "work", f"@{used}").returncode == 0
    wait_for(lambda: cli("token", "show", f"@{used}").returncode == 1, 30, "the token has expired")
    wait_for(lambda: cli("token", "show", f"@{late}").returncode == 1, 30, "and the other one")
    for identity in (f"@{used}", "work"):
        told = cli("list", "--agent", agent.address, "--identity", identity)
        assert told.returncode == 0, told.stderr
    told = cli("list", "--agent", agent.address, "--identity", f"@{late}")
    assert told.returncode == 1
    assert "expired" in told.stderr
    told = cli("list", "--agent", agent.address, "--identity", "wrok")
    assert told.returncode == 2
    assert "There is no identity 'wrok'. Known:" in told.stderr
    shown = json.loads(cli("identity", "show", "work", "-o", "json").stdout)
    assert shown["role"] == "reader"
    assert "work" in cli("identity", "list").stdout
