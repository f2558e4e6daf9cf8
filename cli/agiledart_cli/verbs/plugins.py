"""`agiledart plugins`: list the available sources, sinks and formats."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from agiledart_cli.output import BAD, WATCH, output_option, paint, print_json, print_table

if TYPE_CHECKING:
    from agiledart_connectors.plugins import Plugin


@click.group(short_help="List the available sources, sinks and formats.")
def plugins() -> None:
    """List the available sources, sinks and formats, including those of other installed packages.

    \b
    Example:
      agiledart plugins list
    """


@plugins.command("list", short_help="List them with package, version and guarantee.")
@output_option
def list_plugins(output: str) -> int:
    """List sources, sinks and formats with their package, version and guarantee.

    \b
    Example:
      agiledart plugins list
      agiledart plugins list -o json

    A package adds a source, sink or format by an entry point in the group agiledart.sources, agiledart.sinks or
    agiledart.codecs. A broken plugin is listed with its fault. With -o json the list also has the options of each.
    """
    from agiledart_connectors.plugins import all_plugins

    known_plugins = all_plugins()
    if output == "json":
        print_json({"plugins": [asdict(plugin) for plugin in known_plugins]})
        return 0
    for role in ("source", "sink", "format"):
        heads = [role, "from", "version", "after a failure" if role != "format" else "", "about"]
        print_table(heads, [_line(plugin) for plugin in known_plugins if plugin.role == role])
        click.echo()
    return 0


def _line(plugin: "Plugin") -> list[str]:
    about = plugin.what
    if plugin.fault:
        about = paint(plugin.fault, BAD)
    elif plugin.extra:
        about += "   " + paint(f"not installed:  pip install '{plugin.extra}'", WATCH)
    duplicates = plugin.guarantee.duplicates if plugin.guarantee is not None else ""
    return [plugin.name, plugin.origin, plugin.version, duplicates, about]
