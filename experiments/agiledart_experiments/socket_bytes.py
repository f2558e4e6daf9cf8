"""Bytes that processes sent over TCP, from `ss` (Debian package iproute2)."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping

from agiledart_kernel.errors import ConfigurationError

_PROCESS = re.compile(r"pid=(\d+)")
_SENT = re.compile(r"bytes_sent:(\d+)")
_WORDS = ("ss", "--tcp", "--info", "--numeric", "--processes", "--no-header")

SocketBytes = Mapping[tuple[str, str], tuple[int, int]]
"""Ends of an open connection → a process that holds it, and the bytes that it has sent."""


def sample() -> SocketBytes:
    """Return the connections that are open now. Raises ConfigurationError without `ss`."""
    if shutil.which("ss") is None:
        raise ConfigurationError("traffic is read from ss, which is missing here: install iproute2")
    text = subprocess.run(_WORDS, capture_output=True, text=True, check=True).stdout
    return parsed(text.splitlines())


def parsed(lines: Iterable[str]) -> SocketBytes:
    """Return the connections in the output of `ss`: a line for each, and a line with its counters."""
    connections: dict[tuple[str, str], tuple[int, int]] = {}
    ends, process = ("", ""), 0
    for line in lines:
        if not line[:1].isspace():
            words, match = line.split(), _PROCESS.search(line)
            ends, process = (words[3], words[4]) if len(words) > 4 else ("", ""), int(match[1]) if match else 0
        elif ends[0] and process and (sent := _SENT.search(line)):
            connections[ends] = process, int(sent[1])
    return connections


def sent_between(before: SocketBytes, after: SocketBytes, processes: Iterable[int]) -> int:
    """Return the bytes that these processes sent between two samples over connections that are open in the second one."""
    mine = set(processes)
    return sum(sent - before.get(ends, (process, 0))[1] for ends, (process, sent) in after.items() if process in mine)
