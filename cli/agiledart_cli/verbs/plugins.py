"""`agiledart plugins`: list the available sources, sinks and formats."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from agiledart_cli.output import BAD, WATCH, output_option, paint, print_json, print_table
from agiledart_kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from agiledart_connectors.plugins import Plugin


@click.group(short_help="List the available sources, sinks and formats.")
def plugins() -> None:
    """List the available sources, sinks and formats, including those of other installed packages.

    \b
    Example:
      agiledart plugins list
      agiledart plugins show csv
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
        rows = [_line(plugin) for plugin in known_plugins if plugin.role == role]
        print_table(heads, rows, cuts=(1, 0), wraps=(3, 4))
        click.echo()
    return 0


@plugins.command("show", short_help="Explain the options of a kind of source or sink.")
@click.argument("kind")
@output_option
def show_plugin(kind: str, output: str) -> int:
    """Explain the options of a kind of source or sink.

    \b
    Example:
      agiledart plugins show csv
      agiledart plugins show mqtt -o json

    For kinds of other packages it lists the options only.
    """
    from agiledart_connectors.opening import PACING
    from agiledart_connectors.option_texts import option_text
    from agiledart_connectors.plugins import all_plugins

    plugins = [plugin for plugin in all_plugins() if plugin.role != "format"]
    shown = [plugin for plugin in plugins if plugin.name == kind.rstrip(":")]
    if not shown:
        from difflib import get_close_matches

        names = sorted({plugin.name for plugin in plugins})
        close = get_close_matches(kind, names, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise ConfigurationError(f"There is no source or sink {kind!r}.{meant} Kinds: {', '.join(names)}")
    explained = [
        {
            "role": plugin.role,
            "options": {
                option: option_text(plugin.role, plugin.name, option)
                for option in (*plugin.options, *(PACING if plugin.role == "source" else ()))
            },
        }
        for plugin in shown
    ]
    if output == "json":
        print_json({"kind": shown[0].name, "roles": explained})
        return 0
    for plugin, row in zip(shown, explained, strict=True):
        click.echo(f"{plugin.role} {plugin.name}: {plugin.what}")
        print_table(["option", "meaning"], list(row["options"].items()), wraps=(1,))  # type: ignore[attr-defined]  # a dict
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
