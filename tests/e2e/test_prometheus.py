"""A real Prometheus scrapes five agents: figures agree with what `status` says, the dashboard's and the alerts'
expressions have answers, and an agent that is killed raises its alert.
"""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_agent.metrics.agent_metrics import METRICS
from agiledart_node.wire.commands import Status
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for
from tests.unit.agent.promtool import lint
from tests.unit.deploy.expressions import RULES, dashboard_expressions, resolved, rule_expressions

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SCRAPES = "1s"


def fetch(url: str, accept: str = "") -> tuple[int, str]:
    """Status and body."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def page(agent: AgentProcess, path: str) -> tuple[int, str]:
    """A page of an agent's metrics port."""
    found = agent.description
    assert found is not None
    return fetch(f"http://{found['metrics']}{path}")


class Prometheus:
    """A server with a configuration of its own: the shipped rules, but everything happens within seconds."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        rules = re.sub(r"for: \d+m", "for: 1s", RULES.read_text())
        (folder / "rules.yml").write_text(rules)
        (folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: {SCRAPES}, scrape_timeout: {SCRAPES}, evaluation_interval: {SCRAPES}}}\n"
            "rule_files: [rules.yml]\n"
            f"scrape_configs: [{{job_name: agiledart, static_configs: [{{targets: {json.dumps(targets)}}}]}}]\n"
        )
        lint("check", "config", str(folder / "prometheus.yml"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        program = shutil.which("prometheus")
        assert program is not None
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address={self.address}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API; None while it does not answer."""
        with contextlib.suppress(OSError):
            status, body = fetch(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}")
            if status == 200:
                return json.loads(body)["data"]
            assert status == 503, body  # it starts
        return None

    def values(self, expression: str) -> list[float]:
        """Present value of an expression."""
        found = self.ask("query", query=expression)
        return [float(one["value"][1]) for one in found["result"]] if found else []

    def firing(self) -> dict[str, str]:
        """Alert → instance of what fires."""
        found = self.ask("alerts")
        return {
            one["labels"]["alertname"]: one["labels"].get("instance", "")
            for one in (found or {"alerts": []})["alerts"]
            if one["state"] == "firing"
        }

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def five() -> Iterator[Mesh]:
    with mesh(5) as made:
        yield made


@pytest.fixture
def prometheus(five: Mesh) -> Iterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    folder = Path(tempfile.mkdtemp(prefix="adt-prom-"))
    server = Prometheus(folder, [address_of(agent) for agent in five.agents])
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def address_of(agent: AgentProcess) -> str:
    """Where an agent is scraped."""
    found = agent.description
    assert found is not None
    return str(found["metrics"])


def submit(made: Mesh, topology: str, trips: str, report: str) -> None:
    ran = cli(
        "submit", f"agiledart_examples.debs2015:{topology}", "--agent", str(made.agents[0].state_dir),
        "--set", f"trips=taxi:?{trips}@a2", "--set", f"report={report}@a3",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_an_agents_metrics_pass_promtool() -> None:
    with mesh(1) as made:
        agent = made.agents[0]
        assert page(agent, "/livez") == (200, "alive\n")
        assert page(agent, "/readyz") == (200, "ready\n")
        status, text = page(agent, "/metrics")
        assert status == 200
        lint("check", "metrics", text=text)
        for one in METRICS:
            assert f"# TYPE {one.name} " in text
        assert re.search(r"^agiledart_agent_ready 1\.0$", text, re.MULTILINE)
        assert agent.rss_mb() < 60, "an idle agent stays small"
        assert agent.end() == 0


def test_a_metrics_port_in_use_ends_the_second_agent_with_advice(tmp_path: Path) -> None:
    with mesh(1) as made:
        taken = address_of(made.agents[0])
        ran = cli("agent", "--state-dir", str(made.folder / "x"), "--listen", "127.0.0.1:0", "--metrics", taken)
        assert ran.returncode == 1
        assert "--metrics 127.0.0.1:0" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_systemd_is_notified_when_the_agent_is_ready_and_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="adt-notify-"))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(folder / "notify"))
            manager.settimeout(20)
            monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
            monkeypatch.setenv("WATCHDOG_USEC", "200000")
            agent = AgentProcess("a1", folder)
            agent.start()
            told = [manager.recv(4096).decode()]
            while not told[-1].startswith("READY=1"):
                told.append(manager.recv(4096).decode())
            assert set(told[:-1]) <= {"WATCHDOG=1"}
            assert agent.ready()["metrics"]
            assert manager.recv(4096) == b"WATCHDOG=1"
            assert agent.process is not None
            agent.process.terminate()
            while not told[-1].startswith("STOPPING=1"):
                told.append(manager.recv(4096).decode())
            assert agent.process.wait(15) == 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def every_panel_shows_something(prometheus: Prometheus) -> None:
    """Each expression of dashboard and alerts is one for Prometheus, and those of the dashboard have answers."""
    silent = []
    for where, expression in (*dashboard_expressions(), *rule_expressions()):
        assert prometheus.ask("query", query=resolved(expression)) is not None, expression
        if not prometheus.values(resolved(expression)):
            silent.append(where)
    alerts = {name for name, _ in rule_expressions()}
    # On a quiet ring nothing is dropped, turned away or read from logs, and generated trips are well-formed.
    excused = {
        "Space on disk",
        "Answers to readers",
        "Messages thrown away",
        "Turned away",
        "Malformed records by reason",
    }
    assert set(silent) - alerts <= excused, "a panel shows nothing"


@pytest.mark.slow
def test_five_agents_under_a_real_prometheus(five: Mesh, prometheus: Prometheus, tmp_path: Path) -> None:
    wait_for(lambda: prometheus.values('sum(up{job="agiledart"})') == [5.0], 30, "all five are scraped")
    wait_for(lambda: prometheus.values("min(agiledart_overlay_known_peers)") == [4.0], 20, "each knows the others")

    submit(five, "profitable_areas", "count=3000", "log:areas")
    first = five.agents[0]
    wait_for(lambda: first.ask(Status("profitable-areas"))["state"] == "finished", 60, "the bounded job ends")
    summary = first.ask(Status("profitable-areas"))["summary"]
    results = float(summary["results"]["report"])
    assert results > 0
    sums = {
        "records_total": summary["records_in"] - summary["late"] - sum(summary["malformed"].values()),
        'rows_total{operator="report", direction="in"}': results,
        "end_to_end_latency_seconds_count": results,
    }
    for name, wanted in sums.items():
        metric, _, labels = name.partition("{")
        selector = f'{{app="profitable-areas"{", " + labels[:-1] if labels else ""}}}'
        query = f"sum(agiledart_application_{metric}{selector})"
        wait_for(lambda q=query, w=wanted: prometheus.values(q) == [float(w)], 20, f"{query} = {wanted}")

    disk = 'sum(agiledart_sink_log_disk_bytes{app="profitable-areas"})'
    wait_for(lambda: (prometheus.values(disk) or [0.0])[0] > 1_000, 20, "the log takes space")

    submit(five, "frequent_routes", "speed=600", f"csv:{tmp_path}/routes.csv")
    busy = 'sum(rate(agiledart_application_records_total{app="frequent-routes"}[5s]))'
    wait_for(lambda: (prometheus.values(busy) or [0.0])[0] > 10, 30, "records flow")
    executors = 'sum(agiledart_executor_processes{app="frequent-routes"})'
    wait_for(lambda: (prometheus.values(executors) or [0.0])[0] >= 2, 20, "executors")
    every_panel_shows_something(prometheus)
    # Recorded trips lie in the past, and this machine may be busy with other tests.
    harmless = {"AgileDartWatermarkStalled", "AgileDartBackpressure", "AgileDartAgentOverloaded"}
    wait_for(lambda: not set(prometheus.firing()) - harmless, 10, "nothing is wrong with this ring")

    ids = [str(agent.description["node_id"]) for agent in five.agents if agent.description]
    for agent in five.agents:
        text = page(agent, "/metrics")[1]
        lint("check", "metrics", text=text)
        assert not any(node in text for node in ids), "the id of a node is no label"
        assert len(text.splitlines()) < 1_000

    victim = five.agent("a5")
    lost = address_of(victim)
    victim.kill()
    wait_for(lambda: prometheus.firing().get("AgileDartAgentDown") == lost, 30, "the alert fires")
    wait_for(lambda: prometheus.values("max(agiledart_overlay_known_peers)") == [3.0], 30, "the ring has noticed")
    assert prometheus.values("sum(agiledart_overlay_failed_peers_total)")[0] >= 1
