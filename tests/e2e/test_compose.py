"""The services of docker-compose.yml without containers: each in a network of its own, at the addresses and ports of the file."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.hosts import Hosts, address, lacking
from tests.e2e.mesh import wait_for

yaml = pytest.importorskip("yaml")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.soak,
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]

ROOT = Path(__file__).parents[2]
STATE = "/var/lib/agiledart"
READY = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=2).read().decode())"


class Services:
    """Runs services as their image would.

    Args:
        folder: takes the place of the volumes.
    """

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        self._folder, self._hosts = folder, hosts
        self.about: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        image = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
        self._image = dict(re.findall(r"(AGILEDART_\w+)=(\S+)", image))
        (folder / "hosts").write_text(
            "".join(f"{address(number)} a{number + 1}\n" for number in range(3)) + "127.0.0.1 localhost\n"
        )
        (folder / "agiledart").write_text(f'#!/bin/sh\nexec {sys.executable} -m agiledart_cli.main "$@"\n')
        (folder / "agiledart").chmod(0o755)
        self.running: list[subprocess.Popen[str]] = []

    def volume(self, name: str) -> Path:
        """The folder of a volume."""
        path = self._folder / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def start(self, service: str, host: int = 0) -> "subprocess.Popen[str]":
        """Start a service in the network of a host."""
        about = self.about[service]
        places = dict(volume.split(":")[1::-1] for volume in about["volumes"])
        words = [*about.get("entrypoint", ["agiledart"]), *about["command"]]
        for place, name in places.items():
            words = [word.replace(place, str(self.volume(name))) for word in words]
        environment = {
            "PATH": f"{self._folder}:{os.environ['PATH']}", "HOME": str(self._folder), "AGILEDART_AGENT__ALLOW_ROOT": "true",
            **self._image, **about["environment"], "STATE_DIRECTORY": str(self.volume(places[STATE])),
        }  # fmt: skip
        process = subprocess.Popen(
            self._inside(host, words), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.running.append(process)
        return process

    def run(self, service: str, host: int = 0) -> str:
        """Run a service that ends; returns its output."""
        process = self.start(service, host)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        return output

    def get(self, url: str, host: int = 2) -> str:
        """Answer to a request from the network of a host; empty: none."""
        words = self._inside(host, [sys.executable, "-c", READY, url])
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=30).stdout

    def _inside(self, host: int, words: list[str]) -> list[str]:
        script = f"mount --bind {self._folder / 'hosts'} /etc/hosts && exec ip netns exec {self._hosts.names[host]}"
        return ["unshare", "--mount", "sh", "-c", f"{script} {shlex.join(words)}"]

    def close(self) -> None:
        """End all of them as docker would."""
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.communicate(timeout=60)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    hosts = Hosts(3)
    try:
        hosts.make()
        made = Services(tmp_path, hosts)
        try:
            yield made
        finally:
            made.close()
    finally:
        hosts.remove()


def test_agents_token_and_application_of_the_file_run(services: Services) -> None:
    def ready(agent: str) -> None:
        wait_for(lambda: services.get(f"http://{agent}:9465/readyz").startswith("ready"), 90, f"{agent} is ready")

    assert {name for name, about in services.about.items() if "hostname" in about or "command" in about} == {
        "a1", "a2", "a3", "token", "trips", "prometheus",
    }  # fmt: skip
    services.start("a1", 0)
    ready("a1")
    services.run("token", 0)
    assert sorted(path.name for path in services.volume("tokens").iterdir()) == ["join", "reader"]
    services.start("a2", 1)
    services.start("a3", 2)
    ready("a2")
    ready("a3")
    assert "clean-trips" in services.run("trips", 0)
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (targets,) = scraped["scrape_configs"][0]["static_configs"]
    for target in targets["targets"]:  # as Prometheus requests them, by the names of the file
        assert "agiledart_agent_ready 1.0" in services.get(f"http://{target}/metrics")
    services.close()
    assert [process.returncode for process in services.running] == [0] * 5
