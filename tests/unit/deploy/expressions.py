"""The PromQL of the dashboard and of the alerts, and what it speaks of."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "agiledart.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "agiledart.json"

_SELECTOR = re.compile(r"\b((?:agiledart|process)_\w+|up)\b(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def dashboard() -> dict[str, Any]:
    """The dashboard's document."""
    return dict(json.loads(DASHBOARD.read_text()))


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    """(panel, expression) of every query."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def rule_expressions() -> Iterator[tuple[str, str]]:
    """(alert, expression) of every rule; the files fold long ones with `>-`."""
    for block in RULES.read_text().split("- alert: ")[1:]:
        name = block.partition("\n")[0].strip()
        text = block.partition("expr:")[2]
        lines = text.splitlines()
        if lines[0].strip() == ">-":
            body = []
            for line in lines[1:]:
                if not line.startswith(" " * 10):
                    break
                body.append(line.strip())
            yield name, " ".join(body)
        else:
            yield name, lines[0].strip()


def resolved(expression: str) -> str:
    """An expression as Grafana sends it, for everything there is."""
    for variable, value in (("$job", "agiledart"), ("$instance", ".*"), ("$app", ".*"), ("$__rate_interval", "10s")):
        expression = expression.replace(variable, value)
    return expression


def metrics_in(expression: str) -> list[tuple[str, list[str]]]:
    """(metric, labels that are asked for in its selector)."""
    return [(name, _LABEL.findall(labels or "")) for name, labels in _SELECTOR.findall(expression)]


def grouped_in(expression: str) -> list[str]:
    """Labels by which something is grouped or matched."""
    return [label.strip() for labels in _GROUPED.findall(expression) for label in labels.split(",")]
