"""Options that several verbs share."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from agiledart_cli.builder_names import SETTING
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.limits import MAX_PARALLELISM
from agiledart_node.wire.commands import RequestedParallelism

F = TypeVar("F", bound=Callable[..., Any])


def not_empty(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Reject an empty text given on the command line; an unset shell variable often causes it."""
    if not value and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
        raise click.BadParameter("the value is empty; omit the option for its default.")
    return value


def _each_once(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    names = [text.partition("=")[0].strip() for text in value]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is set {names.count(name)} times.")
    return value


def _or_environment(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of `--agent` or of `AGILEDART_AGENT`; None when both are empty."""
    return value or os.environ.get("AGILEDART_AGENT") or None


def set_option(command: F) -> F:
    """Add the option `--set NAME=VALUE` to a command."""
    return click.option(
        "--set",
        "settings",
        type=SETTING,
        multiple=True,
        callback=_each_once,
        metavar="NAME=VALUE",
        help="Set a parameter of the function; may be repeated. Sources and sinks: csv:FILE, csv:FILE?speed=60, stdout: …",
    )(command)


def parallelism_option(command: F) -> F:
    """Add the option `--parallelism N|STEP=N|STEP=1..8` to a command."""
    return click.option(
        "--parallelism",
        multiple=True,
        metavar="N|STEP=N|STEP=1..8",
        help="Number of instances of each parallel step, or of one step; may be repeated. "
        "With limits the plan allows the higher number, and the step starts with the lower one.",
    )(command)


def agent_options(command: F) -> F:
    """Add the options `--agent` and, for an agent on another machine, `--identity` to a command."""
    command = click.option(
        "--identity",
        metavar="NAME|TOKEN|@FILE",
        default=None,
        help="Your identity for an agent at HOST:PORT: a token of the role submitter, reader or admin, or the name of an identity.",
    )(command)
    return click.option(
        "--agent",
        "agent",
        metavar="DIR|SOCKET|NAME|HOST:PORT",
        envvar="AGILEDART_AGENT",
        default=None,
        callback=_or_environment,
        is_eager=True,  # names of applications and nodes are asked of it
        help="Which agent to ask; NAME: of `agiledart up`. Default: AGILEDART_AGENT, else the agent in the default state "
        "directory, else the first of a running mesh of `agiledart up`.",
    )(command)


def parse_parallelism(texts: Sequence[str]) -> dict[str, RequestedParallelism]:
    """Return `["4", "count=1..8"]` as `{"": 4, "count": (1, 8)}`; the empty name is every step. Raises `ConfigurationError`."""
    from agiledart_dataflow.plan.parallelism_request import parse_limits

    chosen: dict[str, RequestedParallelism] = {}
    for text in texts:
        step, equals, number = text.rpartition("=")
        asked = parse_limits(number)
        if asked is None or (equals and not step):
            raise ConfigurationError(
                f"--parallelism {text}: write --parallelism N or --parallelism STEP=N, N from 1 to {MAX_PARALLELISM}, "
                "or limits as 1..8, the lower number first"
            )
        chosen[step] = asked
    return chosen


def parallelism_by_step(
    specification: Any, chosen: Mapping[str, RequestedParallelism]
) -> dict[str, RequestedParallelism]:
    """Return the request with the number for every step expanded: one step for each parallel stage."""
    from agiledart_dataflow.plan.stages import expand_parallelism

    return expand_parallelism(specification, chosen)
