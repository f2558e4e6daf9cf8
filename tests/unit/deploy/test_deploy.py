"""Files of `deploy/`: valid for the programs that read them, and about metrics, flags and folders that exist."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agiledart_agent.metrics.agent_metrics import METRICS
from agiledart_agent.settings import DEFAULT_METRICS, AgentSettings
from tests.unit.agent.promtool import lint
from tests.unit.deploy.expressions import (
    DEPLOY,
    ROOT,
    RULES,
    dashboard,
    dashboard_expressions,
    grouped_in,
    metrics_in,
    rule_expressions,
)

ALERTS = Path(__file__).parent / "alerts_test.yml"
COMPOSE = ROOT / "docker-compose.yml"
UNIT = DEPLOY / "systemd" / "agiledart.service"
EVERYWHERE = {"job", "instance", "le"}
SUFFIXES = ("_bucket", "_sum", "_count")


def tool(name: str, package: str) -> str:
    """A program's path; skips the calling test with the name of its Debian package."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {package})")
    return found


def run(*command: str, cwd: Path = ROOT) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=cwd)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


# ---- Prometheus


def test_the_configuration_is_valid() -> None:
    lint("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))


def test_the_rules_are_valid() -> None:
    said = lint("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert f"{len(list(rule_expressions()))} rules found" in said


def test_each_alert_fires_on_its_condition(tmp_path: Path) -> None:
    tests = tmp_path / "alerts_test.yml"
    given = ALERTS.read_text()
    tests.write_text(given.replace("RULES", str(RULES)))
    lint("test", "rules", str(tests))


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    given = ALERTS.read_text()
    for name, _ in rule_expressions():
        assert re.search(rf"alertname: {name}\n\s+exp_alerts:", given), f"nothing shows that {name} fires"


@pytest.mark.parametrize(
    ("where", "expression"), [*dashboard_expressions(), *rule_expressions()], ids=lambda value: str(value)[:40]
)
def test_an_expression_uses_existing_metrics_only(where: str, expression: str) -> None:
    declared = {one.name: set(one.labels) for one in METRICS}
    for one in METRICS:
        if one.kind == "histogram":
            declared |= {one.name + suffix: set(one.labels) for suffix in SUFFIXES}
    found = metrics_in(expression)
    assert found, where
    allowed = set(EVERYWHERE)
    for name, labels in found:
        if name.startswith("agiledart_"):
            assert name in declared, where
            assert set(labels) <= declared[name] | EVERYWHERE, (where, name)
            allowed |= declared[name]
    assert set(grouped_in(expression)) <= allowed, where


def test_a_counter_is_never_displayed_raw() -> None:
    counters = {one.name for one in METRICS if one.kind == "counter"}
    for where, expression in (*dashboard_expressions(), *rule_expressions()):
        for name, _ in metrics_in(expression):
            if name in counters or name == "process_cpu_seconds_total":
                assert re.search(rf"(rate|increase)\({name}", expression), where


# ---- Grafana


def test_the_dashboard_is_valid() -> None:
    document = dashboard()
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [one["name"] for one in document["templating"]["list"]] == ["datasource", "job", "instance", "app"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels if panel["type"] != "row")
    shown = {name.removesuffix("_bucket") for _, one in dashboard_expressions() for name, _ in metrics_in(one)}
    assert len(shown & {one.name for one in METRICS}) >= 20


# ---- containers


def test_the_compose_file_is_valid() -> None:
    shown = run(tool("docker-compose", "docker-compose"), "-f", str(COMPOSE), "--profile", "spark", "config")
    for service in ("a1", "a2", "a3", "token", "prometheus", "grafana", "trips", "spark"):
        assert f"\n  {service}:\n" in shown


def test_files_mounted_by_the_compose_file_exist() -> None:
    mounted = re.findall(r"- (\./[\w/.-]+):", COMPOSE.read_text())
    assert len(mounted) == 3
    assert all((ROOT / path).is_dir() for path in mounted)


def test_prometheus_scrapes_the_agents_of_the_compose_file() -> None:
    agents = re.findall(r"hostname: (\w+)", COMPOSE.read_text())
    port = DEFAULT_METRICS.rpartition(":")[2]
    targets = re.findall(r'"(\w+:\d+)"', (DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert targets == [f"{agent}:{port}" for agent in agents]


def test_the_image_holds_everything_the_wheel_is_made_of() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {package.split("/")[0] for package in document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    copied = re.findall(r"^COPY (\w\S+) ", (DEPLOY / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    assert needed | {"pyproject.toml", document["project"]["readme"], *copied} <= kept
    assert all((ROOT / path).exists() for path in kept)


def commands() -> list[list[str]]:
    """Each `agiledart agent …` of the unit and of the compose file, as words after `agiledart`."""
    unit = re.findall(r"^ExecStart=\S*agiledart (.+)$", UNIT.read_text(), re.MULTILINE)
    compose = re.findall(r"^    command: \[(agent.*)\]$", COMPOSE.read_text(), re.MULTILINE)
    return [shlex.split(line) for line in unit] + [
        [word.strip().strip('"') for word in line.split(",")] for line in compose
    ]


def test_each_command_line_is_accepted_by_the_agent(tmp_path: Path) -> None:
    assert len(commands()) == 4
    for words in commands():
        # The file of the unit lies elsewhere here; tokens are not read by --check.
        here = [word.replace("/etc/agiledart", str(DEPLOY / "systemd")) for word in words]
        environment = {"PATH": "/usr/bin:/bin", "STATE_DIRECTORY": str(tmp_path), "HOME": str(tmp_path)}
        ran = subprocess.run(
            [sys.executable, "-m", "agiledart_cli.main", *here, "--check"],
            capture_output=True, text=True, check=False, timeout=60, env=environment,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert f"state_dir = {tmp_path}" in ran.stdout


def test_the_variables_of_the_image_are_settings() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    environment = dict(re.findall(r"(AGILEDART_\w+)=(\S+)", text))
    settings = AgentSettings.load({}, environment)
    assert settings.metrics == "0.0.0.0:9465"
    assert settings.listen == "0.0.0.0:9464"


# ---- systemd


def test_the_unit_is_valid(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze", "systemd")
    unit = tmp_path / "agiledart.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE))
    dropped = tmp_path / "agiledart.service.d"
    dropped.mkdir()
    shutil.copy(DEPLOY / "systemd" / "join-token.conf", dropped)
    ran = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert "agiledart.service:" not in ran.stderr, ran.stderr


def test_the_unit_gives_the_agent_time_to_drain() -> None:
    from agiledart_agent.daemon import DRAIN_SECONDS

    text = UNIT.read_text()
    stop = re.search(r"^TimeoutStopSec=(\d+)s$", text, re.MULTILINE)
    assert stop is not None
    assert int(stop.group(1)) > DRAIN_SECONDS + 3
    for line in ("Type=notify", "DynamicUser=yes", "StateDirectory=agiledart", "KillMode=mixed"):
        assert f"\n{line}\n" in text


def test_the_settings_file_is_valid() -> None:
    settings = AgentSettings.load({}, {}, DEPLOY / "systemd" / "agent.toml")
    assert settings.metrics == DEFAULT_METRICS
