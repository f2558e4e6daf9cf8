"""Provider `local`: agents as processes on this machine, with a made-up price. For trying a gate, and for tests.

A host is a process group of its own that outlives the gate. Its folder has the name that the gate asked for. Which hosts run is
read from /proc, so a gate that dies between the start of a process and the next line forgets none.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from agiledart_agent.control.control_api import MAX_SOCKET_PATH_BYTES
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_cli.gate.gate_file import MILLION, number, span_ns, whole
from agiledart_cli.gate.start_data import parsed
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_messages import CallFailure, ProviderHost
from agiledart_provisioning.providers.provider import HostOffer, ProviderCallError, offer_named

OFFER = "process"
END_SECONDS = 20.0
"""Time for an agent to leave the ring; then it is killed."""

LONGEST_NAME = 50
"""Characters of a host's id: the prefix, 8 digits of the network, a gate's name, a number, and a counter."""

CREDENTIAL_PREFIX = "AGILEDART_CLOUD_"
"""Variables with credentials of a cloud, for `libcloud` only."""

_OPTIONS = ("folder", "price", "btu", "capacity", "offer", "quota")
_STATE, _CREATED = "state", "created"


class LocalProvider:
    """Agents of this machine as leased hosts.

    Args:
        options: table `[provider]` of the gate's file. Raises ConfigurationError.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        for key in options:
            if key not in _OPTIONS:
                raise ConfigurationError(f"[provider] has no {key!r}; local has {', '.join(_OPTIONS)}")
        for key in ("price", "btu"):
            if key not in options:
                raise ConfigurationError(f"[provider] needs {key}: of a billing time unit of this made-up cloud")
        price = round(number("provider", options, "price", 0.0) * MILLION)
        unit_s = max(1, span_ns("provider", options, "btu", 0) // SECOND)
        self._capacity = whole("provider", options, "capacity", 8)
        self._quota = whole("provider", options, "quota", 16)
        self._offers = (HostOffer(OFFER, price, unit_s, self._capacity),)
        self._folder = Path(options.get("folder") or Path(tempfile.gettempdir()) / f"agiledart-hosts-{os.getuid()}")

        longest = self._folder / ("x" * LONGEST_NAME) / _STATE / "control.sock"
        if len(os.fsencode(longest)) > MAX_SOCKET_PATH_BYTES:
            raise ConfigurationError(
                f"[provider] folder = {str(self._folder)!r} is too long: the sockets of agents there would have paths of more than "
                f"{MAX_SOCKET_PATH_BYTES} bytes"
            )

    async def offers(self) -> tuple[HostOffer, ...]:
        """Return the one kind of machine."""
        return self._offers

    async def lease(self, host_name: str, offer: str, start_data: str) -> ProviderHost:
        """Start an agent, or return the running one of this name."""
        offer_named(self._offers, offer)
        return await asyncio.to_thread(self._start, host_name, start_data)

    async def hosts(self, prefix: str) -> tuple[ProviderHost, ...]:
        """Return the agents that run."""
        return await asyncio.to_thread(self._running, prefix)

    async def release(self, host_id: str) -> None:
        """End an agent: it leaves the ring, or is killed. Its folder is removed."""
        folder = self._folder / host_id
        if folder.parent == self._folder and folder.name == host_id:
            await asyncio.to_thread(_end, folder)

    def _start(self, host_name: str, start_data: str) -> ProviderHost:
        running = self._running("")
        for host in running:
            if host.host_name == host_name:
                return host
        if len(running) >= self._quota:
            raise ProviderCallError(CallFailure.QUOTA, f"quota = {self._quota} processes are in use")
        data = parsed(start_data)
        host_id = next(name for name in _names(host_name) if not (self._folder / name).exists())
        folder = self._folder / host_id
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / _STATE).mkdir(mode=0o700, parents=True)
            write_durably(folder / "token", data.token.encode())
            write_durably(folder / "lease.json", msgspec.json.encode({**data.lease, "host_id": host_id}))
            created = time.time_ns()
            write_durably(folder / _CREATED, str(created).encode())
            _launch(folder, host_name, data.zone, data.labels, self._capacity)
        except OSError as error:
            raise ProviderCallError(CallFailure.REFUSED, f"{folder}: {error.strerror}") from None
        return ProviderHost(host_id, host_name, created)

    def _running(self, prefix: str) -> tuple[ProviderHost, ...]:
        hosts = []
        for name in _processes(self._folder):
            host_name = name.partition(".")[0]
            if host_name.startswith(prefix):
                with contextlib.suppress(OSError, ValueError):
                    created = int((self._folder / name / _CREATED).read_text())
                    hosts.append(ProviderHost(name, host_name, created))
        return tuple(sorted(hosts, key=lambda host: (host.created_ns, host.host_id)))


def _names(host_name: str) -> Any:
    """Yield ids for a host: its name, then with a number, as an ended one may have left its folder."""
    yield host_name
    number_ = 2
    while True:
        yield f"{host_name}.{number_}"
        number_ += 1


def _launch(folder: Path, name: str, zone: str, labels: str, capacity: int) -> None:
    command = [
        *(sys.executable, "-m", "agiledart_cli.main", "agent", "--state-dir", str(folder / _STATE)),
        *("--name", name[-64:], "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--capacity", str(capacity)),
        *("--join", f"@{folder / 'token'}", *(("--zone", zone) if zone else ())),
        *(part for label in filter(None, labels.split(",")) for part in ("--label", label)),
    ]
    environment = {
        "AGILEDART_AGENT__ALLOW_ROOT": "true",
        **{name: value for name, value in os.environ.items() if not name.startswith(CREDENTIAL_PREFIX)},
        "AGILEDART_AGENT__LEASE_FILE": str(folder / "lease.json"),
    }
    with (folder / "log").open("ab") as log:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it outlives the gate, as a machine does
            cwd=folder,
            env=environment,
        )


def _processes(folder: Path) -> dict[str, int]:
    """Return id of a host → its agent's process, from the command lines in /proc."""
    processes: dict[str, int] = {}
    start, end = f"{folder}/".encode(), f"/{_STATE}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        for option, word in pairwise(words):
            if option == b"--state-dir" and word.startswith(start) and word.endswith(end) and b"agent" in words:
                name = word[len(start) : -len(end)].decode("utf-8", "replace")
                if parent not in processes.values():
                    processes.setdefault(name, int(entry.name))
    return processes


def _end(folder: Path) -> None:
    """End the agent of a folder, with its process group, and remove the folder."""
    pid = _processes(folder.parent).get(folder.name)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        while folder.name in _processes(folder.parent) and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.1)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    shutil.rmtree(folder, ignore_errors=True)
