"""The structure of the house: circles among modules, file names with two meanings.

Circles are sought over imports of every kind: those for type checking and those inside functions bind two files together as much as
any other. import-linter judges layers and rooms; it does not look for circles within a room.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

CONVENTIONAL = frozenset(
    {
        "__init__",
        "__main__",
        "messages",
        "events",
        "effects",
        "observations",
        "statistics",
        "config",
        "records",
        "opening",
    }
)
"""File names that mean the same in every room."""

SAME_NAMES = frozenset(
    [
        "agent",
        "aggregates",
        "connectors",
        "entries",
        "errors",
        "graph",
        "ledger",
        "limits",
        "network",
        "next_hop",
        "options",
        "overload",
        "plotting",
        "plugins",
        "protocol",
        "registry",
        "schedulers",
        "top",
    ]
)
"""Other file names that stand in several places; the list may only shrink."""

Problems = list[str]


def shipped_modules(root: Path, packages: list[str]) -> dict[str, Path]:
    """Dotted name → file, of every module of the packages (`folder/package`)."""
    modules: dict[str, Path] = {}
    for package in packages:
        folder = root / package
        for path in sorted(folder.rglob("*.py")):
            parts = (folder.name, *path.relative_to(folder).with_suffix("").parts)
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imports(modules: Mapping[str, Path]) -> dict[str, list[str]]:
    """Module → modules that it imports, at any place and for any reason."""
    return {name: sorted(set(_imported(path, modules)) - {name}) for name, path in modules.items()}


def _imported(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in modules:
                    yield whole
                elif node.module in modules:
                    yield node.module


def circles(arrows: Mapping[str, list[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or around a corner.

    Source: Tarjan 1972, strongly connected components, without recursion.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    circular: list[list[str]] = []
    for start in arrows:
        if start in number:
            continue
        work = [(start, iter(arrows[start]))]
        number[start] = lowest[start] = len(number)
        stack.append(start)
        while work:
            module, rest = work[-1]
            for target in rest:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    stack.append(target)
                    work.append((target, iter(arrows[target])))
                    break
                if target in stack:
                    lowest[module] = min(lowest[module], number[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
                if lowest[module] == number[module]:
                    cut = stack.index(module)
                    if len(stack) - cut > 1:
                        circular.append(sorted(stack[cut:]))
                    del stack[cut:]
    return circular


def check_circles(root: Path, packages: list[str]) -> Problems:
    """No module imports another that, directly or around a corner, imports it."""
    circular = circles(imports(shipped_modules(root, packages)))
    return [f"circle of imports: {', '.join(circle)}" for circle in circular]


def check_names(root: Path, packages: list[str]) -> Problems:
    """One file name, one meaning: a name that stands twice is a convention, or an exception that may only go."""
    places: dict[str, list[str]] = {}
    for path in shipped_modules(root, packages).values():
        places.setdefault(path.stem, []).append(str(path.relative_to(root)))
    twice = {name for name, files in places.items() if len(files) > 1} - CONVENTIONAL
    problems = [f"{', '.join(places[name])}: one name, several meanings" for name in sorted(twice - SAME_NAMES)]
    return problems + [
        f"tools/structure.py: the exception for the name {name} is no longer needed"
        for name in sorted(SAME_NAMES - twice)
    ]
