"""The user's identity at the command line: a token that was used goes on, by itself and by a name."""

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


def test_a_used_token_is_renewed_and_found_by_name(ring: Mesh, tmp_path: Path) -> None:
    (agent,) = ring.agents
    made = cli("token", "create", "--role", "reader", "--expires", "12s", "--agent", str(agent.state_dir))
    used, late = tmp_path / "used.token", tmp_path / "late.token"
    used.write_text(made.stdout)
    late.write_text(
        cli("token", "create", "--role", "reader", "--expires", "1s", "--agent", str(agent.state_dir)).stdout
    )
    assert cli("identity", "add", "work", f"@{used}").returncode == 0
    wait_for(lambda: cli("token", "show", f"@{used}").returncode == 1, 60, "the token has expired")
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


def test_a_user_is_renewed_and_its_applications_outlive_its_key(ring: Mesh, tmp_path: Path) -> None:
    (agent,) = ring.agents
    at, here = agent.address, str(agent.state_dir)
    one, two = tmp_path / "one.token", tmp_path / "two.token"
    for file in (one, two):
        text = cli(
            "token", "create", "--role", "submitter", "--scope", "app:taxi", "--member-for", "1h", "--agent", here
        ).stdout
        file.write_text(text)
    assert cli("identity", "add", "driver", f"@{one}").returncode == 0
    first = json.loads(cli("identity", "show", "driver", "-o", "json").stdout)
    told = cli("identity", "renew", "driver", "-o", "json")
    assert told.returncode == 0, told.stderr
    after = json.loads(cli("identity", "show", "driver", "-o", "json").stdout)
    assert (after["key"], after["role"], after["scope"]) == (first["key"], "submitter", "app:taxi")
    assert after["until"] == json.loads(told.stdout)["until"] >= first["until"]
    told = cli("list", "--agent", at, "--identity", "driver")
    assert told.returncode == 0, told.stderr
    told = cli("identity", "rotate", "driver", "--token", f"@{two}", "-o", "json")
    assert told.returncode == 0, told.stderr
    changed = json.loads(told.stdout)
    assert changed["old"] == first["key"] != changed["key"]
    told = cli("ban", changed["old"], "--reason", "key changed", "--agent", here)
    assert told.returncode == 0, told.stderr
    told = cli("identity", "renew", "driver.old", "--agent", at)
    assert told.returncode == 1
    assert "banned" in told.stderr
    told = cli("list", "--agent", at, "--identity", "driver")
    assert told.returncode == 0, told.stderr
    told = cli("identity", "renew", "--agent", here, "-o", "json")
    assert told.returncode == 0 or "its own membership ends" in told.stderr, told.stderr
