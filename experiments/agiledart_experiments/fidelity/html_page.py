"""The fidelity of results as one HTML page, with its charts inside."""

from html import escape

from agiledart_experiments.fidelity.fidelity_report import FidelityReport, PanelReport
from agiledart_experiments.fidelity.line_chart import line_chart
from agiledart_experiments.fidelity.panel import LOG

STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}
.computed{color:#2e7d32}.partly{color:#c77700}.missing{color:#b3261e}
section{border-top:1px solid #ddd;padding:.6rem 0}svg{max-width:30rem;width:100%;font-size:10px}
.legend span{margin-right:.8rem}code{font-size:13px}.why{color:#555}
"""


def html_page(report: FidelityReport) -> str:
    """Return the page."""
    counts = report.counts()
    head = (
        f"{counts['computed']} of {counts['panels']} panels of AgileDART are computed, {counts['partly']} partly, "
        f"{counts['missing']} are missing. Of the computed ones, {counts['computed_on_other_inputs']} are on inputs that are not"
        " the paper's; each says how."
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>Fidelity to the papers</title>'
        f"<style>{STYLE}</style></head><body><h1>Fidelity to the papers</h1><p>{head}</p>"
        "<p>Solid lines are computed here. Dashed lines are values to compare with: printed in the paper, of a formula "
        "(model), of the simulator, or of an independent run.</p>"
        f"{_table(report)}{''.join(_section(entry) for entry in report.panels)}</body></html>\n"
    )


def _table(report: FidelityReport) -> str:
    rows = "".join(
        f'<tr><td>{escape(e.panel.paper)}</td><td><a href="#{_anchor(e)}">{escape(e.panel.name)}</a></td>'
        f'<td>{escape(e.panel.shows)}</td><td class="{e.state}">{e.state}</td><td>{escape(e.panel.evidence)}</td></tr>'
        for e in report.panels
    )
    return f"<table><tr><th>paper</th><th>panel</th><th>shows</th><th>state</th><th>on</th></tr>{rows}</table>"


def _section(entry: PanelReport) -> str:
    panel, run = entry.panel, entry.run or {}
    lines = [
        f'<section id="{_anchor(entry)}"><h2>{escape(panel.paper)}, {escape(panel.name)}: {escape(panel.shows)}</h2>'
    ]
    lines.append(f'<p><b class="{entry.state}">{entry.state}</b> <span class="why">{escape(entry.why)}</span></p>')
    if entry.curves:
        lines.append(line_chart(entry.curves, panel.x, is_log=panel.axis == LOG))
        origins = sorted({curve.origin for curve in entry.curves if curve.origin != "here"})
        beside = ", ".join(origins) or "nothing to compare with is printed"
        lines.append(f"<p>beside it: {escape(beside)}; computed on: {escape(panel.evidence)}</p>")
    if run:
        lines.append(f"<p><code>{escape(str(run.get('command') or 'command not stored'))}</code>, {_goals(run)}</p>")
    return "".join((*lines, "</section>"))


def _goals(run: dict[str, object]) -> str:
    missed = run["goals_missed"]
    assert isinstance(missed, list)
    text = f"goals: {run['goals_met']} met"
    return text + (f", missed: {escape('; '.join(missed))}" if missed else "")


def _anchor(entry: PanelReport) -> str:
    return "".join(
        c if c.isalnum() else "-" for c in f"{entry.panel.paper}-{entry.panel.name}-{entry.panel.experiment}"
    )
