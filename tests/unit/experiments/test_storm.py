"""Storm beside AgileDART: missing programs are named, its topologies compile, and its files are in their places."""

import shutil
import subprocess
from pathlib import Path

import pytest

from agiledart_experiments.process_figures import cpu_seconds, pss_mb, with_descendants
from agiledart_experiments.storm.storm_cluster import StormCluster
from agiledart_experiments.storm.storm_installation import SOURCE, VERSION, StormInstallation, storm_installation
from agiledart_kernel.errors import ConfigurationError

JARS = Path.home() / ".cache" / "agiledart" / f"storm-{VERSION}" / "jars"


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match=r"--beside storm needs java: install a JDK .* Maven"):
        storm_installation(lambda _: None)


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("javac") is None or not JARS.is_dir(), reason="no javac, or Storm was never downloaded here"
)
def test_the_topologies_compile(tmp_path: Path) -> None:
    command = ["javac", "-nowarn", "-d", str(tmp_path), "-cp", f"{JARS}/*", str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "StormApplications.class").exists()


def test_a_cluster_has_its_settings_and_no_process_before_its_start(tmp_path: Path) -> None:
    cluster = StormCluster(tmp_path, StormInstallation(tmp_path / "jars", tmp_path / "topologies.jar", "java"))
    text = (tmp_path / "conf" / "storm.yaml").read_text()
    assert '"storm.zookeeper.servers": ["127.0.0.1"]' in text
    assert "clientPortAddress=127.0.0.1" in (tmp_path / "zoo.cfg").read_text()
    assert cluster.roots == []
    cluster.stop()


def test_figures_of_processes_contain_those_of_their_children() -> None:
    script = "(while :; do :; done) & echo started; wait"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        processes = with_descendants([shell.pid])
        assert len(processes) == 2
        assert processes[0] == shell.pid
        while cpu_seconds(processes) < 0.05:
            pass
        assert pss_mb(processes) > 0.1
        subprocess.run(["kill", *map(str, processes)], check=True)
    assert with_descendants([shell.pid]) == []
    assert cpu_seconds([shell.pid]) == pss_mb([shell.pid]) == 0
