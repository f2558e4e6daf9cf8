"""Modules of user code: finding the files that belong to it, and running them without putting them on the import path.

A user's files live under a private package name that is derived from their content. Their imports of one another are resolved
inside that package, even when a module is named `dataflow`, `agent` or `json`. Other imports work as usual, and only the user's own
files see the user's files. The files are found by reading import statements. So a module that is imported by a computed name is not
found, and does not exist on a node.
"""

import ast
import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.limits import MAX_BUNDLE_BYTES, MAX_BUNDLE_FILES

PREFIX = "agiledart_user_"
"""Prefix of private packages; no installed package has it."""

SHIPPED = "agiledart_examples"
"""Package whose modules travel by name and hash instead of by their source, because every node has it."""

OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class UserModules:
    """Source of some modules, and its origin.

    Attributes:
        files: path inside the bundle (`taxi.py`, `fleet/routes.py`, always with `/`) → source.
        installed: shipped module → SHA-256 of its source, in hex.
        requires: other top-level packages that the files import, sorted; not those of Python itself or of AgileDart.
        root: folder that the files were read from; None when they came in a bundle.
        run: name of the run that has the modules for itself, in a process with others; empty: all with the same files share them.
    """

    files: Mapping[str, bytes]
    installed: Mapping[str, str] = field(default_factory=dict)
    requires: Sequence[str] = ()
    root: Path | None = None
    run: str = ""

    @property
    def package(self) -> str:
        """Name of the private package; the same on every node for the same files and run."""
        digest = sha256(self.run.encode())
        for name in sorted(self.files):
            for part in (name.encode(), self.files[name]):
                digest.update(len(part).to_bytes(8, "big") + part)
        return PREFIX + digest.hexdigest()[:16]

    @property
    def mark(self) -> str:
        """Name of the bundle in the names of its files that tracebacks show."""
        return self.package[len(PREFIX) :][:8]

    def python(self) -> tuple[int, int]:
        """Return the oldest supported Python whose grammar accepts all files (grammar only, not the library)."""
        for minor in range(OLDEST_PYTHON[1], sys.version_info[1]):
            if all(_parses(source, (3, minor)) for source in self.files.values()):
                return 3, minor
        return sys.version_info[0], sys.version_info[1]

    def display_name(self, file: str) -> str:
        """Return the file name that tracebacks show."""
        return str(self.root / file) if self.root else f"<{self.mark}>/{file}"


def _parses(source: bytes, version: tuple[int, int]) -> bool:
    try:
        ast.parse(source, feature_version=version)
    except (SyntaxError, ValueError):
        return False
    return True


def find_modules(root: Path, entry: str, made: Mapping[str, bytes] = MappingProxyType({})) -> UserModules:
    """Find the file of module `entry` under `root` and all modules under `root` that it imports, directly or indirectly.

    Args:
        root: folder of the user's files.
        entry: dotted name.
        made: files that are not in the folder, such as the code of an application in SQL: path → source.

    Raises:
        ConfigurationError: there is no such file.
        OperationFailed: the code is too large for a bundle, or a file cannot be read.
    """
    files: dict[str, bytes] = {}
    shipped: dict[str, str] = {}
    others: dict[str, None] = {}
    waiting = [*made] or _files_of(root, entry)
    if not waiting or module_name(waiting[-1]) != entry:
        raise ConfigurationError(f"There is no module {entry} in {root}.")
    total = 0
    while waiting:
        file = waiting.pop()
        if file in files:
            continue
        source = made.get(file) or _read(root / file)
        total += len(source)
        if len(files) >= MAX_BUNDLE_FILES or total > MAX_BUNDLE_BYTES:
            raise OperationFailed(
                f"{entry} imports more code than a node takes: at most {MAX_BUNDLE_FILES} files "
                f"and {MAX_BUNDLE_BYTES >> 20} MiB. Packages that are installed on the nodes need not travel; "
                f"data is read by a source."
            )
        files[file] = source
        for name in _imports(source, file):
            local = [] if _is_ours(name) else _files_of(root, name)
            waiting.extend(local)
            if not local:
                _note_external(name, shipped, others)
    return UserModules(files, shipped, tuple(sorted(others)), root)


def shipped_modules(entry: str) -> UserModules:
    """Return a module of the shipped examples and the shipped modules that it imports, by name and hash."""
    shipped: dict[str, str] = {}
    _note_external(entry, shipped, {})
    if entry not in shipped:
        raise ConfigurationError(f"There is no module {entry} in this AgileDart.")
    return UserModules({}, shipped)


def module_name(file: str) -> str:
    """Return the dotted name of a file's module: `fleet/routes.py` is `fleet.routes`, `fleet/__init__.py` is `fleet`."""
    name = file.removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")


def _files_of(root: Path, name: str) -> list[str]:
    """Return the files that `import name` runs under a root: the enclosing packages, then the module; empty when missing."""
    parts = name.split(".")
    files: list[str] = []
    for count in range(1, len(parts) + 1):
        prefix = "/".join(parts[:count])
        if (root / prefix / "__init__.py").is_file():
            files.append(f"{prefix}/__init__.py")
        elif (root / f"{prefix}.py").is_file():
            files.append(f"{prefix}.py")
            break
        elif not (root / prefix).is_dir():
            break
    return files


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OperationFailed(f"{path} could not be read: {error.strerror}.") from None


def _imports(source: bytes, file: str) -> list[str]:
    """Return the full names that a file may import; `from a import b` gives `a.b`, a module or a name in `a`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []  # the import of the file will raise the error, with its line
    package = file.split("/")[:-1]
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names.extend(f"{base}.{alias.name}" if base else alias.name for alias in node.names)
    return names


def _is_ours(name: str) -> bool:
    top = name.partition(".")[0]
    return top == "agiledart" or top.startswith("agiledart_")


def _note_external(name: str, shipped: dict[str, str], others: dict[str, None]) -> None:
    """Record a module that stays out of the bundle: a shipped one with its hash, a foreign one by its package."""
    top = name.partition(".")[0]
    if top == SHIPPED:
        module = name
        while module and module not in shipped:
            source = shipped_source(module)
            if source is not None:
                shipped[module] = sha256(source).hexdigest()
                for inner in _imports(source, module.replace(".", "/") + ".py"):
                    if inner.startswith(SHIPPED + "."):
                        _note_external(inner, shipped, others)
                return
            module = module.rpartition(".")[0]
    elif not _is_ours(name) and top not in sys.stdlib_module_names and top != "__future__":
        others[top] = None


def shipped_source(module: str) -> bytes | None:
    """Return the source of an installed module of the shipped examples; None when there is none."""
    if not all(part.isidentifier() for part in module.split(".")):
        return None
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.loader is None or not isinstance(spec.loader, importlib.abc.InspectLoader):
        return None
    text = spec.loader.get_source(module)
    return None if text is None else text.encode()


class _Loader(importlib.abc.InspectLoader):
    """Loader that runs the source of one module and shows it to tracebacks and debuggers."""

    def __init__(self, modules: UserModules, file: str | None, names: dict[str, Any]) -> None:
        self._modules = modules
        self._file = file
        self._names = names

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._modules.files[self._file]) if self._file else ""

    def get_code(self, fullname: str) -> CodeType:
        path = self._modules.display_name(self._file) if self._file else fullname
        return compile(self._modules.files[self._file] if self._file else b"", path, "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:
        return self._file is None or self._file.endswith("__init__.py")

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._names
        exec(self.get_code(module.__name__), module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    """Finder of the modules of private packages that were opened in this process."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[UserModules, dict[str, str], dict[str, Any]]] = {}

    def open(self, modules: UserModules) -> str:
        """Make a private package importable and return its name."""
        package = modules.package
        if package not in self._open:
            files = {module_name(file): file for file in modules.files}
            self._open[package] = (modules, files, _builtins_of(package, files))
        return package

    def close(self, package: str) -> None:
        """Make a private package importable no longer."""
        self._open.pop(package, None)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, inner = fullname.partition(".")
        if package not in self._open:
            return None
        modules, files, names = self._open[package]
        if inner not in files and inner and not any(name.startswith(inner + ".") for name in files):
            return None
        file = files.get(inner)
        loader = _Loader(modules, file, names)
        origin = modules.display_name(file) if file else package
        spec = importlib.machinery.ModuleSpec(fullname, loader, origin=origin, is_package=loader.is_package(fullname))
        spec.has_location = file is not None
        return spec


def _builtins_of(package: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Return the builtins of a user's modules, in which `import` searches the user's own files first."""
    own = {name.partition(".")[0] for name in files}

    def private_import(
        name: str,
        names: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        wanted: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or top not in own:
            return builtins.__import__(name, names, local, wanted, level)
        module = builtins.__import__(f"{package}.{name}", names, local, wanted, 0)
        return module if wanted else sys.modules[f"{package}.{top}"]

    return {**vars(builtins), "__import__": private_import}


_FINDER = _Finder()


def import_private(modules: UserModules, entry: str) -> ModuleType:
    """Run a module of user code under its private name; an error of user code is raised unchanged."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)
    return importlib.import_module(f"{_FINDER.open(modules)}.{entry}")


def forget_private(modules: UserModules) -> None:
    """Release modules that were imported for one run; code that still refers to them keeps them."""
    package = modules.package
    _FINDER.close(package)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
