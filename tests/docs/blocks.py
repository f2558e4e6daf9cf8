"""Code blocks of a page, and how to run them: Python files and scripts, and `$ ` lines of consoles."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from agiledart.spark_start import SHORT_WORK

_FENCE = re.compile(
    r"^```(\w*)\n(.*?)^```\n?(?:<!-- (not run|runs until stopped: shows)(?:: |\s)(.+?) -->)?", re.MULTILINE | re.DOTALL
)
_SHOWN = re.compile(r'"([^"]+)"')
FILE = re.compile(r"# (\w+\.(?:py|yaml))\n")
_CODE = re.compile(r"  # exit code (\d+)$")

SECONDS = 60


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        reason: why it is not run; empty when it is.
        shows: expected output until it is stopped, when it does not end by itself.
    """

    page: str
    line: int
    language: str
    text: str
    reason: str
    shows: tuple[str, ...] = ()

    def run(self, folder: Path, environment: dict[str, str]) -> None:
        """Run it in a folder; AssertionError with the output when it does not do what the page says."""
        if self.language in ("python", "yaml"):
            named = FILE.match(self.text)
            if named:
                (folder / named[1]).write_text(self.text)
            elif self.language == "python":
                self._call([sys.executable, "-c", self.text], folder, environment, 0)
            return
        for line in self.text.splitlines():
            if line.startswith("$ "):
                code = _CODE.search(line)
                self._call(["bash", "-c", line[2:]], folder, environment, int(code[1]) if code else 0)

    def _call(self, command: list[str], folder: Path, environment: dict[str, str], code: int) -> None:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        told = f"{self.page}:{self.line}  {command[-1]}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == code, told
        assert "Traceback" not in done.stderr, told


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page in order."""
    text = page.read_text()
    return [
        Block(
            page.name,
            text.count("\n", 0, match.start()) + 1,
            match[1],
            match[2],
            match[4] if match[3] == "not run" else "",
            tuple(_SHOWN.findall(match[4])) if match[3] and match[3] != "not run" else (),
        )
        for match in _FENCE.finditer(text)
    ]


def environment_of(folder: Path) -> dict[str, str]:
    """The environment of a reader: the project's commands on the path, a home of their own.

    Spark starts as on a machine where it has started before (the archive of its classes is in the cache), and compiles quickly.
    """
    binaries = str(Path(sys.executable).parent)
    return {
        "PATH": f"{binaries}:{os.environ.get('PATH', '')}",
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / ".state"),
        "LC_ALL": "C.UTF-8",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        "JDK_JAVA_OPTIONS": " ".join(SHORT_WORK),
    }
