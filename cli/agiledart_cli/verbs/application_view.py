"""Text views of applications: the responses of `submit`, `list`, `status` and `checkpoint list` as tables and sentences."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from agiledart_cli.output import BAD, GOOD, WATCH, count, duration, milliseconds, paint, print_line, print_table, when
from agiledart_cli.verbs.compliance_lines import service_level_lines
from agiledart_control.polling import FINAL_STATES

AGES_APART_MS = 250
"""Greatest age difference of figures from one report round, milliseconds."""

BEGUN_STATES = ("running", "recovering", "minority")
"""States of an application that runs, or that recovers in order to run on."""

COLOURS = {
    **dict.fromkeys(("running", "finished"), GOOD),
    **dict.fromkeys(("recovering", "minority", "deploying", "stopped"), WATCH),
    "failed": BAD,
}


def where(nodes: Sequence[str]) -> str:
    """Return the nodes in order, each once with its count: `pi1 ×2 pi3`."""
    return " ".join(name if number == 1 else f"{name} ×{number}" for name, number in Counter(nodes).items())


def print_plan(response: Mapping[str, Any], *, dry_run: bool) -> None:
    """Print which stage runs on which node, or (`dry_run`) would run there."""
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
    """Print the result of the check of each source and sink on its node, and its guarantee."""
    for row in checks:
        if not row["stage"]:
            click.echo(f" {row['node']}  {paint(row['text'], BAD)}")
    tried = [row for row in checks if row["stage"]]
    if tried:
        click.echo()
        heads = ["stage", "node", "reads or writes", "result of the check", "after a failure"]
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
        print_table(heads, rows, cuts=(0, 1), wraps=(2, 3, 4))


def _print_paths(response: Mapping[str, Any]) -> None:
    """Print the paths of rows, and why a stage is not on the node of its path. Older agents report the JOIN paths only.

    Sources on one node have the same path, which is printed once.
    """
    for path in dict.fromkeys(map(tuple, response.get("data_paths") or response.get("paths", []))):
        click.echo(f" path {' → '.join(path)} ({_hops(path)})")
    for stage, why in response.get("reasons", {}).items():
        nodes = response["placement"].get(stage, [])
        click.echo(f" {stage} runs on {where(nodes)}: {why}")


def _hops(path: Sequence[str]) -> str:
    hops = len(path) - 1
    return f"{hops} hop{'' if hops == 1 else 's'}"


def ago(at_ms: float | None) -> str:
    """Return how long ago a wall time in milliseconds was; an empty text when it is unknown."""
    return duration(max(0.0, time.time() - at_ms / 1000)) if at_ms else ""


def print_applications(response: Mapping[str, Any]) -> None:
    """Print the table of `agiledart list`."""
    rows = []
    for application in response["applications"]:
        state = paint(application["state"], COLOURS.get(application["state"]))
        note = (application.get("reason") or "").partition("\n")[0] or recovery_text(application)
        state += "?" if application.get("is_unverified") else ""
        submitted_to = application.get("submitted_to", "")
        rows.append([application["name"], f"v{application['version']}", state, _since(application), submitted_to, note])
    if not rows:
        click.echo("No applications yet. Submit one: agiledart submit FILE:NAME")
    else:
        heads = ["application", "", "state", "", "submitted to", ""]
        print_table(heads, rows, cuts=(5, 3, 0, 4))
    if response.get("unreadable"):
        click.echo(
            paint(
                f" {response['unreadable']} more applications: the ring did not return their records; try again", WATCH
            )
        )


def _since(application: Mapping[str, Any]) -> str:
    """Return how long an application has been running, or how long it ran and when it ended."""
    changed = application.get("changed_ms") or 0
    if application["state"] not in FINAL_STATES:
        return f"for {ago(changed)}" if changed else ""
    ended = f"ended {ago(changed)} ago" if changed else ""
    ran = max(0, changed - application["running_ms"]) / 1000 if changed and application.get("running_ms") else None
    return ended if ran is None else f"ran for {duration(ran)}, {ended}"


def recovery_text(response: Mapping[str, Any]) -> str:
    """Return how far the recovery of an application is; an empty text while it runs undisturbed."""
    recovery: Mapping[str, Any] = response.get("recovery") or {}
    if not recovery:
        return ""
    phase = recovery["phase"]
    gone = f". If they are lost for good: {recovery['remedy']}" if recovery.get("remedy") else ""
    if phase == "minority":
        voters = ", ".join(recovery["waits_for"])
        return f"no commit for {duration(recovery['seconds'])}, cannot reach {voters}: {recovery['reason']}{gone}"
    if phase == "takeover":
        return (
            f"rows go on; its coordinator is being replaced, because {', '.join(recovery['waits_for'])} does not answer"
        )
    if phase == "waiting":
        doing = f"waits for {', '.join(recovery['waits_for']) or 'free capacity'}"
    elif phase == "fetch" and recovery["total_bytes"]:
        doing = f"fetches state, {recovery['bytes']:,} of {recovery['total_bytes']:,} bytes"
    else:
        doing = {"plan": "plans", "fetch": "fetches state", "restore": "restores state"}.get(phase, "replays")
    return (
        f"{doing}; attempt {recovery['attempt']} from checkpoint {recovery['from_epoch']}, for {duration(recovery['seconds'])}: "
        f"{recovery['reason']}{gone}"
    )


def _epoch_text(epoch: Mapping[str, Any] | None) -> str:
    """Return which checkpoint is committed, how old it is, and how many machines may fail."""
    if not epoch:
        return ""
    age = f", {duration(epoch['age_s'])} ago" if epoch.get("age_s") is not None else ""
    age += ", and no rows since" if epoch.get("is_idle") else ""
    tolerated = epoch.get("tolerated_losses")
    losses = "" if tolerated is None else f"; survives the loss of {tolerated} machine{'' if tolerated == 1 else 's'}"
    standbys = "".join(
        f"; standby of {stage} on {', '.join(nodes)}" if nodes else f"; no other node can be the standby of {stage}"
        for stage, nodes in epoch.get("standbys", {}).items()
    )
    return f"checkpoint {epoch['committed']} committed{age}{losses}{standbys}"


def print_status(response: Mapping[str, Any]) -> None:
    """Print an application: its state as a sentence, its stages as a table, the sums of its records."""
    state, since = response["state"], ago(response.get("changed_ms"))
    title = f"{response['name']} v{response['version']}"
    by = f"   submitted to {response['submitted_to']}" if response.get("submitted_to") else ""
    if response.get("submitter"):
        by += f" by {response['submitter']}"
    if state == "failed":
        when = f" {since} ago" if since else ""
        click.echo(f"{title}   {paint(f'FAILED{when}', BAD)}: {response.get('reason') or 'no reason was given'}")
        if response.get("is_unverified"):
            click.echo(
                " none of its hosts has confirmed this: if it still runs, its coordinator withdraws it once it is reachable"
            )
    else:
        live = {
            "running": "running for",
            "recovering": "recovering; started",
            "minority": "running without the majority of its voters; started",
            "deploying": "being deployed for",
        }
        word, ends = live.get(state, f"{state},"), "" if state in ("running", "deploying") else " ago"
        text = f"{word} {since}{ends}" if since else state
        print_line(f"{title}   {paint(text, COLOURS.get(state))}", by)
        if state == "stopped" and response.get("is_unverified"):
            click.echo(
                " no signed stop command exists: an older or malicious agent reported this; a live run withdraws it"
            )
        if response.get("reason"):
            click.echo(f" {response['reason']}")
    if progress := recovery_text(response):
        click.echo(paint(f" {progress}", WATCH))
    if safe := _epoch_text(response.get("epoch")):
        click.echo(f" {safe}")
    if owner := response.get("owner"):
        others = "".join(f", {key[:16]}…" for key in response.get("shared", ()))
        click.echo(f" owner {owner[:16]}…" + (f"   shared with{others[1:]}" if others else ""))
    _print_stages(response)
    _print_paths(response)
    print_sums(_reported_summary(response))
    _print_duplicates(_reported_summary(response))
    for attempt, source, rows in response.get("losses", ()):
        least = f"at least {rows:,} rows of {source}" if rows else f"an unknown number of rows of {source}"
        click.echo(paint(f" attempt {attempt}: lost {least}: only the log of a failed node held them", BAD))
    _print_missing(response)
    _print_problems(response)
    _print_waiting(response)
    _print_ages(response)
    for sink, log in (response.get("logs") or {}).items():
        nodes = ", ".join((response.get("placement") or {}).get(sink, []))
        click.echo(f" log {log} on {nodes or '?'}: rows of {sink}, for Spark and other readers")
    _print_rivals(response)
    if silent := response.get("silent_nodes"):
        click.echo(paint(f" no figures from {', '.join(silent)}", WATCH))


def _print_rivals(response: Mapping[str, Any]) -> None:
    """Print the isolation of the asked node, wrong clocks, and other runs of the name from the other side of a partition."""
    if isolation := response.get("isolation_warning"):
        click.echo(paint(f" this node is {isolation}", WATCH))
    for clock in response.get("clocks") or ():
        click.echo(paint(f" {clock}", WATCH))
    for rival in response.get("rivals") or ():
        why = f": {rival['reason']}" if rival.get("reason") else ""
        click.echo(
            paint(
                f" another run of this name (v{rival['version']}, submitted to {rival['submitted_to']}): {rival['state']}{why}",
                WATCH,
            )
        )


def _print_problems(response: Mapping[str, Any]) -> None:
    """Print connection problems of sources and sinks, unreachable or relayed hosts, and states that could not be saved."""
    for stage in response.get("stages", []):
        for instance in stage["instances"]:
            where = f"{stage['name']} on {instance.get('node', '?')}"
            if peers := instance.get("waits_for"):
                click.echo(paint(f" {where} waits for {peers}", WATCH))
            if relays := instance.get("relayed_by"):
                click.echo(f" {where} reaches {relays}")
            if reason := instance.get("unsaved"):
                click.echo(paint(f" {where} cannot be saved: {reason}", WATCH))
            if status := instance.get("connection_status"):
                click.echo(paint(f" {stage['name']}: {status}", WATCH))


SHOWN_BY_STATUS = ("link", "disk", "snapshot", "outside", "node", "capacity")
"""Causes of waiting that other lines of `status` name."""


def waiting_text(row: Mapping[str, Any]) -> str:
    """Return a cause of waiting as one line, with its duration and the stages that wait behind it."""
    lasts = f", for {duration(row['seconds'])}" if row.get("seconds") is not None else ""
    behind = ", ".join(stage for stage in row.get("blocks", ()) if stage not in row["text"])
    return f"{row['text']}{lasts}{f'; {behind} behind it' if behind else ''}"


def _print_waiting(response: Mapping[str, Any]) -> None:
    """Print the causes of waiting that no other line of `status` names."""
    for row in response.get("waiting") or ():
        if row["cause"] not in SHOWN_BY_STATUS:
            click.echo(paint(f" {waiting_text(row)}", WATCH))


def _print_ages(response: Mapping[str, Any]) -> None:
    """Print how old the figures are; figures of different instances come from different moments."""
    instances = [instance for stage in response.get("stages", []) for instance in stage["instances"]]
    ages = [instance["age_ms"] for instance in instances if "age_ms" in instance]
    if ages:
        newest, oldest = (duration(max(0, age) / 1000) for age in (min(ages), max(ages)))
        apart = f"{newest} to {oldest}" if max(ages) - min(ages) > AGES_APART_MS else oldest
        click.echo(
            f" figures {apart} old" + (": counts differ by the rows that passed in between" if apart != oldest else "")
        )


def _print_missing(response: Mapping[str, Any]) -> None:
    """Print how many instances of an ended application are missing in its sums, because they ended before their first report."""
    reporting = _reported_summary(response).get("instances_reporting")
    total = sum(int(stage.get("parallelism", 0)) for stage in response.get("stages", []))
    has_ended = response.get("summary") and response["state"] in ("failed", "stopped")
    if reporting is not None and has_ended and reporting < total:
        click.echo(f" figures of {reporting} of {total} instances: the others ended before they reported any")


def _reported_summary(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the sums of an application; {} when no instance has reported (it ended too early, or its nodes are gone)."""
    summary: Mapping[str, Any] = response.get("summary") or {}
    return summary if summary.get("instances_reporting", 1) else {}


def _print_stages(response: Mapping[str, Any]) -> None:
    steps: Mapping[str, Mapping[str, int]] = _reported_summary(response).get("steps", {})
    queues = {
        stage["name"]: [row["queued_rows"] for row in stage["instances"] if "queued_rows" in row]
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
        print_table(heads, rows, ["×", "in", "out", "dropped", "queue"], cuts=(2, 0))
    for stage in response.get("stages", []):
        _print_owners(stage)


MAX_INSTANCES_SHOWN = 8
"""Instances of a stage whose key groups `status` prints; `-o json` has all of them."""


def _print_owners(stage: Mapping[str, Any]) -> None:
    """Print which instance owns which key groups, for a keyed stage with several instances."""
    owners = [row for row in stage["instances"] if row.get("group_ranges") is not None]
    if len(owners) < 2:
        return
    shown = owners[:MAX_INSTANCES_SHOWN]
    parts = [f"{row['index']} on {row['node']} {row['group_ranges'] or 'none'}" for row in shown]
    more = f", {len(owners) - MAX_INSTANCES_SHOWN} more (-o json)" if len(owners) > MAX_INSTANCES_SHOWN else ""
    click.echo(f" key groups of {stage['name']}: {', '.join(parts)}{more}")


MALFORMED_TEXTS = {
    "columns": "wrong number of columns or line too long",
    "cut": "cut off by the end of the connection",
    "field": "missing field",
    "answer": "a device answered too little",
    "form": "not in the expected format",
    "number": "not a number",
    "size": "too large",
    "time": "not a time",
    "topic": "of another topic",
    "type": "value of the wrong type",
}
"""Reason of a malformed record, as sources count it → its text. Reasons of plugins are shown as they are."""


def malformed_text(reasons: Mapping[str, int]) -> str:
    """Return the counts of malformed records by reason, as `not in the expected format: 3, too long: 1`."""
    return ", ".join(f"{MALFORMED_TEXTS.get(reason, reason)}: {number:,}" for reason, number in reasons.items())


ERRORS = (("skipped", "skipped"), ("dead_letters", "dead letters"), ("failed", "results not made"))
"""Outcomes of records for which user code raised: field of a step's counts, and its text."""


def _overload(summary: Mapping[str, Any]) -> str:
    """Return how many rows sources shed or spooled because the mesh was too slow; an empty text for none."""
    shed: Mapping[str, int] = summary.get("shed", {})
    parts = []
    if shed:
        by_reason = ", ".join(f"{number:,} {reason.replace('_', ' ')}" for reason, number in shed.items())
        parts.append(f"shed {count(sum(shed.values()))} ({by_reason})")
    if summary.get("spooled_ever"):
        parts.append(f"spooled {count(summary['spooled_ever'])} ({count(summary.get('spooled', 0))} still on disk)")
    return "".join(f"   {part}" for part in parts)


MIN_MALFORMED_TO_WARN = 100
"""Least number of malformed records for a warning that most records are malformed."""


def mostly_malformed(summary: Mapping[str, Any]) -> bool:
    """Return whether more than half of the records of an application were malformed, and at least `MIN_MALFORMED_TO_WARN`."""
    malformed: int = sum(summary.get("malformed", {}).values())
    return malformed >= MIN_MALFORMED_TO_WARN and 2 * malformed > int(summary.get("records_in", 0))


def all_malformed(summary: Mapping[str, Any]) -> bool:
    """Return whether an application read records and all of them were malformed."""
    malformed: int = sum(summary.get("malformed", {}).values())
    return malformed > 0 and malformed >= int(summary.get("records_in", 0))


def print_sums(summary: Mapping[str, Any]) -> None:
    """Print how many records were read, skipped and written, and the latencies."""
    if not summary:
        return
    malformed: Mapping[str, int] = summary.get("malformed", {})
    reasons = f" ({malformed_text(malformed)})" if malformed else ""
    click.echo(
        f" read {count(summary.get('records_in', 0))}   late {count(summary.get('late', 0))}"
        f"   malformed {count(sum(malformed.values()))}{reasons}{_overload(summary)}"
    )
    if mostly_malformed(summary) or all_malformed(summary):
        click.echo(paint(" most records are malformed (see: agiledart logs)", WATCH))
    for step, counts in summary.get("steps", {}).items():
        errors = [f"{count(counts[kind])} {word}" for kind, word in ERRORS if counts.get(kind)]
        if counts.get("late"):
            click.echo(f" {step}: {count(counts['late'])} late rows dropped")
        if counts.get("rejected"):
            click.echo(paint(f" {step}: {count(counts['rejected'])} rows rejected (see: agiledart logs)", WATCH))
        if errors:
            click.echo(
                paint(f" {step}: its code raised an exception: {', '.join(errors)} (see: agiledart logs)", WATCH)
            )
    for place in summary.get("imbalances", ()):
        click.echo(paint(f" row counts do not add up: {place}", BAD))
    for sink, rows in summary.get("results", {}).items():
        figures = summary.get("latency_ms", {}).get(sink)
        delays = ""
        if figures:
            kind = "result after" if summary.get("paced") else "backlog"
            delays = f"   {kind} {milliseconds(figures['p50'])}, p99 {milliseconds(figures['p99'])}"
        click.echo(f" {sink} {count(rows)} rows{delays}")
    for line in service_level_lines(summary.get("service_levels", ())):
        click.echo(f" {line}")


def _print_duplicates(summary: Mapping[str, Any]) -> None:
    """Print how many rows the sinks emitted again after restarts."""
    duplicates = summary.get("duplicates_by_attempt", ())
    for attempt, sink, rows in duplicates:
        click.echo(f" attempt {attempt}: at most {rows:,} rows emitted again by {sink}")
    if before := sum(summary.get("duplicated", {}).values()) - sum(rows for _, _, rows in duplicates):
        click.echo(f" earlier attempts: at most {before:,} rows emitted again")
    for sink in summary.get("uncounted", ()):
        click.echo(
            paint(f" {sink} moved from a failed node: it may have emitted more rows again than are counted", WATCH)
        )


def print_checkpoints(response: Mapping[str, Any]) -> None:
    """Print the last committed checkpoint as a sentence, and a line for each task snapshot."""
    ended = "" if response["state"] in BEGUN_STATES else f"{response['state']}; retained checkpoints:"
    text = ended or recovery_text(response) or _epoch_text(response["epoch"]) or "the coordinator does not answer"
    click.echo(f"{response['name']} v{response['version']}: {text}")
    rows = [
        [
            *(snapshot["stage"], snapshot["index"], snapshot["node"]),
            *(f"{snapshot['epoch']} (attempt {snapshot['attempt']})", count(snapshot["bytes"])),
            f"any {snapshot['fragments_needed']} of {', '.join(snapshot['replica_nodes'])}"
            if snapshot["fragments_needed"]
            else ("the register" if snapshot.get("is_in_register") else "its node only"),
        ]
        for snapshot in response["snapshots"]
    ]
    if rows:
        print_table(["stage", "#", "node", "checkpoint", "bytes", "stored on"], rows, ["#", "bytes"])
    print_retained(response.get("retained", ()))


def print_retained(checkpoints: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each retained checkpoint."""
    rows = [
        [
            *(retained["name"], f"{retained['application']} v{retained['version']}"),
            f"{retained['epoch']} (attempt {retained['attempt']})",
            *(when(retained["taken_ms"]), count(retained["bytes"]), ", ".join(retained["nodes"])),
        ]
        for retained in checkpoints
    ]
    if rows:
        print_table(["name", "application", "checkpoint", "taken", "bytes", "stored on"], rows, ["bytes"])
