"""`agiledart agent`: run this node's agent in the foreground."""

import os
import sys
from pathlib import Path

import click

from agiledart_cli.output import output_option, print_json


@click.command(short_help="Run this node's agent: found a network, or join one.")
@click.option("--join", metavar="TOKEN|@FILE|-", help="Join a network with this token (- reads it from stdin).")
@click.option(
    "--new-network",
    is_flag=True,
    default=None,
    help="Found a network although this node was a member of one that it cannot reach.",
)
@click.option(
    "--leave-previous-network",
    is_flag=True,
    default=None,
    help="With --join: leave a network of one node that never ran an application.",
)
@click.option("--preset", metavar="NAME", help="paper: the values of AgileDart's paper; own settings win.")
@click.option("--name", help="Name of this node. Default: the host's name.")
@click.option("--listen", metavar="HOST:PORT", help="Address for links of other nodes; port 0 is any free port.")
@click.option(
    "--advertise", metavar="HOST:PORT", help="Address at which other nodes reach this one, if it differs from --listen."
)
@click.option(
    "--metrics", metavar="HOST:PORT", help="Address for Prometheus; port 0 is any free port, empty turns it off."
)
@click.option("--zone", help="Failure and latency zone, for example a room or a city.")
@click.option(
    "--host",
    help="Name of the machine; copies go to different machines. Default: the same for all agents here.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME",
    help="Ability of this node that steps may need, such as gpu; may be repeated.",
)
@click.option("--cores", type=int, help="Number of cores for this node. Default: all cores of the machine.")
@click.option("--capacity", type=int, help="Greatest number of operator instances. Default: from memory and cores.")
@click.option("--executors", type=int, help="Worker processes of an application on this node.")
@click.option("--state-dir", metavar="DIR", help="Directory of key, grants and known peers; for one agent at a time.")
@click.option("--config", "config_file", metavar="FILE", help="TOML file with a table [agent]; flags take precedence.")
@click.option("--check", is_flag=True, help="Print the effective settings and exit.")
@click.option("--log-format", type=click.Choice(["console", "json"]), help="Format of log lines.")
@click.option("--parent-fd", type=int, metavar="N", help="End when this pipe closes (for programs that start agents).")
@click.option("-v", "--verbose", is_flag=True, default=None, help="Log every message.")
@output_option
def agent(config_file: str | None, check: bool, output: str, labels: tuple[str, ...], **flags: object) -> int:
    """Run this node's agent: found a network, or join one.

    \b
    Example, two machines:
      pi1$ agiledart agent --listen 192.168.1.20:9464
           (starts a network and prints a token)
      pi2$ agiledart agent --listen 192.168.1.21:9464 --join -
           (asks for the token and joins the ring; a restart needs none)

    Without --listen an agent listens on the loopback interface. It reads settings from flags, then from the environment
    (AGILEDART_AGENT__ZONE=attic), then from --config, then defaults. SIGTERM or Ctrl-C drains it and ends it.
    """
    if sys.flags.optimize:
        raise click.UsageError("The agent verifies itself with assertions; run it without python -O.")
    from agiledart_agent.settings import AgentSettings

    flags["labels"] = ",".join(labels) or None
    settings = AgentSettings.load(flags, os.environ, Path(config_file) if config_file else None)
    if check:
        shown = {name: str(value) for name, value in vars(settings).items()}
        shown["join"] = "(given)" if settings.join else ""
        if output == "json":
            print_json(shown)
        else:
            for name, value in shown.items():
                click.echo(f"{name} = {value}")
        return 0
    from agiledart_agent.daemon import run_agent

    return run_agent(settings)
