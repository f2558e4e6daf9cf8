"""A fresh account of this machine: an empty home whose user has no other processes.

Where this process is root the account is made by `useradd`, in a mount namespace with an /etc of its own, so that nothing of it
stays; files that its user has to read (the interpreter, the project) are opened there where a folder above is closed. Elsewhere a
fresh home of our own user has to do.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
USER: Final = "stranger"
TOOLS: Final = ("unshare", "nsenter", "setpriv", "useradd", "mount")

_MADE: Final = "ready"
_SETUP: Final = """
set -e
cp -a /etc "$SANDBOX/etc"
mount --bind "$SANDBOX/etc" /etc
while read -r closed needed; do
    mkdir -p "$SANDBOX/opened"
    mount --bind "$needed" "$SANDBOX/opened"
    mount -t tmpfs -o mode=755 none "$closed"
    mkdir -p "$needed"
    mount --bind "$SANDBOX/opened" "$needed"
    umount "$SANDBOX/opened"
done <<< "$CLOSED"
useradd --home-dir "$SANDBOX/home" --no-create-home --shell /bin/bash "$NAME"
chown "$NAME" "$SANDBOX/home"
id -u "$NAME"
exec sleep infinity
"""


class Account:
    """A context manager.

    Attributes:
        home: of its user.
        is_own: the user is another than ours.
    """

    def __init__(self) -> None:
        self._sandbox = Path(tempfile.mkdtemp(prefix="adh-"))
        self.home = self._sandbox / "home"
        self.is_own = os.geteuid() == 0 and all(shutil.which(tool) for tool in TOOLS)
        self._holder: subprocess.Popen[str] | None = None
        self._uid = os.geteuid()

    def __enter__(self) -> "Account":
        self._sandbox.chmod(0o755)
        self.home.mkdir()
        if self.is_own:
            self._holder = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "bash", "-c", _SETUP],
                env={**os.environ, "SANDBOX": str(self._sandbox), "NAME": USER, "CLOSED": _closed()},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            assert self._holder.stdout is not None
            assert self._holder.stderr is not None
            number = self._holder.stdout.readline().strip()
            assert number.isdigit(), self._holder.stderr.read()
            self._uid = int(number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._holder is not None:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            os.killpg(self._holder.pid, signal.SIGKILL)
            self._holder.communicate()
        shutil.rmtree(self._sandbox, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """Environment of a login, with the project's commands on the path."""
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
        return {
            "PATH": path,
            "HOME": str(self.home),
            "USER": USER,
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm",
            "COLUMNS": "100",
        }

    def entered(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> list[str]:
        """A command as its user gives it, in a folder."""
        given = [
            "env",
            "-i",
            f"--chdir={folder}",
            *(f"{name}={value}" for name, value in environment.items()),
            *command,
        ]
        if self._holder is None:
            return given
        user = ["setpriv", f"--reuid={self._uid}", f"--regid={self._uid}", "--clear-groups", "--inh-caps=-all"]
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--", *user, *given]

    def folder(self, name: str) -> Path:
        """One of its user's."""
        made = self.home / name
        made.mkdir(exist_ok=True)
        if self.is_own:
            os.chown(made, self._uid, self._uid)
        return made

    def processes(self) -> list[int]:
        """All of its user's; none where that is us."""
        if not self.is_own:
            return []
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and entry.stat().st_uid == self._uid:
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended
        return found


def _closed() -> str:
    """For each tree that has to be read, the folder above it that others may not enter: lines for the set-up."""
    lines: dict[Path, Path] = {}
    for needed in (Path(sys.base_prefix), Path(sys.prefix), ROOT):
        closed = [above for above in needed.parents if not above.stat().st_mode & 0o001]
        if closed:
            lines.setdefault(closed[-1], needed)
    return "\n".join(f"{closed} {needed}" for closed, needed in lines.items())
