"""Rules about nodes and names of strategies, on real agents: successors of a killed host, and every mistake of a user."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import Status
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPOLOGY = """
from typing import NamedTuple

from agiledart import Change, Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    key: int


def build(
    readings: Source[Reading], report: Sink[Change], labels: str = "", on: str = "", step: str = "counts",
    delivery: str = "at-least-once",
) -> Topology:
    topology = Topology("ruled", delivery=delivery)
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at, at="a1")
    rows.key_by(lambda reading: reading.key).running_count("counts").sink("report", report)
    topology.place(step, labels=[name for name in labels.split(",") if name], on=[name for name in on.split(",") if name])
    return topology
"""


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(1) as made:
            made.add([AgentProcess(name, made.folder, "--label", "gpu") for name in ("a2", "a3")])
            made.add([AgentProcess("a4", made.folder, "--label", "camera")])
            yield made


def submitted(ring: Mesh, folder: Path, *options: str, **settings: str) -> tuple[int, str]:
    """Exit code and texts of a submission."""
    (folder / "ruled.py").write_text(TOPOLOGY)
    (folder / "rows.csv").write_text("".join(f"{number * 10},{number % 7}\n" for number in range(60_000)))
    sets = {
        "readings": f"csv:{folder}/rows.csv?speed=1",
        "report": f"csv:{folder}/out.csv@a1",
        **settings,
    }
    words = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    return told(ring, "submit", f"{folder}/ruled.py:build", *words, *options)


def told(ring: Mesh, *words: str) -> tuple[int, str]:
    answer = cli(*words, "--agent", str(ring.agents[0].state_dir))
    return answer.returncode, answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("options", "settings", "code", "words"),
    [
        (("--placement", "hybird"), {}, 2, "Did you mean hybrid?"),
        (("--placement", "of-a-package"), {}, 2, "placement 'of-a-package': use one of along_path"),
        (("--placement", "odp:respons"), {}, 2, "Did you mean response?"),
        (("--placement", "mopa:response"), {}, 2, "mopa follows usage only"),
        (
            (),
            {"labels": "gpx"},
            2,
            "the rule 'needs the label gpx'. Did you mean gpu? Labels: camera (a4); gpu (a2, a3)",
        ),
        ((), {"labels": "gpu", "on": "a4"}, 2, "(a2, a3) fulfils the rule 'only on a4'"),
        ((), {"on": "a44"}, 2, "the rule 'only on a44'. Did you mean a4?"),
        ((), {"step": "cuonts"}, 2, "Did you mean counts?"),
        ((), {"labels": "gpu or more"}, 2, "cannot be a label"),
        (("--moves", "maybe"), {}, 2, "'maybe' is not one of"),
    ],
)
def test_a_mistake_is_refused_with_the_nearest_name(
    ring: Mesh, tmp_path: Path, options: tuple[str, ...], settings: dict[str, str], code: int, words: str
) -> None:
    answer = submitted(ring, tmp_path, "--dry-run", *options, **settings)
    assert (answer[0], words in " ".join(answer[1].split())) == (code, True), answer[1]
    assert "Traceback" not in answer[1]


def test_moves_of_an_unsaved_application_are_advice_and_name_the_delivery(ring: Mesh, tmp_path: Path) -> None:
    code, text = submitted(ring, tmp_path, "--moves", "on", delivery="at-most-once")
    assert code == 0, text
    code, text = told(ring, "explain", "placement", "ruled")
    assert code == 0, text
    assert "delivery=" in text, text
    code, text = told(ring, "move", "ruled", "counts", "a4")
    assert (code, "delivery" in text) == (1, True), text
    assert told(ring, "stop", "ruled", "--now")[0] == 0


@pytest.mark.soak
def test_the_host_of_a_label_is_killed_and_a_node_with_the_label_takes_over(ring: Mesh, tmp_path: Path) -> None:
    code, text = submitted(ring, tmp_path, labels="gpu")
    assert code == 0, text

    def status() -> Any:
        return ring.agents[0].ask(Status("ruled"))

    (first,) = status()["placement"]["counts"]
    assert first in ("a2", "a3")
    wait_for(lambda: (tmp_path / "out.csv").exists() and (tmp_path / "out.csv").stat().st_size, 30, "rows in the file")
    ring.agent(first).kill()
    other = {"a2": "a3", "a3": "a2"}[first]
    wait_for(lambda: status()["placement"]["counts"] == [other] and status()["state"] == "running", 60, "it goes on")
    size = (tmp_path / "out.csv").stat().st_size
    wait_for(lambda: (tmp_path / "out.csv").stat().st_size > size, 30, "rows come again")
    ring.agent(first).start()
    ring.agent(first).ready()
    assert told(ring, "stop", "ruled", "--now")[0] == 0


@pytest.mark.soak
def test_without_another_labelled_node_a_run_waits_until_it_is_back(ring: Mesh, tmp_path: Path) -> None:
    code, text = submitted(ring, tmp_path, labels="camera")
    assert code == 0, text
    wait_for(lambda: (tmp_path / "out.csv").exists() and (tmp_path / "out.csv").stat().st_size, 30, "rows in the file")
    ring.agent("a4").kill()
    wait_for(
        lambda: "needs the label camera" in told(ring, "status", "ruled")[1], 60, "it says which rule it waits for"
    )
    size = (tmp_path / "out.csv").stat().st_size
    ring.agent("a4").start()
    wait_for(lambda: (tmp_path / "out.csv").stat().st_size > size, 60, "rows come again")
    assert ring.agents[0].ask(Status("ruled"))["placement"]["counts"] == ["a4"]
    assert told(ring, "stop", "ruled", "--now")[0] == 0
