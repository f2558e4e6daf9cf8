"""Executors of one node pass rows over socket pairs: on one real agent, also when one of them is killed in mid-stream."""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import Status
from tests.e2e.mesh import Mesh, cli, executors_of, mesh, wait_for
from tests.e2e.plug import FINAL, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 6_000


@pytest.fixture
def one() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(1) as made:
            yield made


def submit(one: Mesh, folder: Path) -> Path:
    """Submit the job for three executors, with two instances of its state, and return its output."""
    out = folder / "copy.csv"
    told = cli(
        "submit", "plug.py:build", "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1", "--set", "report=log:plug",
        "--set", f"copy=csv:{out}", "--executors", "3", "--parallelism", "sums=2",
        "--agent", str(one.agents[0].state_dir), cwd=folder,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return out


def status(one: Mesh) -> dict[str, Any]:
    return dict(one.agents[0].ask(Status("plug")))


def routes(one: Mesh) -> list[dict[str, Any]]:
    instances = itertools.chain.from_iterable(stage["instances"] for stage in status(one).get("stages", []))
    return [route for instance in instances for route in instance.get("routes", ())]


def local_frames(one: Mesh) -> int:
    """Frames over socket pairs; fails when a frame took another path."""
    counted = [route["frames"] for route in routes(one) if route["frames"]]
    assert not any(frames["direct"] or frames["relayed"] for frames in counted), counted
    return sum(int(frames["local"]) for frames in counted)


def ends(one: Mesh) -> dict[str, Any]:
    told = wait_for(lambda: (told := status(one))["state"] in FINAL and told, 120, "plug ends")
    assert (told["state"], told["reason"]) == ("finished", "")
    return dict(told)


def test_rows_between_executors_of_one_node_take_socket_pairs(one: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, READINGS)
    out = submit(one, tmp_path)
    wait_for(lambda: local_frames(one) > 10, 60, "frames pass over socket pairs")
    assert len(executors_of(one.agents[0])) == 3
    assert {route["kind"] for route in routes(one)} == {"local"}
    told = cli("explain", "route", "plug", "--agent", str(one.agents[0].state_dir))
    assert "within the node" in told.stdout, told.stderr
    ends(one)
    assert out.read_text() == expected


def test_results_are_exact_after_the_kill_of_an_executor(one: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, READINGS)
    out = submit(one, tmp_path)
    wait_for(lambda: out.exists() and out.read_text(), 60, "an epoch is committed")
    local_frames(one)
    os.kill(executors_of(one.agents[0])[1], signal.SIGKILL)
    wait_for(lambda: any("attempt" in entry["text"] for entry in status(one)["history"]), 60, "the run restarts")
    wait_for(lambda: local_frames(one) > 10, 60, "frames pass over new socket pairs")
    ends(one)
    assert out.read_text() == expected
