"""Two of three voters are gone for ever: status says so, an admin has the run go on, and one that comes back changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import Job, as_csv, pull_the_plug, undisturbed, voters_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 20_000


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(1, 2, 3, 4, 1)  # four machines, so that there are three voters
            yield made


@pytest.mark.soak
def test_two_of_three_voters_are_killed_permanently(ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, READINGS)
    job = Job(ring, tmp_path, "lost")
    job.until_committed()
    voters = voters_of(ring)
    assert len(voters) == 3
    lost = [name for name in voters if name not in ("a1", "a3")][:2]
    assert len(lost) == 2, f"the ends vote: {voters}"
    seen = job.logged()
    where = "--agent", str(ring.agents[0].state_dir)
    without = [word for name in lost for word in ("--without", name)]
    refused = cli("checkpoint", "recover", "lost", *without, "--yes", *where)
    assert refused.returncode == 1
    assert "a majority of its voters answers" in refused.stderr
    for name in lost:
        pull_the_plug(ring.agent(name))

    def remedy() -> str:
        return str((job.status().get("recovery") or {}).get("remedy", ""))

    wait_for(remedy, 60, "status says what to do")
    assert remedy().startswith("agiledart checkpoint recover lost --without ")
    assert {word for word in remedy().split() if word in voters} == {*lost}
    unsure = cli("checkpoint", "recover", "lost", *without, *where)
    assert unsure.returncode == 2
    assert "see them twice" in unsure.stderr
    assert "--yes" in unsure.stderr
    done = cli("checkpoint", "recover", "lost", *without, "--yes", *where)
    assert done.returncode == 0, done.stderr
    assert "in generation 1" in done.stderr
    back = ring.agent(lost[0])
    back.start()
    told = job.until_over()
    assert (told["state"], told["reason"]) == ("finished", "")
    assert any("had it go on without" in entry["text"] for entry in told["history"])
    assert job.out.read_text() == expected
    assert as_csv(job.logged()) == expected
    assert job.logged()[: len(seen)] == seen
