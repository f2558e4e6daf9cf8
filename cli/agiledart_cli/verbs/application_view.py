"""How applications look: the answers of `submit`, `list` and `status` as tables and sentences."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from agiledart_cli.output import BAD, GOOD, WATCH, count, duration, milliseconds, paint, print_table, when

AGES_APART_MS = 250
"""Figures of one report round are nearer to each other than this."""

FINAL_STATES = ("finished", "failed", "stopped")

BEGUN_STATES = ("running", "recovering", "minority")
"""Of what runs, or is to run on."""

MIN_NOTE_WIDTH = 24
"""Characters of a reason that are shown on the narrowest terminal."""

COLOURS = {
    **dict.fromkeys(("running", "finished"), GOOD),
    **dict.fromkeys(("recovering", "minority", "deploying", "stopped"), WATCH),
    "failed": BAD,
}


def where(nodes: Sequence[str]) -> str:
    """`pi1 ×2 pi3`: nodes in order, each once."""
    return " ".join(name if number == 1 else f"{name} ×{number}" for name, number in Counter(nodes).items())


def print_plan(response: Mapping[str, Any], *, dry_run: bool) -> None:
    """What runs where, or what would."""
    placement: Mapping[str, Sequence[str]] = response["placement"]
    used = list(dict.fromkeys(node for nodes in placement.values() for node in nodes))
    if dry_run:
        click.echo(
            f"{response['name']} would run {len(placement)} stages on {', '.join(used)} ({response.get('strategy', '')}):"
        )
    else:
        click.echo(
            f"{response['name']} v{response['version']}: {len(placement)} stages on {', '.join(used)};"
            f" running after {duration(response['seconds_to_running'])}."
        )
    print_table(["stage", "×", "where"], [[name, len(nodes), where(nodes)] for name, nodes in placement.items()], ["×"])
    _print_paths(response)
    _print_checks(response.get("checks", []))
    if not dry_run:
        click.echo(f" Watch: agiledart top   Stop: agiledart stop {response['name']}")


def _print_checks(checks: Sequence[Mapping[str, Any]]) -> None:
    """What each source and sink found on its node, and what it guarantees."""
    for row in checks:
        if not row["stage"]:
            click.echo(f" {row['node']}  {paint(row['text'], BAD)}")
    tried = [row for row in checks if row["stage"]]
    if tried:
        click.echo()
        heads = ["stage", "where", "reads or writes", "found", "when something ends in the middle"]
        rows = [
            [
                row["stage"],
                row["node"],
                row["connector"],
                paint(row["text"], None if row["is_good"] else BAD),
                row["guarantee"],
            ]
            for row in tried
        ]
        print_table(heads, rows)


def _print_paths(response: Mapping[str, Any]) -> None:
    """Which way rows go, and which steps are not where one would look for them. Older agents tell the JOIN paths only."""
    for way in response.get("data_paths") or response.get("paths", []):
        click.echo(f" way {' → '.join(way)} ({_hops(way)})")
    for stage, why in response.get("reasons", {}).items():
        nodes = response["placement"].get(stage, [])
        click.echo(f" {stage} is on {where(nodes)}: {why}")


def _hops(path: Sequence[str]) -> str:
    hops = len(path) - 1
    return f"{hops} hop{'' if hops == 1 else 's'}"


def ago(at_ms: float | None) -> str:
    """How long ago a wall time in milliseconds was; nothing when it is not known."""
    return duration(max(0.0, time.time() - at_ms / 1000)) if at_ms else ""


def print_applications(response: Mapping[str, Any]) -> None:
    """The table of `agiledart list`."""
    rows = []
    for one in response["applications"]:
        state = paint(one["state"], COLOURS.get(one["state"]))
        note = (one.get("reason") or "").partition("\n")[0] or recovery_text(one)
        state += "?" if one.get("is_unverified") else ""
        rows.append([one["name"], f"v{one['version']}", state, _since(one), one.get("submitted_to", ""), note])
    if not rows:
        click.echo("No applications yet. Submit one: agiledart submit FILE:NAME")
    else:
        heads = ["application", "", "state", "", "submitted to", ""]
        print_table(heads, _cut(heads, rows))
    if response.get("unreadable"):
        click.echo(paint(f" {response['unreadable']} more cannot be read just now", WATCH))


def _since(one: Mapping[str, Any]) -> str:
    """For how long it runs, or ran and when it ended."""
    changed = one.get("changed_ms") or 0
    if one["state"] not in FINAL_STATES:
        return f"for {ago(changed)}" if changed else ""
    ended = f"ended {ago(changed)} ago" if changed else ""
    ran = max(0, changed - one["running_ms"]) / 1000 if changed and one.get("running_ms") else None
    return ended if ran is None else f"ran for {duration(ran)}, {ended}"


def _cut(heads: list[str], rows: list[list[str]]) -> list[list[str]]:
    """The rows, with the last cell short enough for a terminal's line; `status` and pipes have all of it."""
    if not sys.stdout.isatty():
        return rows
    widths = [max(len(click.unstyle(row[column])) for row in [heads, *rows]) for column in range(len(heads) - 1)]
    taken = 1 + sum(width + 2 for width in widths)
    room = max(MIN_NOTE_WIDTH, shutil.get_terminal_size().columns - taken)
    return [[*row[:-1], row[-1] if len(row[-1]) <= room else f"{row[-1][: room - 1].rstrip()}…"] for row in rows]


def recovery_text(response: Mapping[str, Any]) -> str:
    """What of an application is being brought back, and how far that is; nothing of one that runs."""
    recovery: Mapping[str, Any] = response.get("recovery") or {}
    if not recovery:
        return ""
    phase = recovery["phase"]
    gone = f". Where they are gone for ever: {recovery['remedy']}" if recovery.get("remedy") else ""
    if phase == "minority":
        without = ", ".join(recovery["waits_for"])
        return f"no commit for {duration(recovery['seconds'])}, without {without}: {recovery['reason']}{gone}"
    if phase == "waiting":
        doing = f"waits for {', '.join(recovery['waits_for']) or 'room'}"
    elif phase == "fetch" and recovery["total_bytes"]:
        doing = f"fetches state, {recovery['bytes']:,} of {recovery['total_bytes']:,} bytes"
    else:
        doing = {"plan": "plans", "fetch": "fetches state", "restore": "restores"}.get(phase, "replays")
    return (
        f"{doing}; life {recovery['attempt']} from epoch {recovery['from_epoch']}, since {duration(recovery['seconds'])}: "
        f"{recovery['reason']}{gone}"
    )


def _epoch_text(epoch: Mapping[str, Any] | None) -> str:
    """How much of its results is safe."""
    if not epoch:
        return ""
    age = f", {duration(epoch['age_s'])} ago" if epoch.get("age_s") is not None else ""
    survives = epoch.get("tolerated_losses")
    losses = "" if survives is None else f"; survives the loss of {survives} machine{'' if survives == 1 else 's'}"
    return f"epoch {epoch['committed']} committed{age}{losses}"


def print_status(response: Mapping[str, Any]) -> None:
    """An application: its state in one sentence, its stages as a table, its records as a sum."""
    state, since = response["state"], ago(response.get("changed_ms"))
    title = f"{response['name']} v{response['version']}"
    by = f"   submitted to {response['submitted_to']}" if response.get("submitted_to") else ""
    if response.get("submitter"):
        by += f" by {response['submitter']}"
    if state == "failed":
        when = f" {since} ago" if since else ""
        click.echo(f"{title}   {paint(f'FAILED{when}', BAD)}: {response.get('reason') or 'no reason was given'}")
        if response.get("is_unverified"):
            click.echo(" no host of it has said so: if it lives, its coordinator takes this back once it is reached")
    else:
        live = {
            "running": "running for",
            "recovering": "recovering; began to run",
            "minority": "an island; began to run",
            "deploying": "being deployed for",
        }
        word, ends = live.get(state, f"{state},"), "" if state in ("running", "deploying") else " ago"
        told = f"{word} {since}{ends}" if since else state
        click.echo(f"{title}   {paint(told, COLOURS.get(state))}{by}")
        if state == "stopped" and response.get("is_unverified"):
            click.echo(
                " no user's order to stop it is there: an older agent noted that, or one that lies; if it lives, that is taken back"
            )
        if response.get("reason"):
            click.echo(f" {response['reason']}")
    if told := recovery_text(response):
        click.echo(paint(f" {told}", WATCH))
    if told := _epoch_text(response.get("epoch")):
        click.echo(f" {told}")
    if owner := response.get("owner"):
        others = "".join(f", {key[:16]}…" for key in response.get("shared", ()))
        click.echo(f" owner {owner[:16]}…" + (f"   shared with{others[1:]}" if others else ""))
    _print_stages(response)
    _print_paths(response)
    print_sums(_reported_summary(response))
    _print_duplicates(_reported_summary(response))
    for attempt, source, rows in response.get("losses", ()):
        least = f"at least {rows:,} rows of {source}" if rows else f"nobody knows how many rows of {source}"
        click.echo(paint(f" life {attempt}: {least} are lost: only the log of a node that is gone had them", BAD))
    _print_missing(response)
    _print_problems(response)
    _print_ages(response)
    for sink, log in (response.get("logs") or {}).items():
        nodes = ", ".join((response.get("placement") or {}).get(sink, []))
        click.echo(f" log {log} on {nodes or '?'}: rows of {sink}, for Spark and other readers")
    _print_rivals(response)
    if silent := response.get("silent_nodes"):
        click.echo(paint(f" no figures from {', '.join(silent)}", WATCH))


def _print_rivals(response: Mapping[str, Any]) -> None:
    """Whether the asked node is alone, clocks that are wrong, and other runs, which were submitted while nodes were apart."""
    if alone := response.get("isolation_warning"):
        click.echo(paint(f" this node is {alone}", WATCH))
    for clock in response.get("clocks") or ():
        click.echo(paint(f" {clock}", WATCH))
    for rival in response.get("rivals") or ():
        why = f": {rival['reason']}" if rival.get("reason") else ""
        click.echo(
            paint(
                f" another run of it (v{rival['version']}, submitted to {rival['submitted_to']}), {rival['state']}{why}",
                WATCH,
            )
        )


def _print_problems(response: Mapping[str, Any]) -> None:
    """Sources and sinks whose broker, database or server is away; instances whose next host is, or is reached by others, or whose
    state the disk does not take.
    """
    for stage in response.get("stages", []):
        for one in stage["instances"]:
            where = f"{stage['name']} on {one.get('node', '?')}"
            if told := one.get("waits_for"):
                click.echo(paint(f" {where} waits for {told}", WATCH))
            if told := one.get("relayed_by"):
                click.echo(f" {where} reaches {told}")
            if told := one.get("unsaved"):
                click.echo(paint(f" {where} cannot be saved: {told}", WATCH))
            if one.get("connection_status"):
                click.echo(paint(f" {stage['name']}: {one['connection_status']}", WATCH))


def _print_ages(response: Mapping[str, Any]) -> None:
    """How old the figures are: those of one step may be of another moment than those of the next."""
    ages = [one["age_ms"] for stage in response.get("stages", []) for one in stage["instances"] if "age_ms" in one]
    if ages:
        newest, oldest = (duration(max(0, age) / 1000) for age in (min(ages), max(ages)))
        apart = f"{newest} to {oldest}" if max(ages) - min(ages) > AGES_APART_MS else oldest
        click.echo(f" figures {apart} old" + (": counts differ by what passed between" if apart != oldest else ""))


def _print_missing(response: Mapping[str, Any]) -> None:
    """How many instances of an application that has ended are not in its sums: they ended before they told any figures."""
    told, there_are = (
        _reported_summary(response).get("instances_reporting"),
        sum(int(one.get("parallelism", 0)) for one in response.get("stages", [])),
    )
    if told is not None and response.get("summary") and response["state"] in ("failed", "stopped") and told < there_are:
        click.echo(f" figures of {told} of {there_are} instances: the others ended before they told any")


def _reported_summary(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """The sums of an application; nothing when no instance has told any (it ended too early, or its nodes are gone)."""
    summary: Mapping[str, Any] = response.get("summary") or {}
    return summary if summary.get("instances_reporting", 1) else {}


def _print_stages(response: Mapping[str, Any]) -> None:
    steps: Mapping[str, Mapping[str, int]] = _reported_summary(response).get("steps", {})
    queues = {
        stage["name"]: [one["queued_rows"] for one in stage["instances"] if "queued_rows" in one]
        for stage in response.get("stages", [])
    }
    rows = []
    for stage, nodes in (response.get("placement") or {}).items():
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
    for stage in response.get("stages", []):
        _print_owners(stage)


MAX_INSTANCES_SHOWN = 8
"""Instances of a stage whose key groups `status` prints; `-o json` has those of all."""


def _print_owners(stage: Mapping[str, Any]) -> None:
    """Which instance has which keys, of a stage by key with several instances."""
    told = [one for one in stage["instances"] if one.get("group_ranges") is not None]
    if len(told) < 2:
        return
    parts = [f"{one['index']} on {one['node']} {one['group_ranges'] or 'none'}" for one in told[:MAX_INSTANCES_SHOWN]]
    more = f", {len(told) - MAX_INSTANCES_SHOWN} more (-o json)" if len(told) > MAX_INSTANCES_SHOWN else ""
    click.echo(f" key groups of {stage['name']}: {', '.join(parts)}{more}")


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


MIN_MALFORMED_TO_WARN = 100
"""Malformed records from which on it is said that most are."""


def mostly_malformed(summary: Mapping[str, Any]) -> bool:
    """Whether more than half of what an application read was malformed, and enough of it to say so."""
    malformed: int = sum(summary.get("malformed", {}).values())
    return malformed >= MIN_MALFORMED_TO_WARN and 2 * malformed > int(summary.get("records_in", 0))


def all_malformed(summary: Mapping[str, Any]) -> bool:
    """Whether something was read and not one record of it was well-formed."""
    malformed: int = sum(summary.get("malformed", {}).values())
    return malformed > 0 and malformed >= int(summary.get("records_in", 0))


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
    if mostly_malformed(summary) or all_malformed(summary):
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


def _print_duplicates(summary: Mapping[str, Any]) -> None:
    """Rows that sinks showed again because the application was brought back."""
    told = summary.get("duplicates_by_attempt", ())
    for attempt, sink, rows in told:
        click.echo(f" life {attempt}: {rows:,} rows shown again at {sink}, at most")
    if before := sum(summary.get("duplicated", {}).values()) - sum(rows for _, _, rows in told):
        click.echo(f" lives before: {before:,} rows shown again, at most")
    for sink in summary.get("uncounted", ()):
        click.echo(paint(f" {sink} came from a node that was lost: nobody knows what else it shows again", WATCH))


def print_checkpoints(response: Mapping[str, Any]) -> None:
    """What is safe in a sentence, and a line for each element."""
    ended = "" if response["state"] in BEGUN_STATES else f"{response['state']}; what is kept of it:"
    text = ended or recovery_text(response) or _epoch_text(response["epoch"]) or "nobody says what is committed"
    click.echo(f"{response['name']} v{response['version']}: {text}")
    rows = [
        [
            *(one["stage"], one["index"], one["node"], f"{one['epoch']} (life {one['attempt']})", count(one["bytes"])),
            f"any {one['fragments_needed']} of {', '.join(one['replica_nodes'])}" if one["fragments_needed"] else "its node only",
        ]
        for one in response["snapshots"]
    ]
    if rows:
        print_table(["stage", "#", "node", "epoch", "bytes", "kept by"], rows, ["#", "bytes"])
    print_retained(response.get("retained", ()))


def print_retained(kept: Sequence[Mapping[str, Any]]) -> None:
    """A line for each checkpoint that outlives its run."""
    rows = [
        [
            *(one["name"], f"{one['application']} v{one['version']}", f"{one['epoch']} (life {one['attempt']})"),
            *(when(one["taken_ms"]), count(one["bytes"]), ", ".join(one["nodes"])),
        ]
        for one in kept
    ]
    if rows:
        print_table(["checkpoint", "of", "epoch", "taken", "bytes", "kept on"], rows, ["bytes"])
