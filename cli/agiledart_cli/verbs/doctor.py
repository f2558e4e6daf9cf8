"""`agiledart doctor`: one line for each check, and one suggestion for each that is not ok."""

import contextlib
import os
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from agiledart_agent.settings import AgentSettings, split_address
from agiledart_cli.agent_place import find_agent
from agiledart_cli.control_client import ControlClient
from agiledart_cli.errors import FAILED, CommandRefusedError, NoAgentError
from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD as RED
from agiledart_cli.output import GOOD, duration, output_option, paint, plural, print_json
from agiledart_cli.output import WATCH as YELLOW
from agiledart_cli.verbs import machine_checks
from agiledart_cli.verbs.application_view import BEGUN_STATES, mostly_malformed
from agiledart_cli.verbs.machine_checks import BAD, OK, WATCH, DoctorFinding
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_node.wire.commands import Info, ListApplications, Nodes, Status

COLOURS = {OK: GOOD, WATCH: YELLOW, BAD: RED}

MAX_NODES_ASKED = 50
"""Applications whose figures are looked at, the last of the list."""

SLOW_SECONDS = 1.0
"""An agent that is well answers within some milliseconds."""


@click.command(short_help="Look for what could go wrong here.")
@click.option("--config", "config_file", metavar="FILE", help="TOML file with a table [agent], as for `agent`.")
@agent_options
@output_option
def doctor(config_file: str | None, agent: str | None, identity: str | None, output: str) -> int:
    """Look for what could go wrong here: one line for each check (ok, watch, bad) and what to do about it.

    \b
    Example:
      agiledart doctor
      agiledart doctor --agent pi1:9464 --identity @reader.token -o json

    Looks at Python and packages, clock, ports, state directory, disk, memory, limits, Java for Spark, the agent and its
    ring. Changes nothing. Exit code 1 when something is bad.
    """
    findings = _here(config_file)
    findings += _asked(agent, identity)
    levels = Counter(finding.level for finding in findings)
    if output == "json":
        print_json({"checks": [asdict(finding) for finding in findings], "watch": levels[WATCH], "bad": levels[BAD]})
    else:
        wide = max(len(finding.name) for finding in findings)
        for finding in findings:
            level = paint(finding.level.ljust(5), COLOURS[finding.level])
            click.echo(f" {level}  {finding.name.ljust(wide)}  {finding.text}")
            if finding.suggestion:
                click.echo(f"        {' ' * wide}  → {finding.suggestion}")
    return FAILED if levels[BAD] else 0


def _here(config_file: str | None) -> list[DoctorFinding]:
    """What can be seen without an agent."""
    findings = [machine_checks.check_python(), machine_checks.check_packages(), machine_checks.check_clock()]
    try:
        settings = AgentSettings.load({}, os.environ, Path(config_file) if config_file else None)
    except ConfigurationError as error:
        findings.append(DoctorFinding("settings", BAD, str(error), "see: agiledart config show --origin"))
    else:
        findings.append(DoctorFinding("settings", OK, f"name {settings.name}, log format {settings.log_format}"))
        pid = _own_pid(settings.state_dir)
        findings.append(machine_checks.check_port("port", *split_address(settings.listen), pid))
        if settings.metrics:
            findings.append(machine_checks.check_port("metrics port", *split_address(settings.metrics), pid))
        findings += machine_checks.check_state_directory(settings.state_dir)
        findings.append(machine_checks.check_confinement(settings.confine))
    return [
        *findings,
        machine_checks.check_share(),
        machine_checks.check_memory(),
        machine_checks.check_limits(),
        machine_checks.check_load(),
        machine_checks.check_java(),
    ]


def _own_pid(state_dir: Path) -> int | None:
    """Process id of the agent whose state directory this is."""
    from agiledart_cli.agent_place import AGENT_FILE, is_running, read_note

    note = read_note(state_dir / AGENT_FILE)
    pid = None if note is None else note.get("pid")
    return pid if isinstance(pid, int) and is_running(pid) else None


def _asked(agent: str | None, identity: str | None) -> list[DoctorFinding]:
    """What an agent says of itself and its ring."""
    try:
        place = find_agent(agent)
        began = time.monotonic()
        with ControlClient(place, identity) as client:
            info = client.ask(Info())
            seconds = time.monotonic() - began
            findings = [_agent(info, seconds)]
            with contextlib.suppress(CommandRefusedError):  # not in a ring yet: `_agent` says so
                nodes = client.ask(Nodes())
                findings += [_ring(nodes), *_clocks(nodes)]
                applications = client.ask(ListApplications())
                findings += _applications(applications)
                findings += _inputs(client, applications)
            return findings
    except NoAgentError as error:
        level = BAD if agent else WATCH
        return [
            DoctorFinding("agent", level, str(error).partition(". ")[0], "start one: agiledart agent, or agiledart up")
        ]
    except ConfigurationError as error:
        return [DoctorFinding("agent", BAD, str(error), "see: agiledart doctor --help")]
    except OperationFailed as error:
        return [DoctorFinding("agent", BAD, str(error), "make a new token there: agiledart token create --role reader")]


def _agent(info: dict[str, Any], seconds: float) -> DoctorFinding:
    who = f"{info['name']} at {info['address']}"
    if not info["joined"]:
        return DoctorFinding("agent", BAD, f"{who} is in no ring", "see what it says; start it again with --join @FILE")
    if info["is_leaving"]:
        return DoctorFinding("agent", WATCH, f"{who} is leaving", "wait until it has ended")
    if info.get("is_draining"):
        return DoctorFinding(
            "agent", WATCH, f"{who} was drained, and takes nothing", f"agiledart drain {info['name']} --undo"
        )
    if seconds > SLOW_SECONDS:
        return DoctorFinding(
            "agent", WATCH, f"{who} took {duration(seconds)} to answer", "look at the load of its machine"
        )
    return DoctorFinding("agent", OK, f"{who} answers in {seconds * 1000:.0f} ms")


def _ring(response: dict[str, Any]) -> DoctorFinding:
    if alone := response.get("isolation_warning"):
        what, _, advice = alone.partition(". ")
        return DoctorFinding("ring", BAD, what, advice or "look at the network between this machine and theirs")
    silent = [node["name"] for node in response["nodes"] if not node["answers"]]
    if silent:
        advice = "look whether they run and can be reached; a dead node leaves the ring by itself"
        return DoctorFinding(
            "ring", WATCH, f"{', '.join(silent)} of {plural(response['known'], 'node')} silent", advice
        )
    if refused := response.get("refused"):
        reasons = ", ".join(f"{count:,} × {reason}" for reason, count in sorted(refused.items()))
        advice = "if that was one of yours: check its clock, version and token"
        return DoctorFinding("ring", WATCH, f"{plural(response['known'], 'node')}; turned away here: {reasons}", advice)
    return DoctorFinding("ring", OK, plural(response["known"], "node"))


def _clocks(response: dict[str, Any]) -> list[DoctorFinding]:
    """Clocks of nodes that differ from most."""
    advice = "set it there: sudo timedatectl set-ntp true; a node more than 5 min off gets no work"
    return [DoctorFinding("clocks", BAD, text, advice) for text in response.get("clocks") or ()]


def _applications(response: dict[str, Any]) -> list[DoctorFinding]:
    rows = response["applications"]
    failed = [row["name"] for row in rows if row["state"] == "failed"]
    live = sum(row["state"] in (*BEGUN_STATES, "deploying") for row in rows)
    if failed:
        advice = f"see why: agiledart status {failed[0]}"
        return [DoctorFinding("applications", WATCH, f"{live} at work, failed: {', '.join(failed)}", advice)]
    return [DoctorFinding("applications", OK, f"{live} at work")]


def _inputs(client: ControlClient, response: dict[str, Any]) -> list[DoctorFinding]:
    """Applications that live on what they cannot read."""
    names = [row["name"] for row in response["applications"] if row["state"] in (*BEGUN_STATES, "finished")]
    findings = []
    for name in names[-MAX_NODES_ASKED:]:
        with contextlib.suppress(OperationFailed):  # it has just gone
            summary = client.ask(Status(name)).get("summary") or {}
            if mostly_malformed(summary):
                malformed = sum(summary["malformed"].values())
                text = f"{name}: {malformed:,} of {summary.get('records_in', 0):,} records it read are malformed"
                findings.append(
                    DoctorFinding("input", WATCH, text, f"see what is wrong with them: agiledart logs {name}")
                )
    return findings
