"""`agiledart config show`: show the settings of an agent on this machine, and the origin of each."""

import os
from pathlib import Path

import click

from agiledart_cli.output import output_option, print_json, print_table

SECRETS = ("join",)
"""Settings whose value is never printed."""


@click.group(short_help="Show the settings of an agent on this machine.")
def config() -> None:
    """Show the settings that an agent on this machine would use.

    \b
    Example:
      agiledart config show --origin
    """


@config.command(short_help="Show each setting with its value.")
@click.option("--config", "config_file", metavar="FILE", help="TOML file with a table [agent], as for `agent`.")
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@output_option
def show(config_file: str | None, origin: bool, output: str) -> None:
    """Show each setting with its value: flags take precedence over environment, file and default. Secrets are hidden.

    \b
    Example:
      agiledart config show
      AGILEDART_AGENT__ZONE=attic agiledart config show --origin
      agiledart config show --config /etc/agiledart.toml --origin -o json
    """
    from agiledart_agent.settings import AgentSettings

    settings, origins = AgentSettings.explained({}, os.environ, Path(config_file) if config_file else None)
    values: dict[str, object] = {}
    for name in origins:
        value = vars(settings)[name]
        if name in SECRETS:
            value = "(hidden)" if value else ""
        values[name] = str(value) if isinstance(value, Path) else value
    if output == "json":
        body = {f"agent.{name}": value for name, value in values.items()}
        print_json({key: {"value": value, "origin": origins[key[6:]]} for key, value in body.items()})
    elif origin:
        rows = [[f"agent.{name}", _text(value), origins[name]] for name, value in values.items()]
        print_table(["setting", "value", "from"], rows)
    else:
        for name, value in values.items():
            click.echo(f"agent.{name} = {_text(value)}".rstrip())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
