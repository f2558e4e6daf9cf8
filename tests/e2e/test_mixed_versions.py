"""An agent of another version beside today's: both are named, no user code is blamed, its state directory opens both ways."""

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_dataflow.plan.specification import FORMAT
from agiledart_kernel.version import VERSION
from agiledart_node.wire.commands import CreateToken, Nodes
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, names_seen, wait_for
from tests.e2e.test_clocks import CODE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "60b8fd0e"
"""The last commit in which registers held their runs' keys."""


def roots_in(tree: Path) -> list[str]:
    """Source roots of a tree, for PYTHONPATH."""
    return [str(tree), *(str(package.parent.parent) for package in sorted(tree.glob("*/agiledart*/__init__.py")))]


def patched(tree: Path) -> None:
    """Today's code, which says that it is version 0.0.9 and knows an older form."""
    for package in ROOT.glob("*/agiledart*"):
        shutil.copytree(package, tree / package.relative_to(ROOT), ignore=shutil.ignore_patterns("__pycache__"))
    form = tree / "dataflow" / "agiledart_dataflow" / "plan" / "specification.py"
    form.write_text(form.read_text().replace(f"FORMAT = {FORMAT}\n", f"FORMAT = {FORMAT - 1}\n"))
    version = tree / "kernel" / "agiledart_kernel" / "version.py"
    version.write_text(version.read_text().replace(VERSION, "0.0.9"))


def of_history(tree: Path) -> None:
    """The code from before keys were split."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", BEFORE], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"NOT RUN: no history here ({BEFORE})")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tree, filter="data")


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[tuple[Mesh, dict[str, str], str]]:
    """Two agents of today and a3 of another version; its environment; how its version is reported."""
    tree = tmp_path / "tree"
    tree.mkdir()
    patched(tree)
    told = f"agiledart 0.0.9 with specification {FORMAT - 1}"
    environment = {"PYTHONPATH": os.pathsep.join(roots_in(tree))}
    with mesh(2) as made:
        other = AgentProcess("a3", made.folder)
        other.environment = environment
        made.add([other])
        yield made, environment, told


def submit(made: Mesh, folder: Path, asked: str, at: str, *words: str) -> Any:
    return cli(
        "submit", "flow.py:flow", "--agent", str(made.agent(asked).state_dir), "--set", "readings=csv:in.csv?speed=100@a1",
        "--set", f"report=csv:out.csv@{at}", "--parallelism", "more=4", "-o", "json", *words, cwd=folder,
    )  # fmt: skip


def test_both_versions_are_named(mixed: tuple[Mesh, dict[str, str], str], tmp_path: Path) -> None:
    made, environment, told = mixed
    (tmp_path / "flow.py").write_text(CODE)
    (tmp_path / "in.csv").write_text("at,value\n2024-01-01 00:00:00,1\n")
    today = f"agiledart {VERSION} with specification {FORMAT}"
    near = made.agent("a1")
    rows = {row["name"]: (row["software"], row["specification"]) for row in near.ask(Nodes())["nodes"]}
    assert rows["a1"] == rows["a2"] == (VERSION, FORMAT)
    assert rows["a3"] != rows["a1"]
    shown = cli("nodes", "--agent", str(near.state_dir)).stderr
    assert f"{told}: a3" in shown, shown
    assert f"{today}: a1, a2" in shown, shown

    ran = submit(made, tmp_path, "a1", "a3")
    assert ran.returncode == 1
    assert f"report: a3 runs {told}, you submitted with {today}" in ran.stderr, ran.stderr
    ran = submit(made, tmp_path, "a1", "a2")
    assert ran.returncode == 0, ran.stderr
    assert "a3" not in json.loads(ran.stdout)["nodes"], "it gets no work that it would not understand"
    ran = submit(made, tmp_path, "a3", "a2", "--name", "other")
    assert ran.returncode != 0
    assert "builder" not in ran.stderr, "no user code is blamed"
    assert f"specification {FORMAT}" in ran.stderr or f"format {FORMAT}" in ran.stderr, ran.stderr

    other = made.agent("a3")
    for back in ({}, environment):  # its state directory opens today, and after that in the other version again
        assert other.end() == 0
        other.environment = dict(back)
        other.start()
        other.ready()
        made.wait_for_ring()
        wait_for(near.has_company, 20.0, "in one ring")


@pytest.mark.soak
def test_an_agent_that_stored_keys_in_registers_does_not_join(tmp_path: Path) -> None:
    of_history(tmp_path)
    with mesh(1) as made:
        (near,) = made.agents
        other = AgentProcess("a3", made.folder)
        other.environment = {"PYTHONPATH": os.pathsep.join(roots_in(tmp_path))}
        other.start("--join", str(near.ask(CreateToken(uses=1, expires=600))["token"]))
        wait_for(lambda: "update AgileDart on a3" in other.log.read_text(), 60, "a3 reads why it is refused")
        assert names_seen(near) == {"a1"}
        other.end()
