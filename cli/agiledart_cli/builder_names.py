"""Types of arguments about users' builders: a shell completes the file, its functions and their parameters, and runs none."""

import ast
import contextlib
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from agiledart_kernel.errors import AgileDartError


class BuilderName(click.types.StringParamType):
    """`FILE:NAME`, or a file of SQL or YAML: a shell completes the file, then the functions in it."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the files that begin so; behind a colon the functions of the file, without running it."""
        file, colon, begun = incomplete.rpartition(":")
        if not colon:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(f"{file}:{name}") for name in _functions(file) if name.startswith(begun)]


class SettingName(click.types.StringParamType):
    """`NAME=VALUE`: a shell completes the parameters of the builder in the same command line, then a file."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the parameters that begin so and are not set yet."""
        if "=" in incomplete:
            return [CompletionItem(incomplete, type="file")]
        given = {text.partition("=")[0] for text in ctx.params.get(str(param.name)) or ()}
        names = parameters_of(target) if (target := _target(ctx)) else []
        return [CompletionItem(f"{name}=") for name in names if name.startswith(incomplete) and name not in given]


def _target(context: click.Context) -> str:
    """Return the builder in the command line; empty when there is none.

    While an option waits for its value, click has not given the words without an option to arguments yet.
    """
    arguments = [known for known in context.command.params if isinstance(known, click.Argument)]
    for place, argument in enumerate(arguments):
        if isinstance(argument.type, BuilderName):
            return context.params.get(str(argument.name)) or "".join(context.args[place : place + 1])
    return ""


def parameters_of(target: str) -> list[str]:
    """Return the parameters of a builder, read from its text; none when there is no such file or function."""
    from agiledart_executor.query_files.file_kinds import BUILDER as QUERY_BUILDER
    from agiledart_executor.query_files.file_kinds import is_query_file

    file, _, name = (target, "", QUERY_BUILDER) if is_query_file(target) else target.rpartition(":")
    functions = _functions(file or target)
    if not name or not file:
        (name,) = functions if len(functions) == 1 else ("",)
    arguments = functions.get(name)
    return [] if arguments is None else [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]


def _functions(target: str) -> dict[str, ast.arguments]:
    """Return the functions of a file, by name; none when it cannot be read. SQL and YAML become Python first."""
    from agiledart_executor.query_files.file_kinds import is_query_file

    file = Path(target).expanduser()
    with contextlib.suppress(OSError, SyntaxError, ValueError, ImportError, AgileDartError):
        if is_query_file(target):
            from agiledart_executor.query_files.query_file import python_source

            tree = ast.parse(python_source(file.resolve(), target))
        else:
            tree = ast.parse(file.read_bytes())
        return {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {}


BUILDER = BuilderName()
SETTING = SettingName()
