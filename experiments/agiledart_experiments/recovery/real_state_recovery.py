"""Form `--real` of `state-recovery`: fragments of a state from several processes, and the whole from one, over TCP.

Each replica node, and the store, is a process that serves files with an uplink of 100 Mbit/s (`limited_file_server`). The fragments
are those of agents, cut, fetched in stripes and joined by their code. The serving processes are no agents: agents share one machine
here, and its loopback has no limited uplinks. Only the restoring side is timed; saving is that of the modelled form.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Final

from agiledart_agent.fragments.erasure_code import KEY_BYTES, cut, joined, sealed, unsealed
from agiledart_experiments.real_deployments import available_mb
from agiledart_experiments.recovery.emulated_links import MEGABIT, noise
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_recovery.fragments.arithmetic import stripe_providers, stripe_range

SIZES: Final = {"small": (8,), "paper": (16, 64, 256)}
CODES: Final = ((4, 2), (16, 2))
UPLOAD: Final = 100 * MEGABIT
NEAR, FAR = 0.001, 0.02
LESS, LARGE_MB = 0.34, 64
COPIES_IN_MEMORY: Final = 6
"""Times that a state is in the memory of this process at most: whole, sealed, cut, fetched and joined."""

_TIMEOUT_S: Final = 600.0


class FileServerProcess:
    """Process that serves the files of a folder.

    Attributes:
        port: on 127.0.0.1.
    """

    def __init__(self, folder: Path, delay: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.limited_file_server", str(folder), str(UPLOAD), str(delay)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OperationFailed("a file server of the experiment did not start")
        self.port = int(line)

    def fetch(self, name: str, ranges: list[tuple[int, int]]) -> list[bytes]:
        """Return these parts of a file, each as (offset, length), over one connection."""
        parts = []
        with socket.create_connection(("127.0.0.1", self.port), _TIMEOUT_S) as connection:
            connection.sendall("".join(f"{name} {offset} {length}\n" for offset, length in ranges).encode())
            with connection.makefile("rb") as answer:
                parts = [answer.read(length) for _, length in ranges]
        if any(len(part) != length for part, (_, length) in zip(parts, ranges, strict=True)):
            raise OperationFailed(f"a file server ended before {name} was complete")
        return parts

    def __enter__(self) -> "FileServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each size and code. Raises ConfigurationError on too small a machine."""
    sizes = settings.sizes_or(SIZES[settings.scale])
    free = available_mb()
    if sizes[-1] * COPIES_IN_MEMORY > free:
        fitting = int(free // COPIES_IN_MEMORY)
        raise ConfigurationError(
            f"--real: a state of {sizes[-1]} MB needs {sizes[-1] * COPIES_IN_MEMORY:,} MB, and this machine has {free:,.0f} MB"
            f" free. Use --sizes {','.join(str(size) for size in sizes if size <= fitting) or max(2, fitting)}."
        )
    rows = []
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="adx-") as name:
        most = max(m + k for m, k in CODES) - 1
        servers = [stack.enter_context(FileServerProcess(Path(name) / f"r{n}", NEAR)) for n in range(most)]
        store = stack.enter_context(FileServerProcess(Path(name) / "store", FAR))
        for size in sizes:
            settings.progress(f"restoring a state of {size} MB")
            rows += _rows(size, servers, store, settings.seed)
    parameters = {"sizes_mb": sizes, "upload_mbit": 100, "store_ms": 1_000 * FAR, "near_ms": 1_000 * NEAR}
    notes = (
        "processes serve fragments and the whole over TCP, each with an uplink of 100 Mbit/s; the downlink is this machine's",
        "recover_seconds: fetching all stripes, joining and opening; the first replica node is lost, so parity is needed",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows), notes)


def _rows(size_mb: int, servers: list[FileServerProcess], store: FileServerProcess, seed: int) -> list[Row]:
    data, key = noise(size_mb * 1_000_000, seed, size_mb), bytes(KEY_BYTES)
    (store.folder / "state").write_bytes(data)
    began = time.monotonic()
    whole = store.fetch("state", [(0, len(data))])[0]
    store_seconds = time.monotonic() - began
    assert whole == data
    rows = []
    for m, k in CODES:
        seconds, is_exact = _restored(data, m, k, key, servers[: m + k - 1])
        rows.append(
            {
                "state_mb": size_mb,
                "code": f"{m}+{k}",
                "recover_seconds": round(seconds, 3),
                "store_recover_seconds": round(store_seconds, 3),
                "less": round(1 - seconds / store_seconds, 3),
                "gap_seconds": round(store_seconds - seconds, 3),
                "is_exact": is_exact,
                "load": round(os.getloadavg()[0], 1),
            }
        )
    return rows


def _restored(data: bytes, m: int, k: int, key: bytes, servers: list[FileServerProcess]) -> tuple[float, bool]:
    """Put all fragments but the first on the servers; return the seconds to restore the state, and whether it is equal."""
    n, digest = m + k, sha256(data).digest()
    sealed_state = sealed(data, digest, key)
    fragments = cut(sealed_state, m, n)
    for number, server in enumerate(servers, 1):
        (server.folder / "fragment").write_bytes(fragments[number])
    piece, stripes = len(fragments[0]), len(servers)
    ranges = [stripe_range(stripe, stripes, piece) for stripe in range(stripes)]
    asked: list[list[int]] = [[] for _ in servers]
    for stripe in range(stripes):
        for place in stripe_providers(stripe, m, stripes):
            asked[place].append(stripe)
    began = time.monotonic()
    with ThreadPoolExecutor(len(servers)) as pool:
        parts = list(
            pool.map(
                lambda place: servers[place].fetch("fragment", [ranges[stripe] for stripe in asked[place]]),
                range(len(servers)),
            )
        )
    came: list[dict[int, bytes]] = [{} for _ in range(stripes)]
    for place, wanted in enumerate(asked):
        for stripe, part in zip(wanted, parts[place], strict=True):
            came[stripe][place + 1] = part
    back = unsealed(next(joined(came, m, n, len(sealed_state))), digest, key)
    return time.monotonic() - began, back == data


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    large = [row for row in rows if row["state_mb"] >= LARGE_MB]
    goals = [Goal("every restored state equals the saved one", all(row["is_exact"] for row in rows))]
    if large:
        goals.append(
            Goal(f"recovery takes at least 34 % less from {LARGE_MB} MB on", all(row["less"] >= LESS for row in large))
        )
    return tuple(goals)
