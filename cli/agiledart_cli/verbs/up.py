"""`agiledart up`: run a temporary mesh until Ctrl-C."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import click

from agiledart_agent.settings import default_state_dir
from agiledart_cli.errors import FAILED
from agiledart_cli.output import BAD, WATCH, duration, output_option, plural, print_json, print_message, print_table
from agiledart_cli.signals import unwound_by_signals
from agiledart_cli.verbs.cluster import MAX_AGENTS, Mesh
from agiledart_control.agent_place import MESH_FILE, NOTIFIED_FILE, default_agent, is_running, read_note

_LOOK_SECONDS = 0.2


@click.command(short_help="Run a temporary mesh of agents on this machine.")
@click.option("--agents", type=click.IntRange(1, MAX_AGENTS), default=3, show_default=True, help="Number of agents.")
@click.option(
    "--executors", type=click.IntRange(1, 64), default=1, show_default=True, help="Worker processes of each agent."
)
@output_option
def up(agents: int, executors: int, output: str) -> int:
    """Run a temporary mesh of agents on this machine, until Ctrl-C.

    \b
    Example:
      agiledart up --agents 5
      (in another terminal)
      agiledart submit taxi.py:frequent_routes --set trips=csv:trips.csv.gz
      agiledart status frequent-routes

    Other commands find its first agent automatically, unless another agent runs in the default state directory. --agent a2 or
    the environment variable AGILEDART_AGENT chooses one. The agents are a1, a2, …; try kill -9 on one of them.
    When `up` ends, it removes all processes, sockets and files.
    """
    began = time.monotonic()
    with unwound_by_signals(), Mesh(agents, executors) as mesh:
        print_message(f"Starting {plural(agents, 'agent')} …")
        mesh.start()
        print_message(f"ring of {agents} formed in {duration(time.monotonic() - began)}")
        rows = [
            {
                "name": agent.name,
                "pid": agent.process.pid,
                "address": str(agent.note.get("address", "")),
                "state_dir": str(agent.folder),
            }
            for agent in mesh.agents
        ]
        with _announced([row["state_dir"] for row in rows]):
            if output == "json":
                print_json({"agents": rows})
            else:
                print_table(
                    ["agent", "pid", "links at", "state directory"], [list(row.values()) for row in rows], ["pid"]
                )
            usual = default_agent()
            if usual is None:
                print_message("Other commands find this mesh automatically. Ctrl-C stops everything.")
            else:
                print_message(
                    f"Other commands use the agent {usual.name} ({usual}) that runs already. To use this mesh: --agent"
                    f" {mesh.agents[0].name}, or export AGILEDART_AGENT={mesh.agents[0].name}. Ctrl-C stops everything.",
                    colour=WATCH,
                )
            return _watch(mesh)


def _watch(mesh: Mesh) -> int:
    """Report each agent that ends, until all have ended."""
    alive = list(mesh.agents)
    while alive:
        time.sleep(_LOOK_SECONDS)
        for agent in [agent for agent in alive if not agent.is_alive]:
            alive.remove(agent)
            print_message(f"{agent.name} {agent.ending()}", colour=BAD)
    print_message("No agent is left.")
    return FAILED


@contextlib.contextmanager
def _announced(folders: list[object]) -> Iterator[None]:
    """Write a note into the user's state directory, so that other commands find the mesh; a running mesh keeps its note."""
    path = default_state_dir() / MESH_FILE
    other = read_note(path)
    written = False
    if other is None or not is_running(other.get("pid")):
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(json.dumps({"pid": os.getpid(), "agents": folders}))
            written = True
    if not written:
        print_message(
            f"Another mesh is already running (or {path.parent} is read-only): use --agent {Path(str(folders[0]))}"
        )
    try:
        yield
    finally:
        if written:
            path.unlink(missing_ok=True)
            path.with_name(NOTIFIED_FILE).unlink(missing_ok=True)
