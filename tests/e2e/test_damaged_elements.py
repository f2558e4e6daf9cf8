"""The power of all machines fails, and a disk has damaged what the source had saved, which lies nowhere else.

The application waits for that node, and says what is the matter and what to do. When the file is put back it goes on,
and its results are exact.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import Mesh, executors_of, mesh, wait_for
from tests.e2e.plug import Job, as_csv, register_of, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("plug")]

READINGS = 25_000


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(*range(1, 6))
            yield made


def test_a_state_with_one_damaged_copy_is_waited_for_and_named(ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, READINGS)
    job = Job(ring, tmp_path, "damaged")
    job.until_committed()
    addresses = {agent.name: agent.address for agent in ring.agents}
    for pid in [pid for agent in ring.agents for pid in (*executors_of(agent), agent.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for agent in ring.agents:
        agent.kill()
    value = register_of(ring)
    assert value is not None
    snapshot = next(one for one in value.saved if one.instance.stage == "0").chain[-1]
    (path,) = ring.agents[0].state_dir.rglob(snapshot.digest.hex())
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for agent in ring.agents:
        agent.start("--listen", addresses[agent.name])
    told = wait_for(lambda: is_waiting(job), 120, "status says what it waits for")
    assert told["waits_for"] == ["a1"]
    assert "what the source readings saved at epoch" in told["reason"]
    assert snapshot.digest.hex()[:16] in told["reason"]
    attempt = told["attempt"]
    path.write_bytes(whole)
    over = job.until_over()
    assert (over["state"], over["reason"]) == ("finished", "")
    after = register_of(ring)
    assert after is None or after.attempt <= attempt + 3, "it looks once a minute"
    assert job.out.read_text() == expected
    assert as_csv(job.logged()) == expected


def is_waiting(job: Job) -> dict[str, object] | None:
    """Text of the recovery status, when it waits and names the reason."""
    recovery = job.status().get("recovery")
    return recovery if recovery and recovery["phase"] == "waiting" and "damaged" in recovery["reason"] else None
