"""Types the commands of a page as a reader does, on one or more machines: here, folders and loopback addresses of this one.

A console line is `$ command` on the reader's own machine or `pi1$ command` on another. Commands that run until stopped
(agents, `up`) get a terminal of their own and continue in the background; their output is kept there, for the page
refers to it.
"""

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.blocks import FILE, Block, environment_of

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 900.0
START_SECONDS = 120.0
SHOWN_SECONDS = 600.0

_LINE = re.compile(r"(\w*)\$ (.*)")
_CODE = re.compile(r"  # exit code (\d+)$")
_LASTING = re.compile(r"agiledart (agent|up)\b(?!.*--check)")
_READY = re.compile(r"Ctrl-C stops everything|add a node.*\n(adart1\w+\s)?|joined the ring.*\n")
QUIET = ("mkdir ", "chmod ", "mosquitto_pub ", "python ", "cmp ")
"""Commands that say nothing when all is well."""

BUSY = "Python worker failed to connect back"
"""Spark gives its Python processes ten seconds to start, which no setting changes. docs/how-to/spark.md says: start it again."""

_TOKEN = re.compile(r"^(adart1\w{40,})", re.MULTILINE)
_PASTE = re.compile(r"Paste the token")


class Background:
    """A command on a terminal of its own."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str], *, is_terminal: bool) -> None:
        self.text = ""
        ours, theirs = pty.openpty() if is_terminal else os.pipe()
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=theirs if is_terminal else subprocess.DEVNULL,
            stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._end = ours
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # a terminal whose last process has ended
            while data := os.read(self._end, 65_536):
                self.text += data.decode("utf-8", "replace")

    def wait_for(self, pattern: re.Pattern[str], seconds: float) -> None:
        """Until its output matches; AssertionError with the output when it does not, or the command ends before."""
        end = time.monotonic() + seconds
        while not pattern.search(self.text):
            ended = self.process.poll() is not None
            assert not ended, f"ended with {self.process.returncode} before {pattern.pattern!r}:\n{self.text}"
            assert time.monotonic() < end, f"not within {seconds:.0f} s: {pattern.pattern!r}\n{self.text}"
            select.select([], [], [], 0.05)

    def type(self, line: str) -> None:
        """On its terminal."""
        os.write(self._end, line.encode() + b"\n")

    def stop(self) -> int:
        """As Ctrl-C does; its remaining processes are ended."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


@dataclass
class Stranger:
    """A reader with machines that they name.

    Attributes:
        run: the lines that were typed, for a test to count.
        broker_port: where the broker is that pages have on port 1883.
        variables: more variables of the reader's environment.
    """

    folder: Path
    run: list[str] = field(default_factory=list)
    broker_port: int = 1883
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._running: list[Background] = []
        self._token = ""
        self._ports: dict[str, int] = {}

    def follow(self, block: Block) -> None:
        """Do what a block shows; AssertionError with the output when it does not do what the page says."""
        if block.language in ("python", "yaml"):
            self._python(block)
            return
        for line in block.text.splitlines():
            if typed := _LINE.fullmatch(line):
                self._type(block, typed[1], typed[2])

    def leave(self) -> None:
        """Ctrl-C in every terminal that is still open, newest first; each command must then end as agreed."""
        codes = [(one.process.args, one.stop(), one.text) for one in reversed(self._running)]
        self._running.clear()
        assert all(code in (0, 130) for _, code, _ in codes), codes

    def _type(self, block: Block, machine: str, line: str) -> None:
        self.run.append(line)
        code = _CODE.search(line)
        command = self._here(machine, line)
        folder, environment = self._machine(machine)
        if _LASTING.match(line):
            begun = Background(
                self._entered(command.split(), folder, environment), folder, environment, is_terminal=True
            )
            self._running.append(begun)
            if "--join - " in f"{line} ":
                begun.wait_for(_PASTE, START_SECONDS)
                begun.type(self._token)
            begun.wait_for(_READY, START_SECONDS)
            if found := _TOKEN.search(begun.text):
                self._token = found[1]
            return
        done = subprocess.run(
            self._entered(["bash", "-c", command], folder, environment), cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
        told = f"{block.page}:{block.line}  {line}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == (int(code[1]) if code else 0), told
        assert "Traceback" not in done.stderr, told
        said = done.stdout.strip() or done.stderr.strip()
        is_quiet = ">" in line or "--output" in line or line.startswith(QUIET)
        assert said or is_quiet, f"it printed nothing: {told}"

    def _python(self, block: Block) -> None:
        folder, environment = self._machine("")
        if named := FILE.match(block.text):
            (folder / named[1]).write_text(self._here("", block.text))
            return
        if block.language == "yaml":
            return
        script = folder / f"block_{block.line}.py"
        script.write_text(block.text)
        self.run.append(script.name)
        for again in (True, True, False):
            command = self._entered([sys.executable, str(script)], folder, environment)
            begun = Background(command, folder, environment, is_terminal=False)
            try:
                for shown in block.shows:
                    begun.wait_for(re.compile(re.escape(shown)), SHOWN_SECONDS)
                if not block.shows:
                    assert begun.process.wait(SHOWN_SECONDS) == 0, begun.text
                return
            except AssertionError:
                if BUSY not in begun.text or not again:
                    raise
            finally:
                begun.stop()

    def _entered(self, command: list[str], folder: Path, environment: dict[str, str]) -> list[str]:
        """The command as whoever reads gives it: here our own user."""
        return command

    def _machine(self, name: str) -> tuple[Path, dict[str, str]]:
        """Folder and environment of a machine; its metrics have a port of their own."""
        folder = self.folder / (name or "here")
        folder.mkdir(exist_ok=True)
        environment = environment_of(folder) | {"TERM": "xterm", "COLUMNS": "100"} | self.variables
        if name:
            environment["AGILEDART_AGENT__METRICS"] = f"127.0.0.1:{self._port(name)}"
        return folder, environment

    def _here(self, machine: str, line: str) -> str:
        """The line with addresses of this machine. A file that the page's reader
        would carry from one machine to another is taken from there."""
        line = re.sub(
            r"192\.168\.1\.(\d+):(\d+)", lambda found: f"127.0.1.{found[1]}:{self._port(found[1] + found[2])}", line
        )
        line = line.replace("127.0.0.1:1883", f"127.0.0.1:{self.broker_port}").replace(
            "-p 1883", f"-p {self.broker_port}"
        )
        line = line.replace("127.0.0.1:9465", f"127.0.0.1:{self._port(machine)}")
        return re.sub(r"@(\w+\.token)", lambda found: f"@{next(self.folder.glob(f'*/{found[1]}'))}", line)

    def _port(self, name: str) -> int:
        if name not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as server:
                self._ports[name] = server.getsockname()[1]
        return self._ports[name]


def clone_of_it(folder: Path) -> None:
    """Files that `make` needs in a clone in which `make install` was done: the environment that runs this test."""
    (folder / "tools").mkdir(parents=True)
    (folder / ".venv").mkdir()
    for name in ("Makefile", "pyproject.toml", "tools/setup.sh", "tools/constraints.txt"):
        shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    for stamp in (".installed", ".installed-with-spark"):
        (folder / ".venv" / stamp).touch()
