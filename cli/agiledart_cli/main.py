"""Entry point of the command line: the table of verbs, and the conversion of errors to messages and exit codes."""

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence

import click

from agiledart_cli import standard_output
from agiledart_cli.errors import FAILED, INTERRUPTED, TERMINATED, TerminatedError, exit_code_of
from agiledart_kernel.errors import AgileDartError, InternalError
from agiledart_kernel.version import VERSION

VARIABLE = "_AGILEDART_COMPLETE"
"""Environment variable by which a shell requests completions; click prescribes its name."""

VERBS: dict[str, tuple[str, str]] = {
    "demo": ("agiledart_cli.demo.demo:demo", "Five agents compute the busiest taxi routes, live."),
    "init": ("agiledart_cli.verbs.init:init", "Make a folder with a first application, its test and data."),
    "run": ("agiledart_cli.verbs.run:run", "Run a topology here, in one process, without a mesh."),
    "up": ("agiledart_cli.verbs.up:up", "Run a temporary mesh of agents on this machine."),
    "agent": ("agiledart_cli.verbs.agent:agent", "Run this node's agent: found a network, or join one."),
    "setup": ("agiledart_cli.verbs.setup:set_up_service", "Run this machine's agent as a service of systemd."),
    "submit": ("agiledart_cli.verbs.submit:submit", "Run a topology on the mesh."),
    "list": ("agiledart_cli.verbs.applications:list_applications", "List all applications of the network."),
    "status": ("agiledart_cli.verbs.applications:status", "Show the state of an application and where it runs."),
    "stop": ("agiledart_cli.verbs.applications:stop", "Stop an application: drain it, or end it at once with --now."),
    "scale": (
        "agiledart_cli.verbs.changing_stages:scale",
        "Change the number of instances of a stage while rows flow.",
    ),
    "move": ("agiledart_cli.verbs.changing_stages:move", "Move a stage to another node while rows flow."),
    "drain": (
        "agiledart_cli.verbs.changing_stages:drain",
        "Move all work off a node; it then leaves the ring, or stays.",
    ),
    "model": ("agiledart_cli.verbs.model_verb:model", "Send a model to the nodes of an application while rows flow."),
    "checkpoint": (
        "agiledart_cli.verbs.state.checkpoint_verbs:checkpoint",
        "List, take, export and restore checkpoints.",
    ),
    "forget": ("agiledart_cli.verbs.applications:forget", "Remove an application that has ended from `list`."),
    "ban": ("agiledart_cli.verbs.network:ban", "Ban a node, a key or a token from the network."),
    "unban": ("agiledart_cli.verbs.network:unban", "Revoke a ban."),
    "bans": ("agiledart_cli.verbs.network:bans", "List the bans, also those that have ended."),
    "secret": (
        "agiledart_cli.verbs.access.secret_verbs:secret",
        "Manage the passwords of connectors on nodes.",
    ),
    "audit": (
        "agiledart_cli.verbs.access.audit_verb:audit",
        "Show who requested what, from where, and whether it was permitted.",
    ),
    "identity": ("agiledart_cli.verbs.identities:identity", "Manage your identities for agents on other machines."),
    "share": ("agiledart_cli.verbs.applications:share", "Permit another key to manage an application."),
    "logs": ("agiledart_cli.verbs.applications:logs", "Show the output of an application's code on all nodes."),
    "top": ("agiledart_cli.top.top:top", "Show applications, steps and nodes, live."),
    "web": ("agiledart_cli.web.web_verb:web", "Show the mesh in a browser of this machine."),
    "explain": ("agiledart_cli.verbs.explain:explain", "Explain scaling decisions, routes and the cost of failures."),
    "tap": ("agiledart_cli.verbs.tap:tap", "Show a live sample of the rows that leave a step."),
    "nodes": ("agiledart_cli.verbs.network:nodes", "List the nodes that an agent knows."),
    "route": ("agiledart_cli.verbs.network:route", "Show the hops of a key over the ring."),
    "doctor": ("agiledart_cli.verbs.doctor:doctor", "Check this machine, its agent and the ring for problems."),
    "config": ("agiledart_cli.verbs.config:config", "Show the settings of an agent on this machine."),
    "schema": ("agiledart_cli.verbs.application_schema:schema", "Print the JSON Schema of applications in YAML."),
    "plugins": ("agiledart_cli.verbs.plugins:plugins", "List the available sources, sinks and formats."),
    "completion": ("agiledart_cli.verbs.completion:completion", "Print a completion script for a shell."),
    "provision": (
        "agiledart_cli.verbs.provisioning.provision_verbs:provision",
        "Lease machines for a mesh, and calculate what that costs.",
    ),
    "analytics": ("agiledart_cli.verbs.analytics:analytics", "Run PySpark jobs on the results in sink logs."),
    "spark": ("agiledart_cli.verbs.spark_servers:spark", "Stop the Spark that --keep-spark left running."),
    "feed": ("agiledart_cli.verbs.feeds:feed", "Manage feeds: logs that take rows from Spark, for applications."),
    "pipeline": ("agiledart_cli.verbs.pipeline:pipeline", "Keep tables up to date from sink logs, with Spark."),
    "experiment": (
        "agiledart_cli.verbs.experiment:experiment",
        "Repeat the measurements of the papers on this machine.",
    ),
    "place": (
        "agiledart_cli.verbs.placement.place_verb:place",
        "Compute where operators should run, off line, and compare strategies.",
    ),
    "simulate": ("agiledart_cli.verbs.simulate:simulate", "Run a simulated ring with faults, repeatable from a seed."),
    "token": ("agiledart_cli.verbs.access.join_tokens:token", "Create join tokens, list their members, revoke them."),
}
"""Verb → module and name of its command, and its line in the overview."""


GROUPS: dict[str, tuple[str, ...]] = {
    "Begin": ("demo", "init", "run", "up", "agent", "setup"),
    "Applications": ("submit", "list", "status", "logs", "tap", "stop", "forget"),
    "Change them while rows flow": ("scale", "move", "drain", "model", "checkpoint"),
    "Look closer": ("top", "web", "explain", "place", "doctor", "nodes", "route"),
    "Permissions": ("identity", "token", "share", "secret", "ban", "unban", "bans", "audit"),
    "Work with the results": ("analytics", "pipeline", "feed", "spark"),
    "Experiments": ("experiment", "simulate"),
    "This program": ("config", "schema", "plugins", "completion"),
}
"""Sections of the overview → their verbs; the last one has all others, too."""


class LazyGroup(click.Group):
    """Group of commands that imports a command only when it runs or shows its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in VERBS and not ctx.resilient_parsing:
            raise click.UsageError(unknown_verb(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text("agiledart VERB --help starts with an example.")
        width = max(map(len, VERBS)) + 2
        *_, last = GROUPS
        grouped = [name for verbs in GROUPS.values() for name in verbs]
        others = tuple(name for name in VERBS if name not in grouped)
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                names = verbs + others if title == last else verbs
                formatter.write_dl([(name.ljust(width - 2), VERBS[name][1]) for name in names])


def unknown_verb(word: str) -> str:
    """Return the error message for an unknown verb, with the closest known verb."""
    from difflib import get_close_matches

    close = get_close_matches(word, VERBS, 1)
    meant = f" Did you mean {close[0]}?" if close else ""
    return f'There is no verb "{word}".{meant} Verbs: {", ".join(VERBS)}'


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"agiledart {VERSION} (Python {sys.version.split()[0]})")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Stream processing on the edge without a master.

    \b
    Look at it:      agiledart demo
    One process:     agiledart run taxi.py:frequent_routes --set trips=csv:trips.csv.gz
    A mesh here:     agiledart up, then in another terminal: agiledart submit …
    Two machines:    agiledart agent on the first; it prints what to type on the second

    Data goes to stdout, messages to stderr; verbs that print a table print JSON with -o json.
    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no agent reachable, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run_cli(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code. User errors never produce a traceback."""
    if VARIABLE in os.environ:
        from agiledart_cli.bash_completion import use_whole_words

        use_whole_words()
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments), prog_name="agiledart", standalone_mode=False
        )
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except TerminatedError:
        return TERMINATED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        return FAILED
    except standard_output.StandardOutputError as error:
        click.echo(str(error), err=True)
        return FAILED
    except InternalError as error:
        return _report_bug(error)
    except AgileDartError as error:
        click.echo(str(error), err=True)
        return exit_code_of(error)
    except Exception as error:  # noqa: BLE001  top of the process: an error that arrives here is a bug of AgileDart
        return _report_bug(error)


def _report_bug(error: BaseException) -> int:
    """Report a bug of AgileDart, and write the traceback to a file."""
    import tempfile

    trace = "".join(traceback.format_exception(error))
    with tempfile.NamedTemporaryFile("w", prefix="agiledart-bug-", suffix=".txt", delete=False) as file:
        file.write(f"{sys.argv}\n{sys.version}\n{trace}")
    last = traceback.format_exception_only(error)[-1].strip()
    click.echo(f"This is a bug in AgileDart, not your mistake: {last}\nPlease report it with {file.name}", err=True)
    return FAILED


def main() -> None:
    """Run the console script."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # set while modules were imported
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdout = standard_output.checked(sys.stdout)
        if sys.stderr is None:  # closed by the caller; click would write messages to stdout instead
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115  stays open until the process ends
        code = run_cli()
        error = standard_output.flush()
    except KeyboardInterrupt:  # before or after a verb runs
        code, error = INTERRUPTED, None
    if error is not None and not code:
        code = FAILED
        if not isinstance(error, BrokenPipeError):
            click.echo(str(error), err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
