"""The power of all machines fails, and what was not forced to the disk is not there: results are exact, also without one of them.

A small library that is loaded into agents and executors notes how long each file was when it was forced (fsync). After the kill
every file is cut to that; one that never was is empty. `AGILEDART_POWER_CUTS=N` does so often. It needs a C compiler.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import Mesh, executors_of, mesh, wait_for
from tests.e2e.plug import Job, as_csv, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("plug")]

COUNT, READINGS = 5, 25_000
CUTS = int(os.environ.get("AGILEDART_POWER_CUTS", "2"))

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void note(int fd) {
    const char *path = getenv("FORCED_FILES");
    struct stat is;
    char line[80];
    if (path == NULL || fstat(fd, &is) != 0 || !S_ISREG(is.st_mode)) return;
    int out = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (out < 0) return;
    int length = snprintf(line, sizeof line, "%lu %lld\n", (unsigned long)is.st_ino, (long long)is.st_size);
    if (write(out, line, length) != length) abort();
    close(out);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    int done = real(fd);
    if (done == 0) note(fd);
    return done;
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int done = real(fd);
    if (done == 0) note(fd);
    return done;
}
"""


@pytest.fixture(scope="module")
def forced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file in which lengths of forced files are noted, by all processes that begin from now on."""
    if shutil.which("cc") is None:
        pytest.skip("NOT RUN: no C compiler (Debian: gcc)")
    folder = tmp_path_factory.mktemp("forced")
    (folder / "forced.c").write_text(SHIM)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(folder / "forced.so"), str(folder / "forced.c"), "-ldl"], check=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORCED_FILES", str(folder / "forced"))
        patch.setenv("LD_PRELOAD", str(folder / "forced.so"))
        yield folder / "forced"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("power")
    return folder, undisturbed(folder, READINGS)


@pytest.fixture
def ring(forced: Path) -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        patch.setenv("AGILEDART_AGENT__CONFINE", "false")  # executors, too, note what they force
        with mesh(0) as made:
            made.grow_on(*range(1, COUNT + 1))
            yield made


def cut_tails(files: list[Path], forced: Path) -> int:
    """Cut each file to what was forced of it; bytes that are gone."""
    lengths: dict[int, int] = {}
    for line in forced.read_text().splitlines():
        inode, length = map(int, line.split())
        lengths[inode] = length
    gone = 0
    for file in files:
        is_now = file.stat()
        stays = min(is_now.st_size, lengths.get(is_now.st_ino, 0))
        if stays < is_now.st_size:
            gone += is_now.st_size - stays
            os.truncate(file, stays)
    return gone


@pytest.mark.parametrize("number", range(CUTS))
def test_unsynced_writes_were_not_needed(ring: Mesh, forced: Path, expected: tuple[Path, str], number: int) -> None:
    dice = random.Random(number)
    job = Job(ring, expected[0], f"power-{number}")
    job.until_committed()
    time.sleep(dice.uniform(0.0, 3.0))  # the moment is what the numbers choose
    seen = job.logged()
    addresses = {agent.name: agent.address for agent in ring.agents}
    processes = [pid for agent in ring.agents for pid in (*executors_of(agent), agent.pid)]
    for pid in processes:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for agent in ring.agents:
        agent.kill()
    files = [
        path for agent in ring.agents for path in agent.state_dir.rglob("*") if path.is_file() and not path.is_symlink()
    ]
    assert cut_tails([*files, job.out], forced) > 0, "something is always under way"
    away = f"a{dice.choice((2, 4, 5))}" if number % 2 else ""
    for agent in ring.agents:
        if agent.name != away:
            agent.start("--listen", addresses[agent.name])
    wait_for(lambda: all(one.description for one in ring.agents if one.name != away), 60, "the others are back")
    over = job.until_over()
    assert (over["state"], over["reason"]) == ("finished", ""), f"without {away or 'nobody'}"
    assert job.out.read_text() == expected[1]
    logged = job.logged()
    assert logged[: len(seen)] == seen, "rows that readers saw stay"
    assert as_csv(logged) == expected[1]
