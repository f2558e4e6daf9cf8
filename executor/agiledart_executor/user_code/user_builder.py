"""User code on its way from `FILE.py:NAME` on a command line to a topology on a node.

`load_builder` finds the code and `build` calls it with the settings of the command line. `make_bundle` packs what a node needs to
do the same, and `build_bundle` does it there. The program that runs a bundle compares `specification.digest()` with the submitted
digest.
"""

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from agiledart_dataflow.graph.topology import Topology
from agiledart_dataflow.plan.paths import Paths
from agiledart_dataflow.plan.specification import FORMAT
from agiledart_executor.query_files.file_kinds import BUILDER, is_query_file
from agiledart_executor.user_code.bundle import Bundle, check_bundle, decode_bundle, encode_bundle
from agiledart_executor.user_code.parameter import Parameter, check_names, parameters_of, parse_value
from agiledart_executor.user_code.user_connectors import as_connector, is_connector, make_absolute, without_passwords
from agiledart_executor.user_code.user_modules import (
    PREFIX,
    SHIPPED,
    UserModules,
    find_modules,
    import_private,
    shipped_modules,
)
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed, UserCodeError
from agiledart_kernel.limits import MAX_BUNDLE_BYTES
from agiledart_kernel.version import VERSION

__all__ = [
    "Bundle",
    "UserBuilder",
    "absolute_settings",
    "build",
    "build_bundle",
    "decode_bundle",
    "encode_bundle",
    "load_builder",
    "make_bundle",
    "modules_of",
]


@dataclass(frozen=True)
class UserBuilder:
    """Topology, or function that returns one, with the code around it.

    Attributes:
        target: as the user wrote it, for messages.
        entry: `module:name` inside `modules` or among the shipped examples.
        value: the `Topology` or the function.
    """

    target: str
    entry: str
    modules: UserModules
    value: Topology | Callable[..., Any]

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters that `--set` may set, in order."""
        return {} if isinstance(self.value, Topology) else parameters_of(self.value)


def load_builder(target: str, folder: Path | None = None) -> UserBuilder:
    """Load the builder that `FILE.py:NAME` or `dotted.module:NAME` names, from `folder` (default: the current one).

    Without `:NAME` the module's only topology is taken. A file of SQL or YAML has a single one, and no name.

    Raises:
        ConfigurationError: nothing has that name.
        UserCodeError: the module raised; holds the user's traceback.
    """
    folder = folder or Path.cwd()
    if is_query_file(target):
        return _load_query_file(target, folder)
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    root, entry = _locate(place, folder)
    modules = shipped_modules(entry) if root is None else find_modules(root, entry)
    module = _run_module(modules, entry, place)
    name = name or _only_builder(module, place)
    return UserBuilder(target, f"{entry}:{name}", modules, _named(module, name, place))


def _load_query_file(target: str, folder: Path) -> UserBuilder:
    """Translate an application in SQL or YAML to Python and load its builder."""
    from agiledart_executor.query_files.query_file import python_source

    file = (folder / target).expanduser().resolve()
    if not file.is_file():
        raise ConfigurationError(f"{target} does not exist (looked in {file.parent}).")
    source = python_source(file, target).encode()
    entry = f"query_{re.sub(r'[^A-Za-z0-9]', '_', file.stem)}"
    modules = find_modules(file.parent, entry, {f"{entry}.py": source})
    module = _run_module(modules, entry, target)
    return UserBuilder(target, f"{entry}:{BUILDER}", modules, _named(module, BUILDER, target))


def build(builder: UserBuilder, settings: Mapping[str, str], folder: Path | None = None) -> Topology:
    """Build the topology with these settings; relative paths of connectors start at `folder`.

    Raises:
        ConfigurationError: a setting is wrong.
        TopologyError: the graph is wrong.
        UserCodeError: the builder raised; holds the user's traceback.
    """
    if isinstance(builder.value, Topology):
        check_names(builder.target, {}, settings)
        return builder.value
    parameters = builder.parameters
    check_names(builder.target, parameters, settings)
    texts = absolute_settings(builder, settings, folder or Path.cwd())
    values = {
        name: as_connector(name, parameters[name].annotation, parameters[name].default, text)
        if is_connector(parameters[name].annotation, parameters[name].default)
        else parse_value(name, parameters[name].annotation, text)
        for name, text in texts.items()
    }
    display_name = without_passwords(", ".join(f"{name}={text}" for name, text in settings.items()))
    try:
        topology = builder.value(**values)
    except AgileDartError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  user code may raise anything; the error shows its traceback
        _raise_user_error(f"{builder.target} was called with ({display_name}) and raised:", error, builder.modules)
    if not isinstance(topology, Topology):
        raise ConfigurationError(
            f"{builder.target} returned {type(topology).__name__}, not a Topology. "
            f"Does the function end with `return topology`?"
        )
    return topology


def absolute_settings(builder: UserBuilder, settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the settings with absolute paths of connectors; defaults with a relative path become settings."""
    texts = dict(settings)
    for name, parameter in builder.parameters.items():
        if is_connector(parameter.annotation, parameter.default):
            text = make_absolute(name, settings.get(name), parameter.default, folder)
            if text is not None:
                texts[name] = text
    return texts


def make_bundle(
    builder: UserBuilder,
    settings: Mapping[str, str],
    *,
    folder: Path | None = None,
    application: str = "",
    paths: Paths = (),
) -> Bundle:
    """Pack a bundle from which a node can build the same topology. Raises `OperationFailed` when it is too large."""
    bundle = Bundle(
        entry=builder.entry,
        files=dict(builder.modules.files),
        parameters=absolute_settings(builder, settings, folder or Path.cwd()),
        installed=dict(builder.modules.installed),
        requires=tuple(builder.modules.requires),
        python=builder.modules.python(),
        application=application,
        software=VERSION,
        specification=FORMAT,
        paths=paths,
    )
    if len(encode_bundle(bundle)) > MAX_BUNDLE_BYTES:
        raise OperationFailed(f"{builder.target} is larger than the {MAX_BUNDLE_BYTES >> 20} MiB that a node takes.")
    return bundle


def modules_of(bundle: Bundle, run: str = "") -> UserModules:
    """Return the modules of a bundle. `run`: as in `UserModules`."""
    return UserModules(bundle.files, bundle.installed, bundle.requires, run=run)


def build_bundle(bundle: Bundle, run: str = "") -> Topology:
    """Run a bundle's builder here. Raises `OperationFailed` when this node lacks a requirement, and errors as `build`.

    Args:
        run: as in `UserModules`.
    """
    modules = modules_of(bundle, run)
    check_bundle(bundle)
    entry, _, name = bundle.entry.partition(":")
    module = _run_module(modules, entry, entry)
    builder = UserBuilder(bundle.entry, bundle.entry, modules, _named(module, name, entry))
    topology = build(builder, bundle.parameters, Path("/"))
    if bundle.paths:
        topology.paths = bundle.paths
        topology.paths_behind.clear()
    return topology


def _locate(place: str, folder: Path) -> tuple[Path | None, str]:
    """Return root folder and module name of the code; the root is None for a shipped example."""
    if place.endswith(".py") or "/" in place:
        file = (folder / place).expanduser().resolve()
        if not file.is_file():
            raise ConfigurationError(f"{place} does not exist (looked in {file.parent}).")
        root, parts = file.parent, [file.stem]
        while (root / "__init__.py").is_file():
            root, parts = root.parent, [root.name, *parts]
        return root, ".".join(parts).removesuffix(".__init__")
    if not place or not all(part.isidentifier() for part in place.split(".")):
        raise ConfigurationError(f"{place or 'That'} is neither FILE.py:NAME nor dotted.module:NAME.")
    if place.partition(".")[0] == SHIPPED:
        return None, place
    relative = place.replace(".", "/")
    for base in [str(folder), *sys.path]:
        root = Path(base or ".")
        if (root / f"{relative}.py").is_file() or (root / relative / "__init__.py").is_file():
            return root.resolve(), place
    hint = f" Did you mean {place}.py:NAME?" if (folder / f"{place}.py").is_file() else ""
    raise ConfigurationError(f"There is no module {place} in {folder} or among the installed packages.{hint}")


def _run_module(modules: UserModules, entry: str, display_name: str) -> ModuleType:
    """Import the entry module; errors of user code show the user's own traceback."""
    try:
        if not modules.files:
            __import__(entry)
            return sys.modules[entry]
        return import_private(modules, entry)
    except AgileDartError:
        raise
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in modules.requires:
            _raise_user_error(f"{display_name} could not be imported:", error, modules)
        raise OperationFailed(
            f"{display_name} imports {missing}, which is not installed here:  pip install {missing}"
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  user code may raise anything; the error shows its traceback
        _raise_user_error(f"{display_name} could not be imported:", error, modules)


def _named(module: ModuleType, name: str, place: str) -> Topology | Callable[..., Any]:
    value = vars(module).get(name)
    if isinstance(value, Topology) or (callable(value) and not isinstance(value, type)):
        return value
    candidates = _builders(module)
    close = get_close_matches(name, candidates, 1)
    if value is not None:
        fault = f"{name} in {place} is a {type(value).__name__}, not a Topology or a function that returns one."
    else:
        fault = f"{place} has no {name}." + (f" Did you mean {close[0]}?" if close else "")
    defines = ", ".join(candidates) or "no topology, and no function that says it returns one (`-> Topology`)"
    raise ConfigurationError(f"{fault} It defines: {defines}.")


def _builders(module: ModuleType) -> list[str]:
    """Return the names in a module that build a topology: topologies, and own functions annotated to return one."""
    names = []
    for name, value in vars(module).items():
        own = callable(value) and getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
        returns = inspect.get_annotations(value).get("return") if own else None
        if isinstance(value, Topology) or returns in (Topology, "Topology"):
            names.append(name)
    return names


def _only_builder(module: ModuleType, place: str) -> str:
    names = _builders(module)
    if len(names) == 1:
        return names[0]
    if not names:
        raise ConfigurationError(f"{place} defines no topology. Name a function that returns one: {place}:NAME")
    raise ConfigurationError(f"{place} defines {', '.join(names)}: say which, for example {place}:{names[0]}")


def _raise_user_error(heading: str, error: BaseException, modules: UserModules) -> NoReturn:
    """Raise `UserCodeError` with a heading and the user's own traceback, cut to the user's files."""
    lines = [heading]
    if not isinstance(error, SyntaxError):
        lines += [text.rstrip("\n") for text in traceback.format_list(user_frames(error.__traceback__, modules))]
    lines += [text.rstrip("\n") for text in traceback.format_exception_only(error)]
    raise UserCodeError(
        "\n".join(lines).replace(modules.package + ".", "") if modules.files else "\n".join(lines)
    ) from None


def user_frames(trace: TracebackType | None, modules: UserModules) -> list[traceback.FrameSummary]:
    """Return the frames of a traceback that are in the user's files or in the shipped examples."""
    own = {modules.display_name(file) for file in modules.files}
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(trace)]
    frames = list(traceback.extract_tb(trace))
    return [
        frame
        for frame, name in zip(frames, names, strict=True)
        if frame.filename in own or str(name).startswith((PREFIX, SHIPPED + "."))
    ]
