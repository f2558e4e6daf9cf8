"""House rules that linters do not know: lists that must agree, sizes, names, citations. `tests/tidy` runs it, too.

Each check takes the root of the project and returns problems as `path:line  what is wrong`. The exceptions below may
only shrink: one that is no longer needed is a problem too.
"""

import ast
import contextlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tools import structure

MAX_FILE_LINES, WARN_FILE_LINES = 900, 400
MAX_CLASS_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_MOMENT_SECONDS = 0.05

LONG_FUNCTIONS: dict[str, int] = {}
"""`path:function` → lines that it may have until it is divided."""

LONG_FILES: dict[str, int] = {}
"""Path → lines that it may have until it is divided."""

LONG_CLASSES: dict[str, int] = {}
"""`path:class` → lines that it may have until it is divided."""

CORE = (
    "kernel",
    "overlay",
    "placement",
    "provisioning",
    "scaling",
    "shuffle",
    "dataflow",
    "recovery",
    "node",
    "simulation",
)
"""Where the order of a `set` would make two runs of one seed differ."""

_CONFLICT = re.compile(r"(<{7}|>{7}) ")
_UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
_CITATION = re.compile(r"\[([A-Z][A-Za-z]+(?:[- &][A-Z][A-Za-z]+)*(?: et al\.)?(?: \d{4}[a-z]?)?)\]")
_SLEEPS = ("time.sleep", "asyncio.sleep", "sleep")

Problems = list[str]


def tracked_files(root: Path, *endings: str) -> list[Path]:
    """Files of the project with these endings, known to git or about to be."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return [root / name for name in sorted(names) if name.endswith(endings) and (root / name).is_file()]


def project(root: Path) -> Any:
    """The document in pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text())


def component_roots(root: Path) -> list[str]:
    """Folders that hold a package of the project, by looking."""
    roots = {package.split("/")[0] for package in packages(root)}
    return sorted(roots)


def packages(root: Path) -> list[str]:
    """`folder/package` of every top-level package, by looking. Spark finds sources by the prefix `pyspark_`."""
    places = [path for prefix in ("agiledart", "pyspark_") for path in root.glob(f"*/{prefix}*/__init__.py")]
    return sorted(str(path.parent.relative_to(root)) for path in places)


def check_lists(root: Path) -> Problems:
    """The lists of folders and packages in pyproject.toml and Makefile say what is really there."""
    document = project(root)
    build = document["tool"]["hatch"]["build"]
    roots = component_roots(root)
    makefile = re.search(r"^ROOTS *:= *(.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    folder_lists = {
        "pyproject.toml: tool.hatch.build dev-mode-dirs": build["dev-mode-dirs"],
        "pyproject.toml: tool.mypy mypy_path": document["tool"]["mypy"]["mypy_path"].split(":"),
        "pyproject.toml: tool.ruff src": document["tool"]["ruff"]["src"],
        "Makefile: ROOTS": makefile.group(1).split() if makefile else [],
    }
    package_names = [package.split("/")[1] for package in packages(root)]
    package_lists = {
        "pyproject.toml: wheel packages": (build["targets"]["wheel"]["packages"], packages(root)),
        "pyproject.toml: importlinter root_packages": (
            document["tool"]["importlinter"]["root_packages"],
            package_names,
        ),
    }
    problems = [_difference(name, listed, roots) for name, listed in folder_lists.items()]
    problems += [_difference(name, listed, there) for name, (listed, there) in package_lists.items()]
    return [problem for problem in problems if problem]


def _difference(name: str, listed: list[str], there: list[str]) -> str:
    missing = [item for item in there if item not in listed]
    gone = [item for item in listed if item not in there]
    parts = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"names {', '.join(gone)}, not there"] * bool(gone)
    return f"{name} {'; '.join(parts)}" if parts else ""


def check_packages(root: Path) -> Problems:
    """Each top-level package is marked as typed, and every package says in its docstring what it is."""
    problems = [
        f"{package}/py.typed is missing" for package in packages(root) if not (root / package / "py.typed").is_file()
    ]
    for folder in component_roots(root):
        for file in sorted((root / folder).rglob("__init__.py")):
            text = ast.get_docstring(ast.parse(file.read_text())) or ""
            if len(text.splitlines()) < 2 and len(text) < 60:
                problems.append(f"{file.relative_to(root)}:1  says too little about what the package is and may import")
    folders = dict.fromkeys(file.parent for file in sorted((root / "tests").rglob("*.py")))
    lacking = [folder for folder in folders if not (folder / "__init__.py").is_file()]
    problems += [f"{folder.relative_to(root)}/__init__.py is missing" for folder in lacking]
    return problems


def python_texts(root: Path, folders: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Path and text of every Python file of the project, or of those in some folders."""
    beginnings = tuple(f"{folder}/" for folder in folders) or ("",)
    for path in tracked_files(root, ".py"):
        name = str(path.relative_to(root))
        if name.startswith(beginnings):
            yield name, path.read_text()


def python_files(root: Path, folders: tuple[str, ...] = ()) -> Iterator[tuple[str, str, ast.Module]]:
    """Path, text and syntax tree; without those files that are no Python, which ruff says better."""
    for name, text in python_texts(root, folders):
        with contextlib.suppress(SyntaxError):
            yield name, text, ast.parse(text)


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement of a module, at any depth. Nodes within expressions are left out: they are most of a tree."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = node.__dict__.get(field)
            if isinstance(inner, list):
                waiting += reversed(inner)


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Lines of a function or class without its docstring: explaining costs nothing."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def check_sizes(root: Path) -> Problems:
    """Files, classes and functions stay small enough to be read in one go."""
    problems: Problems = []
    needed: set[str] = set()
    for name, text, tree in python_files(root):
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            needed.add(name)
            if lines > LONG_FILES.get(name, MAX_FILE_LINES):
                problems.append(f"{name}:1  has {lines} lines, at most {LONG_FILES.get(name, MAX_FILE_LINES)}")
        for node in statements(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                most, exceptions = MAX_FUNCTION_LINES, LONG_FUNCTIONS
            elif isinstance(node, ast.ClassDef):
                most, exceptions = MAX_CLASS_LINES, LONG_CLASSES
            else:
                continue
            length, key = lines_of(node), f"{name}:{node.name}"
            if length > most:
                needed.add(key)
                limit = exceptions.get(key, most)
                if length > limit:
                    problems.append(f"{name}:{node.lineno}  {node.name} has {length} lines, at most {limit}")
    unneeded = [key for key in (*LONG_FILES, *LONG_CLASSES, *LONG_FUNCTIONS) if key not in needed]
    return problems + [f"tools/tidy.py: the exception for {key} is no longer needed" for key in unneeded]


def check_unfinished(root: Path) -> Problems:
    """No note that something is unfinished: finish it, or write an entry in the changelog's list of what is missing.

    Nor a mark of a merge.
    """
    problems: Problems = []
    for path in tracked_files(root, ".py", ".md", ".toml", ".sh", "Makefile", ".yml"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if _UNFINISHED.search(line) or _CONFLICT.match(line):
                problems.append(f"{path.relative_to(root)}:{number}  {line.strip()[:80]}")
    return problems


def check_sleeps(root: Path) -> Problems:
    """Tests wait for conditions, not for time.

    End-to-end tests may pause between two looks at a process. The conformance suite runs over real sockets: to see that
    something does *not* happen there takes a moment, of at most `MAX_MOMENT_SECONDS`.
    """
    problems: Problems = []
    for name, text in python_texts(root, ("tests",)):
        if not name.startswith("tests/e2e/") and "sleep" in text:
            limit = MAX_MOMENT_SECONDS if name.startswith("tests/conformance/") else 0.0
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Call)
                    and ast.unparse(node.func) in _SLEEPS
                    and not _is_within(node.args, limit)
                ):
                    problems.append(f"{name}:{node.lineno}  {ast.unparse(node)}")
    return problems


def _is_within(arguments: list[ast.expr], limit: float) -> bool:
    if not arguments or not isinstance(arguments[0], ast.Constant):
        return False
    value = arguments[0].value
    return isinstance(value, int | float) and value <= limit


def check_set_iteration(root: Path) -> Problems:
    """Core code never goes through a `set` in its own order: it changes with the hash seed. `sorted` is the way."""
    problems: Problems = []
    for name, _, tree in python_files(root, CORE):
        sets = _set_names(tree)
        for node in ast.walk(tree):
            for iterated in _iterated(node):
                if _is_set(iterated, sets):
                    problems.append(f"{name}:{iterated.lineno}  goes through the set {ast.unparse(iterated)}")
    return problems


def _set_names(tree: ast.Module) -> set[str]:
    """Names and attributes that are declared or made as sets anywhere in a module."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            kind = ast.unparse(node.annotation).split("[")[0]
            if kind in ("set", "frozenset"):
                names.add(node.arg if isinstance(node, ast.arg) else ast.unparse(node.target))
        elif isinstance(node, ast.Assign) and _is_set(node.value, set()):
            names.update(ast.unparse(target) for target in node.targets)
    return names


def _iterated(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions whose order a piece of syntax takes over."""
    if isinstance(node, ast.For | ast.AsyncFor):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        yield from (generator.iter for generator in node.generators)
    elif isinstance(node, ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("list", "tuple", "enumerate", "iter", "deque"):
        yield from node.args[:1]


def _is_set(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("set", "frozenset"):
        return True
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in names


def check_citations(root: Path) -> Problems:
    """Every key that a docstring or comment cites stands in docs/references.md."""
    keys = set(_CITATION.findall((root / "docs" / "references.md").read_text()))
    problems: Problems = []
    for name, text in python_texts(root):
        if name.startswith(("tests/", "tools/")):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if "Source:" in line or "Departs:" in line:
                problems += [
                    f"{name}:{number}  [{key}] is not in docs/references.md"
                    for key in _CITATION.findall(line)
                    if key not in keys
                ]
    return problems


def warnings(root: Path) -> Problems:
    """Files that have grown past the size at which one should think of dividing them."""
    return [
        f"{name}:1  has {text.count(chr(10))} lines; think of dividing it above {WARN_FILE_LINES}"
        for name, text in python_texts(root)
        if text.count("\n") > WARN_FILE_LINES
    ]


def check_structure(root: Path) -> Problems:
    """No circles among modules, no file name with two meanings."""
    shipped = packages(root)
    return [problem for check in (structure.check_circles, structure.check_names) for problem in check(root, shipped)]


CHECKS: tuple[Callable[[Path], Problems], ...] = (
    check_lists,
    check_packages,
    check_sizes,
    check_unfinished,
    check_sleeps,
    check_set_iteration,
    check_citations,
    check_structure,
)


def main() -> int:
    """Print all problems; 1 when there are any."""
    root = Path(__file__).resolve().parent.parent
    problems = [problem for check in CHECKS for problem in check(root)]
    for line in warnings(root):
        print(f"warning: {line}", file=sys.stderr)
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
