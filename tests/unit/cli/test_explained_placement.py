"""How `explain placement` looks, and live inputs of `place`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart.placement.example import EXAMPLE_NETWORK, EXAMPLE_TOPOLOGY
from agiledart_cli.main import run_cli
from agiledart_node.wire.commands import Command, ExplainPlacement, Nodes
from tests.unit.cli.fake_agent import FakeAgent

RESPONSE: dict[str, Any] = {
    "name": "job", "version": 1, "state": "running", "objective": "response", "value": 58.0,
    "metrics": {"response": 58.0}, "predicted_ms": 58.0, "measured_ms": 61.5, "measured_p99_ms": 90.0,
    "violations": ["b has 1 slots, and 2 are needed"],
    "stages": [{"name": "work", "kind": "operator", "nodes": ["a", "a"], "ms": 8.0, "ms_source": "expected", "rows_per_s": 100.0,
                "rows_source": "measured", "rules": ["only zone attic"]}],
    "units": [{"instances": ["work"], "node": "a", "stays": "it is not saved by epochs", "alternatives": [
        {"node": "b", "value": 24.0, "change": -34.0, "forbidden": []},
        {"node": "c", "value": 60.0, "change": 2.0, "forbidden": ["work: only zone attic"]}]}],
    "links": [{"source_node": "a", "target_node": "c", "delay_ms": 50.0, "source": "estimated"}],
    "silent_nodes": ["d"], "notes": ["d is left out"], "network": EXAMPLE_NETWORK, "topology": EXAMPLE_TOPOLOGY,
}  # fmt: skip


def answer(command: Command) -> list[Any]:
    if isinstance(command, Nodes):
        return [{"nodes": [], "known": 4, "network": EXAMPLE_NETWORK, "notes": ["n9 is left out"]}]
    return [RESPONSE]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    with FakeAgent(tmp_path, answer) as fake:
        yield fake


def test_the_placement_is_explained_in_lines(agent: FakeAgent, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["explain", "placement", "job", "--agent", str(agent.folder)]) == 0
    printed = capsys.readouterr().out
    assert "job: response 58 ms; measured 61.5 ms (99 %: 90 ms)" in printed
    line = next(line for line in printed.splitlines() if line.startswith(" work  "))
    assert line.split() == ["work", "a", "8", "expected", "100", "only", "zone", "attic"]
    assert " a → c: 50.0 ms estimated" in printed or " a → c: 50 ms estimated" in printed
    assert " work on a: b -34 ms; c +2 ms (forbidden: work: only zone attic)" in printed
    assert " broken: b has 1 slots, and 2 are needed" in printed
    assert " nothing moves while rows flow: it is not saved by epochs" in printed
    assert " note: d is left out" in printed
    assert " no figures from d" in printed
    assert agent.asked == [ExplainPlacement("job", "")]


def test_place_takes_network_and_application_of_an_agent(
    agent: FakeAgent, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "mesh.json"
    command = [
        "place",
        "--network",
        "live",
        "--topology",
        "job",
        "--save-network",
        str(saved),
        "--agent",
        str(agent.folder),
    ]
    assert run_cli([*command, "--objective", "response"]) == 0
    captured = capsys.readouterr()
    assert "note: n9 is left out" in captured.err
    assert "n0" in captured.out
    assert agent.asked == [Nodes(network=True), ExplainPlacement("job")]
    assert run_cli(["place", "--network", str(saved), "--topology", "job", "--agent", str(agent.folder)]) == 0


def test_place_takes_a_topology_in_python_with_its_expected_figures(
    tmp_path: Path, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(
        "from agiledart import Topology, lines, stdout\n\n\n"
        "def build():\n    topology = Topology('job')\n"
        "    topology.source('rows', lines('x'), at='n0').filter(bool, name='work').sink('out', stdout())\n"
        "    topology.expect('rows', rows_per_s=50)\n    return topology\n"
    )
    code = run_cli(
        ["place", "--network", "live", "--topology", "job.py:build", "--agent", str(agent.folder), "-o", "json"]
    )
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert '"rows": [\n' in captured.out
    assert "out names no node (at=): it may run anywhere" in captured.err


def test_an_older_agent_has_no_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FakeAgent(tmp_path, lambda command: [{"nodes": [], "known": 1}]) as older:
        assert run_cli(["place", "--network", "live", "--topology", "job", "--agent", str(older.folder)]) == 2
    assert "older version" in capsys.readouterr().err


def test_the_network_is_saved_from_an_agent_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["place", "--network", "x.json", "--topology", "y.json", "--save-network", "z.json"]) == 2
    assert "--save-network belongs to --network live" in capsys.readouterr().err
