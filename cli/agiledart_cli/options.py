"""Options that several verbs share."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.limits import MAX_PARALLELISM

F = TypeVar("F", bound=Callable[..., Any])


def not_empty(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """For options of which an empty text is a mistake, most often of a variable that is not set."""
    if not value and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
        raise click.BadParameter("it is empty; leave the option out for its default.")
    return value


def _each_once(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    names = [text.partition("=")[0].strip() for text in value]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is set {names.count(name)} times.")
    return value


def _or_environment(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """An empty `--agent` counts as none."""
    return value or os.environ.get("AGILEDART_AGENT") or None


def set_option(command: F) -> F:
    """`--set NAME=VALUE`."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        callback=_each_once,
        metavar="NAME=VALUE",
        help="A parameter of the function; may be repeated. Sources and sinks: csv:FILE, csv:FILE?speed=60, stdout: …",
    )(command)


def parallelism_option(command: F) -> F:
    """`--parallelism N` or `--parallelism STEP=N`."""
    return click.option(
        "--parallelism",
        multiple=True,
        metavar="N|STEP=N",
        help="Instances of each step that may have several, or of one step; may be repeated.",
    )(command)


def agent_options(command: F) -> F:
    """`--agent` and, for an agent on another machine, `--identity`."""
    command = click.option(
        "--identity",
        metavar="TOKEN|@FILE",
        default=None,
        help="What proves who you are to an agent at HOST:PORT: a token with the role submitter, reader or admin.",
    )(command)
    return click.option(
        "--agent",
        "agent",
        metavar="DIR|SOCKET|HOST:PORT",
        envvar="AGILEDART_AGENT",
        default=None,
        callback=_or_environment,
        help="Which agent to ask. Default: the one in the usual state directory, else the first of a running mesh "
        "of `agiledart up`.",
    )(command)


def parse_parallelism(texts: Sequence[str]) -> dict[str, int]:
    """`["4", "count=2"]` as `{"": 4, "count": 2}`; the empty name is every step. Raises `ConfigurationError`."""
    chosen: dict[str, int] = {}
    for text in texts:
        step, equals, number = text.rpartition("=")
        is_number = number.isascii() and number.isdigit() and 1 <= int(number) <= MAX_PARALLELISM
        if not is_number or (equals and not step):
            raise ConfigurationError(
                f"--parallelism {text}: write --parallelism N or --parallelism STEP=N, N from 1 to {MAX_PARALLELISM}"
            )
        chosen[step] = int(number)
    return chosen


def parallelism_by_step(specification: Any, chosen: Mapping[str, int]) -> dict[str, int]:
    """What was chosen, with the number for every step written out, one step for each stage that may have several."""
    from agiledart_dataflow.plan.stages import plan_stages

    named = {step: number for step, number in chosen.items() if step}
    everywhere = chosen.get("", 1)
    if everywhere == 1:
        return named
    for stage in plan_stages(specification, named).stages:
        steps = [specification.steps[index] for index in stage.steps]
        if not any(step.traits.runs_once or step.name in named for step in steps):
            named[steps[0].name] = everywhere
    return named
