"""Which extras install from wheels alone, on x86-64 and aarch64 and each supported Python; writes docs/reference/extras.md.

    python -m tools.wheels

pip resolves the requirements of `pyproject.toml` against the package index and installs nothing. A distribution without a
wheel must be built on the machine itself; it needs a compiler there.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PAGE = Path("docs/reference/extras.md")
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
NEWEST_GLIBC = 36
"""Minor version of the glibc of Debian 12 and of Raspberry Pi OS."""

NOT_SHIPPED = ("dev", "docs")
_MISSING = re.compile(r"No matching distribution found for ([A-Za-z0-9._-]+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def requirements_of(project: Mapping[str, object]) -> dict[str, list[str]]:
    """Return extra → requirements; the empty name is the core. An extra that names others has theirs, too."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)

    def expanded(texts: Sequence[str]) -> list[str]:
        names: list[str] = []
        for text in texts:
            others = re.fullmatch(r"agiledart\[(.+)\]", text)
            names += (
                [text] if others is None else [more for name in others[1].split(",") for more in expanded(extras[name])]
            )
        return list(dict.fromkeys(names))

    core = project["dependencies"]
    assert isinstance(core, list)
    return {"": core, **{name: expanded(texts) for name, texts in extras.items() if name not in NOT_SHIPPED}}


def without_wheel(requirements: Sequence[str], python: str, machine: str) -> list[str]:
    """Return the distributions that have no wheel. Raises OSError: the index cannot be asked."""
    missing: list[str] = []
    left = list(requirements)
    while left:
        answer = _resolve(left, python, machine)
        if not answer:
            break
        match = _MISSING.search(answer)
        if match is None:
            raise OSError(answer.strip()[-500:])
        missing.append(match[1])
        direct = [text for text in left if (name := _NAME.match(text)) and name[0].lower() == match[1].lower()]
        if not direct:
            break  # one that another needs: the rest of this extra was not looked at
        left = [text for text in left if text not in direct]
    return missing


def _resolve(requirements: Sequence[str], python: str, machine: str) -> str:
    """Return what pip complains about; empty: all have wheels."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(5, NEWEST_GLIBC + 1)] + [f"manylinux2014_{machine}"]
    with tempfile.TemporaryDirectory() as target:
        ran = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--disable-pip-version-check", "--ignore-installed",
             "--only-binary=:all:", "--python-version", python, "--implementation", "cp", "--target", target,
             *(word for tag in tags for word in ("--platform", tag)), *requirements],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    return ran.stderr or f"pip ended with {ran.returncode}" if ran.returncode else ""


def page(missing: Mapping[tuple[str, str, str], Sequence[str]], requirements: Mapping[str, Sequence[str]]) -> str:
    """Return the page: extras, what they hold, and what has no wheel where."""
    lines = [
        "# Extras", "",
        "Made by `python -m tools.wheels`, with which `make packages` ends; do not edit.", "",
        "`pip install 'agiledart[EXTRA]'` on Linux with glibc. Where a distribution has no wheel, pip builds it, which needs a"
        " compiler and headers there (Debian: `apt install gcc python3-dev`).", "",
        "| Extra | Requires | No wheel |", "|---|---|---|",
    ]  # fmt: skip
    for extra, texts in requirements.items():
        places: dict[str, list[str]] = {}
        for (other, python, machine), names in missing.items():
            for name in names if other == extra else ():
                places.setdefault(name, []).append(f"{machine} {python}")
        absent = "; ".join(f"`{name}`: {', '.join(where)}" for name, where in sorted(places.items())) or "–"
        lines.append(f"| {extra or '(none)'} | {', '.join(f'`{text}`' for text in texts)} | {absent} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Resolve everything, write the page, and print what has no wheel."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    requirements = requirements_of(project)
    cases = [(extra, python, machine) for extra in requirements for python in PYTHONS for machine in MACHINES]
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(lambda case: without_wheel(requirements[case[0]], case[1], case[2]), cases))
    missing = dict(zip(cases, results, strict=True))
    PAGE.write_text(page(missing, requirements))
    for (extra, python, machine), names in missing.items():
        for name in names:
            print(f"{extra or 'core'}: {name} has no wheel for Python {python} on {machine}")
    print(PAGE)


if __name__ == "__main__":
    main()
