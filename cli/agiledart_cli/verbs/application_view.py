"""How applications look: the answers of `submit`, `list` and `status` as tables and sentences."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from agiledart_cli.output import BAD, GOOD, WATCH, count, duration, milliseconds, paint, print_table

COLOURS = {"running": GOOD, "finished": GOOD, "deploying": WATCH, "stopped": WATCH, "failed": BAD}


def where(nodes: Sequence[str]) -> str:
    """`pi1 ×2 pi3`: nodes in order, each once."""
    return " ".join(name if number == 1 else f"{name} ×{number}" for name, number in Counter(nodes).items())


def print_plan(body: Mapping[str, Any], *, dry_run: bool) -> None:
    """What runs where, or what would."""
    placement: Mapping[str, Sequence[str]] = body["placement"]
    used = list(dict.fromkeys(node for nodes in placement.values() for node in nodes))
    if dry_run:
        click.echo(
            f"{body['name']} would run {len(placement)} stages on {', '.join(used)} ({body.get('strategy', '')}):"
        )
    else:
        click.echo(
            f"{body['name']} v{body['version']}: {len(placement)} stages on {', '.join(used)};"
            f" running after {duration(body['seconds_to_running'])}."
        )
    print_table(["stage", "×", "where"], [[name, len(nodes), where(nodes)] for name, nodes in placement.items()], ["×"])
    for path in body.get("paths", []):
        click.echo(f" way {' → '.join(path)} ({_hops(path)})")
    if not dry_run:
        click.echo(f" Watch: agiledart top   Stop: agiledart stop {body['name']}")


def _hops(path: Sequence[str]) -> str:
    hops = len(path) - 1
    return f"{hops} hop{'' if hops == 1 else 's'}"


def ago(at_ms: float | None) -> str:
    """How long ago a wall time in milliseconds was; nothing when it is not known."""
    return duration(max(0.0, time.time() - at_ms / 1000)) if at_ms else ""


def print_applications(body: Mapping[str, Any]) -> None:
    """The table of `agiledart list`."""
    rows = []
    for one in body["applications"]:
        state = paint(one["state"], COLOURS.get(one["state"]))
        note = (one.get("reason") or "").partition("\n")[0]
        state += "?" if one.get("by_hearsay") else ""
        rows.append(
            [one["name"], f"v{one['version']}", state, ago(one.get("changed_ms")), one.get("submitted_to", ""), note]
        )
    if not rows:
        click.echo("No applications yet. Submit one: agiledart submit FILE:NAME")
    else:
        print_table(["application", "", "state", "for", "submitted to", ""], rows)
    if body.get("unreadable"):
        click.echo(paint(f" {body['unreadable']} more cannot be read just now", WATCH))


def print_status(body: Mapping[str, Any]) -> None:
    """An application: its state in one sentence, its stages as a table, its records as a sum."""
    state, since = body["state"], ago(body.get("changed_ms"))
    title = f"{body['name']} v{body['version']}"
    by = f"   submitted to {body['submitted_to']}" if body.get("submitted_to") else ""
    if body.get("submitter"):
        by += f" by {body['submitter']}"
    if state == "failed":
        when = f" {since} ago" if since else ""
        click.echo(f"{title}   {paint(f'FAILED{when}', BAD)}: {body.get('reason') or 'no reason was given'}")
        if body.get("by_hearsay"):
            click.echo(" no host of it has said so: if it lives, its coordinator takes this back once it is reached")
    else:
        word = {"running": "running for", "deploying": "being deployed for"}.get(state, f"{state},")
        ends = "" if state in ("running", "deploying") else " ago"
        told = f"{word} {since}{ends}" if since else state
        click.echo(f"{title}   {paint(told, COLOURS.get(state))}{by}")
        if body.get("reason"):
            click.echo(f" {body['reason']}")
    if owner := body.get("owner"):
        others = "".join(f", {key[:16]}…" for key in body.get("shared", ()))
        click.echo(f" owner {owner[:16]}…" + (f"   shared with{others[1:]}" if others else ""))
    _print_stages(body)
    for path in body.get("paths", []):
        click.echo(f" way {' → '.join(path)} ({_hops(path)})")
    print_sums(_told(body))
    for sink, log in (body.get("logs") or {}).items():
        nodes = ", ".join((body.get("placement") or {}).get(sink, []))
        click.echo(f" log {log} on {nodes or '?'}: rows of {sink}, for Spark and other readers")
    if alone := body.get("alone"):
        click.echo(paint(f" this node is {alone}", WATCH))
    for rival in body.get("rivals") or ():
        why = f": {rival['reason']}" if rival.get("reason") else ""
        click.echo(
            paint(
                f" another run of it (v{rival['version']}, submitted to {rival['submitted_to']}), {rival['state']}{why}",
                WATCH,
            )
        )
    if silent := body.get("silent_nodes"):
        click.echo(paint(f" no figures from {', '.join(silent)}", WATCH))


def _told(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The sums of an application; nothing when no instance has told any (it ended too early, or its nodes are gone)."""
    summary: Mapping[str, Any] = body.get("summary") or {}
    return summary if summary.get("instances_reporting", 1) else {}


def _print_stages(body: Mapping[str, Any]) -> None:
    steps: Mapping[str, Mapping[str, int]] = _told(body).get("steps", {})
    queues = {
        stage["name"]: [one["queued_rows"] for one in stage["instances"] if "queued_rows" in one]
        for stage in body.get("stages", [])
    }
    rows = []
    for stage, nodes in (body.get("placement") or {}).items():
        names = stage.split("+")
        first, last = steps.get(names[0], {}), steps.get(names[-1], {})
        dropped = sum(steps.get(name, {}).get("dropped", 0) for name in names) if steps else None
        queued = queues.get(stage)
        rows.append(
            [
                *(stage, len(nodes), where(nodes)),
                *(count(first.get("rows_in")), count(last.get("rows_out"))),
                *(count(dropped), count(sum(queued)) if queued else ""),
            ]
        )
    if rows:
        heads = ["stage", "×", "where", "in", "out", "dropped", "queue"]
        print_table(heads, rows, ["×", "in", "out", "dropped", "queue"])


ERRORS = (("skipped", "skipped"), ("dead_letters", "dead letters"), ("failed", "results not made"))
"""What became of records for which user code raised, as a step counts it and in words."""


def _overload(summary: Mapping[str, Any]) -> str:
    """What sources kept or let go because the mesh was slower than rows came; empty when nothing."""
    shed: Mapping[str, int] = summary.get("shed", {})
    parts = []
    if shed:
        told = ", ".join(f"{number:,} {reason.replace('_', ' ')}" for reason, number in shed.items())
        parts.append(f"shed {count(sum(shed.values()))} ({told})")
    if summary.get("spooled_ever"):
        parts.append(f"spooled {count(summary['spooled_ever'])} ({count(summary.get('spooled', 0))} still on disk)")
    return "".join(f"   {part}" for part in parts)


ENOUGH_TO_JUDGE = 100
"""Malformed records from which on it is said that most are."""


def mostly_malformed(summary: Mapping[str, Any]) -> bool:
    """Whether more than half of what an application read was malformed, and enough of it to say so."""
    malformed: int = sum(summary.get("malformed", {}).values())
    return malformed >= ENOUGH_TO_JUDGE and 2 * malformed > int(summary.get("records_in", 0))


def print_sums(summary: Mapping[str, Any]) -> None:
    """What was read, left out and written."""
    if not summary:
        return
    malformed: Mapping[str, int] = summary.get("malformed", {})
    reasons = f" ({', '.join(f'{number:,} {reason}' for reason, number in malformed.items())})" if malformed else ""
    click.echo(
        f" read {count(summary.get('records_in', 0))}   late {count(summary.get('late', 0))}"
        f"   malformed {count(sum(malformed.values()))}{reasons}{_overload(summary)}"
    )
    if mostly_malformed(summary):
        click.echo(paint(" most of what is read is malformed (see: agiledart logs)", WATCH))
    for step, counts in summary.get("steps", {}).items():
        errors = [f"{count(counts[kind])} {word}" for kind, word in ERRORS if counts.get(kind)]
        if counts.get("late"):
            click.echo(f" {step}: {count(counts['late'])} rows came too late")
        if errors:
            click.echo(paint(f" {step}: its code raised: {', '.join(errors)} (see: agiledart logs)", WATCH))
    for place in summary.get("imbalances", ()):
        click.echo(paint(f" the counts do not add up: {place}", BAD))
    for sink, rows in summary.get("results", {}).items():
        figures = summary.get("latency_ms", {}).get(sink)
        told = ""
        if figures:
            kind = "result after" if summary.get("paced") else "backlog"
            told = f"   {kind} {milliseconds(figures['p50'])}, p99 {milliseconds(figures['p99'])}"
        click.echo(f" {sink} {count(rows)} rows{told}")
