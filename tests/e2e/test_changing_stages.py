"""Stages change while rows flow, on real agents: other numbers, other nodes, and the results of a run in which nothing changed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import ExplainScaling
from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import Job, as_csv, undisturbed, write_input

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 150_000
"""More than the changes need, on any machine: the test stops the application when they are done."""


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(3) as made:
            yield made


def told(ring: Mesh, *words: str) -> tuple[int, str]:
    answer = cli(*words, "--agent", str(ring.agents[0].state_dir))
    return answer.returncode, answer.stdout + answer.stderr


def changes(ring: Mesh, name: str) -> list[dict[str, Any]]:
    return list(ring.agents[0].ask(ExplainScaling(name))["changes"])


def instances(job: Job) -> int:
    return len(job.status()["placement"]["sums"])


def test_a_stage_grows_shrinks_and_moves_while_rows_flow(ring: Mesh, tmp_path: Path) -> None:
    write_input(tmp_path, READINGS)
    job = Job(ring, tmp_path, "elastic", "--parallelism", "sums=1..4")
    job.until_committed()
    for number in (3, 2):
        code, text = told(ring, "scale", "elastic", "sums", str(number))
        assert (code, "done in" in text) == (0, True), text
        wait_for(lambda number=number: instances(job) == number, 30, f"{number} instances")
    assert told(ring, "scale", "elastic", "sums", "2")[0] == 0
    where = job.status()["placement"]["sums"]
    to = next(agent.name for agent in ring.agents if agent.name not in where[:1])
    code, text = told(ring, "move", "elastic", "sums.0", to)
    assert code == 0, text
    wait_for(lambda: job.status()["placement"]["sums"][0] == to, 30, "it has moved")
    code, text = told(ring, "scale", "elastic", "sums", "1")
    assert code == 0, text
    found = [(one["from"], one["to"], one["kind"], one["state"]) for one in changes(ring, "elastic")]
    assert found == [
        (1, 3, "scale", "done"), (3, 2, "scale", "done"), (2, 2, "move", "done"), (2, 1, "scale", "done"),
    ]  # fmt: skip
    wait_for(
        lambda: changes(ring, "elastic")[-1]["pause_ms"] is not None,
        30,
        "the next epoch tells how long rows stood still",
    )
    gaps = [one["pause_ms"] for one in changes(ring, "elastic")]
    assert all(0 < gap < 1_000 * one["seconds"] for gap, one in zip(gaps, changes(ring, "elastic"), strict=True)), gaps
    for words, code, text in (
        (("scale", "elastic", "smus", "2"), 2, "Did you mean sums"),
        (("scale", "elastic", "sums", "9"), 2, "sums was planned for 1 to 4 instances"),
        (("scale", "elastic", "readings", "2"), 2, "readings runs once"),
        (("scale", "elastic", "report", "auto"), 2, "report runs once: it is a sink"),
        (("scale", "elastic", "sums", "more"), 2, "neither a number nor auto"),
        (("scale", "elastik", "sums", "2"), 1, "Did you mean elastic"),
        (("move", "elastic", "sums", "a9"), 2, "No node 'a9'"),
        (("move", "elastic", "readings", "a2"), 1, "it stays on the node that has its data"),
    ):
        assert (code, text in (answer := told(ring, *words))[1]) == (answer[0], True), (words, answer)
    assert ring.agents[0].ask(ExplainScaling("elastic", "sums"))["stages"][0]["keeps_number"], "until it is let"
    assert told(ring, "scale", "elastic", "sums", "auto")[0] == 0
    assert not ring.agents[0].ask(ExplainScaling("elastic", "sums"))["stages"][0]["keeps_number"]
    over = job.stop()
    assert over["state"] == "stopped"
    assert not any("restarted, attempt" in entry["text"] for entry in over["history"]), "in one life"
    expected = undisturbed(tmp_path, over["summary"]["records_in"])
    assert job.out.read_text() == expected
    assert as_csv(job.logged()) == expected
    code, text = told(ring, "explain", "scaling", "elastic", "-o", "json")
    assert (code, json.loads(text)["stages"]) == (0, []), text
    kept = json.loads(text)["changes"]
    assert [(one["from"], one["to"], one["state"]) for one in kept] == [
        (1, 3, "done"), (3, 2, "done"), (2, 2, "done"), (2, 1, "done"),
    ], "when it has ended, too"  # fmt: skip
    assert all(one["pause_ms"] > 0 for one in kept)
    _, text = told(ring, "explain", "scaling", "elastic")
    assert "elastic is stopped" in text
    assert "sums 1 → 3, scale" in text
    code, text = told(ring, "scale", "elastic", "sums", "2")
    assert (code, "only what runs can be changed" in text) == (1, True), text


RULED = """
from typing import NamedTuple

from agiledart import Change, Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    key: int


def build(readings: Source[Reading], report: Sink[Change], where: str = "a1,a2") -> Topology:
    topology = Topology("ruled", delivery="at-least-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at, at="a1")
    rows.key_by(lambda reading: reading.key).running_count("counts").sink("report", report)
    topology.place("counts", on=where.split(","))
    return topology
"""


def test_rules_about_nodes_bind_submission_and_moves_and_the_placement_is_explained(ring: Mesh, tmp_path: Path) -> None:
    (tmp_path / "ruled.py").write_text(RULED)
    (tmp_path / "rows.csv").write_text("".join(f"{number * 10},{number % 7}\n" for number in range(60_000)))
    target, source = f"{tmp_path}/ruled.py:build", f"readings=csv:{tmp_path}/rows.csv?speed=1"
    submission = ("submit", target, "--set", source, "--set", f"report=csv:{tmp_path}/out.csv@a1")
    code, text = told(ring, *submission, "--set", "where=a8,a9")
    assert (code, "counts: no node fulfils the rule 'only on a8, a9'" in text) == (2, True), text
    code, text = told(ring, *submission, "--moves", "off")
    assert code == 0, text
    code, text = told(ring, "move", "ruled", "counts", "a3")
    assert (code, "A rule of ruled forbids a3: counts only on a1, a2" in text) == (1, True), text

    def measured() -> dict[str, Any] | None:
        code, text = told(ring, "explain", "placement", "ruled", "-o", "json")
        answer: dict[str, Any] = json.loads(text[text.index("{") :]) if code == 0 else {"stages": []}
        return (
            answer if answer["stages"] and all(row["rows_source"] == "measured" for row in answer["stages"]) else None
        )

    answer = wait_for(measured, 30, "rates are measured")
    assert answer["value"] > 0
    (unit,) = answer["units"]
    assert unit["node"] in ("a1", "a2")
    forbidden = {other["node"]: other["forbidden"] for other in unit["alternatives"]}
    assert forbidden["a3"] == ["counts: only on a1, a2"]
    code, text = told(
        ring, "place", "--network", "live", "--topology", "ruled", "--objective", "response", "-o", "json"
    )
    assert code == 0, text
    assert json.loads(text[text.index("{") : text.rindex("}") + 1])["placement"]["counts"][0] in ("a1", "a2")
    code, text = told(ring, "move", "ruled", "counts", "auto")
    assert (code, "may move by itself again" in text) == (0, True), text
    assert told(ring, "stop", "ruled", "--now")[0] == 0
