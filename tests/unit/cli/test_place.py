"""`agiledart place`: exit codes, what users get wrong in words, comparison, isolation of users' strategies."""

import copy
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agiledart.placement.example import EXAMPLE_NETWORK, EXAMPLE_TOPOLOGY
from agiledart_cli.main import run_cli

Document = dict[str, Any]


class Files:
    """A network and a topology in files, and the command on them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.network, self.topology = copy.deepcopy(EXAMPLE_NETWORK), copy.deepcopy(EXAMPLE_TOPOLOGY)
        self.topology["operators"][1]["selectivity"] = 0.4

    def place(self, *options: str) -> tuple[int, str, str]:
        """Write the files and run the command; return exit code, output and messages."""
        network, topology = self.folder / "network.json", self.folder / "topology.json"
        network.write_text(json.dumps(self.network))
        topology.write_text(json.dumps(self.topology))
        code = run_cli(["place", "--network", str(network), "--topology", str(topology), *options])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def test_example_writes_a_pair_of_files_that_can_be_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["place", "--example"]) == 0
    command = ["place", "--network", "network.json", "--topology", "topology.json", "--objective", "response"]
    assert run_cli([*command, "--strategy", "hybrid", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["placement"] == {"src": ["n0"], "a": ["n1"], "b": ["n1"], "snk": ["n3"]}
    assert document["objective"]["value"] == 38
    assert document["metrics"]["score"] == pytest.approx(2.150023)
    assert run_cli(["place", "--example"]) == 2  # replaces no file


def _set(place: str, value: object) -> Callable[[Files], None]:
    """Return a change of a file: `network.nodes.0.name` and so on."""

    def change(files: Files) -> None:
        first, *keys, last = place.split(".")
        target: Any = files.network if first == "network" else files.topology
        for key in keys:
            target = target[int(key)] if key.isdigit() else target[key]
        target[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("network.nodes.0.speeed", 2), "nodes[0].speeed = 2: unknown key; did you mean speed"),
        (_set("network.nodes.1.name", "n0"), 'nodes[1].name = "n0": two nodes have this name'),
        (_set("topology.operators.1.name", "src"), 'operators[1].name = "src": two operators have this name'),
        (_set("network.links.0.to", "n11"), 'links[0].to = "n11": there is no node of this name; did you mean n1'),
        (_set("network.links.0.delay_ms", -1), "links[0].delay_ms = -1: expected a number, at least 0"),
        (_set("network.links.0.delay_ms", float("nan")), "links[0].delay_ms = NaN: expected a number"),
        (_set("network.nodes.0.availability", 1.5), "nodes[0].availability = 1.5: expected a number, 0 to 1"),
        (_set("network.nodes.0.price_per_hour", -2), "nodes[0].price_per_hour = -2: expected a number, at least 0"),
        (
            _set("network.nodes.0.capacity", {"slots": -2}),
            "nodes[0].capacity.slots = -2: expected a number, at least 0",
        ),
        (_set("topology.operators.0.on", ["n9"]), 'operators[0].on = "n9": there is no node of this name'),
        (_set("topology.streams.0.rate", -5), "streams[0].rate = -5: expected a number, at least 0"),
        (
            _set("topology.streams.0.from", "sorc"),
            'streams[0].from = "sorc": there is no operator of this name; did you mean src',
        ),
        (_set("topology.operators.1.demand", {"slots": "two"}), 'operators[1].demand.slots = "two": expected a number'),
        (_set("topology.operators.1.instances", 1.5), "operators[1].instances = 1.5: expected a whole number"),
        (_set("network.format", "agiledart-topology/1"), "expected 'agiledart-network/1'"),
    ],
)
def test_a_wrong_file_is_named_with_place_and_value(
    files: Files, change: Callable[[Files], None], message: str
) -> None:
    change(files)
    code, _, errors = files.place()
    assert code == 2
    assert message in errors
    assert ("network.json" in errors) or ("topology.json" in errors)


def test_a_pair_without_link_is_named(files: Files) -> None:
    del files.network["links"][3]
    code, _, errors = files.place()
    assert code == 2
    assert '"n1 \\u2192 n2": no link joins this pair' in errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--strategy", "hybrit"), "Did you mean hybrid?"),
        (("--objective", "respons"), "Did you mean response?"),
        (("--weights", "response=.5,usage=.6"), "sum to 1, not to 1.1"),
        (("--weights", "latency=1"), "use one of response, availability"),
        (("--objective", "cost"), "node n0 has no price_per_hour"),
        (("--time-limit", "soon"), "--time-limit: soon is no number"),
        (("--strategy", "mine.py:Mine"), "there is no file mine.py"),
        (("--start", "missing.json"), "missing.json: No such file or directory"),
    ],
)
def test_a_wrong_option_names_the_right_one(files: Files, options: tuple[str, ...], message: str) -> None:
    code, _, errors = files.place(*options)
    assert code == 2
    assert message in errors


def test_infeasible_is_exit_1_with_amounts(files: Files) -> None:
    files.topology["operators"][1]["demand"] = {"slots": 41}
    code, _, errors = files.place("--strategy", "hybrid")
    assert code == 1
    code, output, _ = files.place("--strategy", "hybrid", "-o", "json")
    assert code == 1
    assert json.loads(output)["feasible"] is False
    assert any(v["kind"] == "capacity" and v["limit"] == 4 for v in json.loads(output)["violations"])
    assert "slots on" in errors
    assert "41 needed" in errors or "needed" in errors


def test_empty_candidates_name_the_rule(files: Files) -> None:
    files.topology["operators"][1]["needs"] = ["gpu"]
    code, _, errors = files.place()
    assert code == 1
    assert "a: no node is left by the rule needs gpu" in errors


def test_two_topologies_share_capacity_and_exclusive_ones_share_no_node(files: Files, tmp_path: Path) -> None:
    second = tmp_path / "second.json"
    second.write_text(json.dumps({**files.topology, "name": "second"}))
    code, output, _ = files.place("--topology", str(second), "-o", "json")
    document = json.loads(output)
    assert sorted(document["placement"]) == sorted(
        f"{name}/{operator['name']}" for name in ("chain", "second") for operator in files.topology["operators"]
    )
    code, output, _ = files.place("--topology", str(second), "--exclusive", "-o", "json")
    assert code == 1  # both are pinned to n0 and n3
    assert [v["kind"] for v in json.loads(output)["violations"]].count("exclusive") >= 2


def test_compare_marks_the_best_and_csv_can_be_repeated(files: Files) -> None:
    names = "round_robin,hill_climbing,mopa"
    code, table, _ = files.place("--compare", "--strategies", names, "--objective", "response")
    assert code == 0
    line = next(line for line in table.splitlines() if "hill_climbing" in line)
    assert "38*" in line
    code, first, _ = files.place("--compare", "--strategies", names, "--seeds", "1-3", "-o", "csv")
    assert code == 0
    again = files.place("--compare", "--strategies", names, "--seeds", "1-3", "-o", "csv")[1]

    def without_seconds(text: str) -> list[str]:
        return [",".join(line.split(",")[:-2]) for line in text.splitlines()[1:]]

    assert without_seconds(first) == without_seconds(again)
    assert len(first.splitlines()) == 2 + 3 * 3
    assert json.loads(first.splitlines()[0][2:])["seeds"] == [1, 2, 3]


BROKEN = {
    "raises": "raise RuntimeError('no idea')",
    "exits": "import os; os._exit(7)",
    "hangs": "while True: pass",
    "nonsense": "return 42",
    "incomplete": "from agiledart.placement import Placement; return Placement({})",
    "elsewhere": "from agiledart.placement import Placement; return Placement({(s.stage, 0): 1 for s in request.stages})",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_strategy_of_a_user_never_brings_the_command_down(files: Files, fault: str) -> None:
    lines = "\n        ".join(BROKEN[fault].split("; "))
    code = f"class Mine:\n    keeps_balance = False\n    def place(self, request):\n        {lines}\n"
    path = files.folder / "mine.py"
    path.write_text(code)
    started = time.monotonic()
    exit_code, output, errors = files.place("--strategy", f"{path}:Mine", "--time-limit", "2s", "-o", "json")
    assert exit_code == 1, errors
    document = json.loads(output)
    assert document["skipped"] or document["feasible"] is False
    assert time.monotonic() - started < 30
    exit_code, table, _ = files.place(
        "--compare", "--strategies", "round_robin", "--strategy", f"{path}:Mine", "--time-limit", "2s"
    )
    assert exit_code == 0
    assert "round_robin" in table


def test_a_users_strategy_runs_and_is_checked(files: Files) -> None:
    path = files.folder / "mine.py"
    path.write_text(
        "from agiledart.placement import Problem\n\n"
        "class Mine:\n"
        "    keeps_balance = False\n"
        "    def place(self, request):\n"
        "        problem = Problem(request)\n"
        "        return problem.placement([nodes[-1] for nodes in problem.candidates])\n"
    )
    code, output, _ = files.place("--strategy", f"{path}:Mine", "-o", "json")
    assert json.loads(output)["placement"]["a"] == ["n3"]
    assert code == 1  # n3 has two slots
    assert run_cli(["place", "--check", "--strategy", f"{path}:Mine"]) == 0
    path.write_text("class Mine:\n    keeps_balance = False\n    def place(self, request):\n        return None\n")
    assert run_cli(["place", "--check", "--strategy", f"{path}:Mine"]) == 1


def test_the_command_ends_in_time_when_the_solver_does_not(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heuristic's placement is the result then, with a note."""
    pytest.importorskip("highspy", reason='odp needs the extra: pip install "agiledart[placement]"')
    from agiledart.placement import running

    monkeypatch.setattr(running, "_solve_odp", _never_returns)
    started = time.monotonic()
    code, output, _ = files.place("--strategy", "odp", "--objective", "response", "--time-limit", "2s", "-o", "json")
    assert time.monotonic() - started < 2 + 1 + 2  # one second of grace, and the start of Python on a busy machine
    document = json.loads(output)
    assert code == 0
    assert document["solver"]["status"] == "time_limit"
    assert "HiGHS gave no answer" in document["solver"]["notes"][0]
    assert document["objective"]["value"] == 38


def _never_returns(*_: object) -> None:
    threading.Event().wait()


def test_without_the_extra_odp_names_the_installation(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    from agiledart_placement.integer_programme import odp

    monkeypatch.setattr(odp, "find_spec", lambda name: None)
    code, _, errors = files.place("--strategy", "odp")
    assert code == 2
    assert 'odp needs HiGHS: pip install "agiledart[placement]"' in errors
    code, table, _ = files.place("--compare", "--strategies", "odp,hybrid")
    assert code == 0
    assert "odp needs HiGHS" in table


def test_strategies_with_one_outcome_share_a_label_in_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert run_cli(["place", "--example"]) == 0
    files = ["--network", "network.json", "--topology", "topology.json", "--objective", "usage"]
    assert run_cli(["place", *files, "--compare", "--strategies", "hill_climbing,mopa,random", "--plot", "p.svg"]) == 0
    picture = Path("p.svg").read_text()
    assert picture.count("<!-- hill_climbing") == 2, "once in each of the two pictures"
    assert "<!-- crosses: not feasible -->" in picture
