"""An agent is killed in the second in which its run ends: the record ends all the same, and every row is seen."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_node.wire.commands import Nodes
from tests.e2e.mesh import AgentProcess, Mesh, mesh, wait_for
from tests.e2e.plug import Job, as_csv, host_of, pull_the_plug, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("plug")]

READINGS = 6_000


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(3) as made:
            yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with code and input, and what one undisturbed process writes."""
    folder = tmp_path_factory.mktemp("ends")
    return folder, undisturbed(folder, READINGS)


def answers(agent: AgentProcess) -> bool:
    """Whether an agent is in its ring again."""
    try:
        return len(agent.ask(Nodes())["nodes"]) == 3
    except (CommandRefusedError, NoAgentError, OSError):
        return False


@pytest.mark.parametrize("stage", ["readings", "report"])
@pytest.mark.parametrize("later", range(4))
def test_an_agent_is_killed_when_its_run_ends(ring: Mesh, expected: tuple[Path, str], stage: str, later: int) -> None:
    """Whatever it had said by then, and whether its end was already in the register: the record ends, and every row is seen."""
    job = Job(ring, expected[0], f"end-{stage}-{later}")
    wait_for(lambda: job.read() >= READINGS, 60, "all is read")
    for _ in range(3 * later):
        job.status()  # takes some tens of milliseconds
    agent = host_of(job, stage)
    pull_the_plug(agent)
    agent.start()
    wait_for(lambda: answers(agent), 60, "the agent is back")
    told = job.until_over()
    assert (told["state"], told["reason"]) == ("finished", "")
    assert job.out.read_text() == expected[1]
    assert as_csv(job.logged()) == expected[1]
