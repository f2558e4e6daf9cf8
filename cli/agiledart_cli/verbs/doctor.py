"""`agiledart doctor`: print one line for each check, and a suggestion for each that is not ok."""

import contextlib
import os
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from agiledart_agent.settings import AgentSettings, split_address
from agiledart_cli.errors import FAILED
from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD as RED
from agiledart_cli.output import GOOD, duration, output_option, paint, plural, print_json, print_message
from agiledart_cli.output import WATCH as YELLOW
from agiledart_cli.verbs import machine_checks
from agiledart_cli.verbs.application_view import BEGUN_STATES, mostly_malformed, waiting_text
from agiledart_cli.verbs.machine_checks import BAD, OK, WATCH, DoctorFinding
from agiledart_control.agent_place import find_agent
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import Info, ListApplications, Nodes, Status

COLOURS = {OK: GOOD, WATCH: YELLOW, BAD: RED}

MAX_NODES_ASKED = 50
"""Greatest number of applications whose figures are checked: the last ones of the list."""

SLOW_SECONDS = 1.0
"""Response time from which on an agent counts as slow; a healthy agent needs milliseconds."""


@click.command(short_help="Check this machine, its agent and the ring for problems.")
@click.option("--config", "config_file", metavar="FILE", help="TOML file with a table [agent], as for `agent`.")
@agent_options
@output_option
def doctor(config_file: str | None, agent: str | None, identity: str | None, output: str) -> int:
    """Check this machine, its agent and the ring: one line for each check (ok, watch, bad), with a suggestion.

    \b
    Example:
      agiledart doctor
      agiledart doctor --agent pi1:9464 --identity @reader.token -o json

    Checks Python and packages, clock, ports, state directory, disk, memory, limits, Java for Spark, the agent and its ring.
    Changes nothing. Exit code 1 when a check is bad.
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
    """Return the findings about this machine, which need no agent."""
    findings = [machine_checks.check_python(), machine_checks.check_packages(), machine_checks.check_clock()]
    findings.append(machine_checks.check_libp2p())
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
        confinement = machine_checks.check_confinement(settings.confine)
        findings += [confinement, machine_checks.check_interpreter(confinement.level == machine_checks.OK)]
        findings.append(machine_checks.check_forking(settings.fork_executors, share=settings.executors_share))
        findings += machine_checks.check_token_files([Path.home(), Path.cwd(), settings.state_dir.parent])
    return [
        *findings,
        machine_checks.check_share(),
        machine_checks.check_memory(),
        machine_checks.check_limits(),
        machine_checks.check_load(),
        machine_checks.check_java(),
    ]


def _own_pid(state_dir: Path) -> int | None:
    """Return the process id of the agent that runs in this state directory; None when none runs."""
    from agiledart_control.agent_place import AGENT_FILE, is_running, read_note

    note = read_note(state_dir / AGENT_FILE)
    pid = None if note is None else note.get("pid")
    return pid if isinstance(pid, int) and is_running(pid) else None


def _asked(agent: str | None, identity: str | None) -> list[DoctorFinding]:
    """Return the findings about an agent, its ring and its applications."""
    try:
        place = find_agent(agent, notify=print_message)
        began = time.monotonic()
        with ControlClient(place, identity) as client:
            info = client.ask(Info())
            seconds = time.monotonic() - began
            findings = [_agent(info, seconds), *_reachability(info)]
            with contextlib.suppress(CommandRefusedError):  # not in a ring yet: `_agent` reports that
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
    agent = f"{info['name']} at {info['address']}"
    if not info["joined"]:
        return DoctorFinding("agent", BAD, f"{agent} is in no ring", "read its log; start it again with --join @FILE")
    if info["is_leaving"]:
        return DoctorFinding("agent", WATCH, f"{agent} is leaving", "wait until it has ended")
    if info.get("is_draining"):
        return DoctorFinding(
            "agent", WATCH, f"{agent} was drained and accepts no work", f"agiledart drain {info['name']} --undo"
        )
    if seconds > SLOW_SECONDS:
        return DoctorFinding(
            "agent", WATCH, f"{agent} took {duration(seconds)} to answer", "check the load of its machine"
        )
    return DoctorFinding("agent", OK, f"{agent} answers in {seconds * 1000:.0f} ms")


def _reachability(info: dict[str, Any]) -> list[DoctorFinding]:
    """Return a finding on dials to this agent; none on a machine of its own and for agents of earlier versions."""
    known = info.get("reachability") or {}
    text = known.get("text", "")
    if not text:
        return []
    if known["open"] is not False or known["held_by"]:
        return [DoctorFinding("dials", OK, text)]
    port = info["address"].rpartition(":")[2]
    advice = (
        f"let the router pass TCP port {port} on to this machine, or run an agent that others can dial, on a VM say"
    )
    return [DoctorFinding("dials", BAD, text, advice)]


def _ring(response: dict[str, Any]) -> DoctorFinding:
    if isolation := response.get("isolation_warning"):
        text, _, advice = isolation.partition(". ")
        return DoctorFinding("ring", BAD, text, advice or "check the network between this machine and the other nodes")
    silent = [node["name"] for node in response["nodes"] if not node["answers"]]
    if silent:
        advice = "check whether they run and are reachable; a dead node leaves the ring by itself"
        return DoctorFinding(
            "ring", WATCH, f"{', '.join(silent)} of {plural(response['known'], 'node')} do not answer", advice
        )
    if refused := response.get("refused"):
        reasons = ", ".join(f"{count:,} × {reason}" for reason, count in sorted(refused.items()))
        advice = "if it was a node of yours, check its clock, version and token"
        return DoctorFinding("ring", WATCH, f"{plural(response['known'], 'node')}; refused here: {reasons}", advice)
    return DoctorFinding("ring", OK, plural(response["known"], "node"))


def _clocks(response: dict[str, Any]) -> list[DoctorFinding]:
    """Return a finding for each node whose clock differs from most clocks."""
    advice = "set the clock on that node: sudo timedatectl set-ntp true; a node more than 5 min off gets no work"
    return [DoctorFinding("clocks", BAD, text, advice) for text in response.get("clocks") or ()]


def _applications(response: dict[str, Any]) -> list[DoctorFinding]:
    rows = response["applications"]
    failed = [row["name"] for row in rows if row["state"] == "failed"]
    live = sum(row["state"] in (*BEGUN_STATES, "deploying") for row in rows)
    if failed:
        advice = f"see why: agiledart status {failed[0]}"
        return [DoctorFinding("applications", WATCH, f"{live} running, failed: {', '.join(failed)}", advice)]
    return [DoctorFinding("applications", OK, f"{live} running")]


def _inputs(client: ControlClient, response: dict[str, Any]) -> list[DoctorFinding]:
    """Return a finding for each cause for which an application waits, and for each whose records are mostly malformed."""
    names = [row["name"] for row in response["applications"] if row["state"] in (*BEGUN_STATES, "finished")]
    findings: list[DoctorFinding] = []
    for name in names[-MAX_NODES_ASKED:]:
        with contextlib.suppress(OperationFailed):  # it was removed in the meantime
            status = client.ask(Status(name))
            findings += [
                DoctorFinding("waiting", WATCH, f"{name}: {waiting_text(row)}", row["advice"])
                for row in harmless_document(status).get("waiting", ())
            ]
            summary = status.get("summary") or {}
            if mostly_malformed(summary):
                malformed = sum(summary["malformed"].values())
                text = f"{name}: {malformed:,} of {summary.get('records_in', 0):,} records it read are malformed"
                findings.append(DoctorFinding("input", WATCH, text, f"see why: agiledart logs {name}"))
    return findings
