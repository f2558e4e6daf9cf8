"""Emulated hosts whose uplinks the kernel limits."""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from agiledart_experiments import shaped_hosts as module
from agiledart_experiments.shaped_hosts import check_shaped_hosts, shaped_hosts
from agiledart_kernel.errors import ConfigurationError

SIZE, RATE = 120_000, 200_000

SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as link:
    link.sendall(bytes(int(sys.argv[3])))
"""


def test_the_uplink_of_a_host_carries_its_rate_and_its_downlink_more() -> None:
    if os.geteuid() != 0 or shutil.which("tc") is None:
        pytest.skip("NOT RUN: shaped links need root and tc (Debian: iproute2)")
    try:
        with shaped_hosts(2) as hosts:
            hosts.limit(1, RATE)
            thin, wide = (_seconds(hosts.enter(number)) for number in (1, 2))
    except ConfigurationError as error:
        pytest.skip(f"NOT RUN: {error}")
    assert thin >= (SIZE - module.BURST_BYTES) / RATE
    assert wide < thin


def _seconds(enter: tuple[str, ...]) -> float:
    """Return the seconds from the connection of a sender on a host until all its bytes are here."""
    with socket.create_server(("", 0)) as server:
        server.settimeout(30)
        address = subprocess.run(
            [*enter, "ip", "-4", "-o", "addr", "show", "eth0"], capture_output=True, text=True, check=True
        )
        here = address.stdout.split()[3].split("/")[0].rpartition(".")[0] + ".254"
        port = server.getsockname()[1]
        with subprocess.Popen([*enter, sys.executable, "-c", SEND, here, str(port), str(SIZE)]) as sender:
            link, _ = server.accept()
            began, left = time.monotonic(), SIZE
            with link:
                while left > 0 and (data := link.recv(1 << 16)):
                    left -= len(data)
            took = time.monotonic() - began
        assert (left, sender.returncode) == (0, 0)
        return took


@pytest.mark.parametrize(
    ("user", "missing", "complaint"), [(1, "", "need root"), (0, "tc", "need tc: install iproute2")]
)
def test_a_missing_right_or_program_is_reported(
    monkeypatch: pytest.MonkeyPatch, user: int, missing: str, complaint: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == missing else name)
    with pytest.raises(ConfigurationError, match=complaint):
        check_shaped_hosts()
