"""`agiledart config show`: show the settings of an agent on this machine, and the origin of each."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agiledart_cli.output import output_option, print_json, print_table

if TYPE_CHECKING:
    from agiledart_agent.paper_preset import PresetValue

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
    """Show each setting with its value: flags take precedence over environment, file, preset and default. Secrets are hidden.

    With a preset, the values that it gives to the node follow, each with its section of the paper.

    \b
    Example:
      agiledart config show
      AGILEDART_AGENT__ZONE=attic agiledart config show --origin
      agiledart config show --config /etc/agiledart.toml --origin -o json
    """
    from agiledart_agent.paper_preset import SETTINGS, node_values
    from agiledart_agent.settings import AgentSettings

    settings, origins = AgentSettings.explained({}, os.environ, Path(config_file) if config_file else None)
    values: dict[str, object] = {}
    for name in origins:
        value = vars(settings)[name]
        if name in SECRETS:
            value = "(hidden)" if value else ""
        values[name] = str(value) if isinstance(value, Path) else value
    preset = f"preset {settings.preset}"
    of_paper = {f"agent.{name}": SETTINGS[name] for name in values if origins[name] == preset}
    figures = {f"agent.{name}": (value, origins[name]) for name, value in values.items()}
    for name, given in node_values(settings.preset, settings.scaling_policy).items():
        figures[name], of_paper[name] = (given.value, preset), given
    if output == "json":
        body: dict[str, dict[str, object]] = {
            name: {"value": value, "origin": where} for name, (value, where) in figures.items()
        }
        for name, given in of_paper.items():
            body[name] |= {"section": given.section, "is_printed": given.is_printed}
        print_json(body)
    elif origin:
        print_table(["setting", "value", "from"], [[n, _text(value), where] for n, (value, where) in figures.items()])
    else:
        for name, (value, _) in figures.items():
            click.echo(f"{name} = {_text(value)}{_section(of_paper.get(name))}".rstrip())


def _section(given: "PresetValue | None") -> str:
    if given is None:
        return ""
    origin = "" if given.is_printed else "; the value is this project's"
    return f"   (paper, section {given.section}{origin})"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
