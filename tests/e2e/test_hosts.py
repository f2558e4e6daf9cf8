"""Emulated hosts of several tests at once, and after a run that was killed."""

import contextlib
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.hosts import Hosts, brought_up, ip

NO_PROCESS = (1 << 22) + 1
"""Linux gives no process a higher number than 2²²."""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    yield from brought_up(1)


def namespaces() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listed.splitlines()]


def test_hosts_of_two_tests_are_there_at_once(hosts: Hosts) -> None:
    with contextlib.contextmanager(brought_up)(1) as others:
        assert {*hosts.names, *others.names} <= {*namespaces()}
        assert not {*hosts.names} & {*others.names}
    assert {*hosts.names} <= {*namespaces()}


def test_namespaces_of_a_killed_run_are_deleted(hosts: Hosts) -> None:
    left = f"ad{NO_PROCESS}-ab12h0"
    ip("netns", "add", left)
    Hosts(1)
    assert left not in namespaces()
    assert {*hosts.names} <= {*namespaces()}
