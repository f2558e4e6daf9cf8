"""`agiledart setup`: make this machine's agent a service that has joined a network, or founded one."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from agiledart_cli.output import GOOD, output_option, print_json, print_message
from agiledart_control.agent_place import in_state_dir
from agiledart_kernel.errors import ConfigurationError, OperationFailed

UNIT: Final = "agiledart.service"
UNIT_FOLDERS: Final = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
STATE: Final = "var/lib/agiledart"
TOKEN: Final = "etc/agiledart/join-token"
DROP_IN: Final = f"etc/systemd/system/{UNIT}.d/join-token.conf"
DROP_IN_TEXT: Final = """\
# Written by `agiledart setup`, which removes it once the node has joined.
[Service]
LoadCredential=join-token:/etc/agiledart/join-token
Environment=AGILEDART_AGENT__JOIN=@%d/join-token
"""

JOIN_SECONDS: Final = 90.0
LOOK_SECONDS: Final = 0.5

Call = Callable[[Sequence[str]], None]
"""Runs a command; raises `OperationFailed` with its last line when it fails."""


@click.command(name="setup", short_help="Run this machine's agent as a service of systemd.")
@click.option("--join", "token", metavar="TOKEN|@FILE|-", help="Join the network of a token; - reads it from stdin.")
@click.option("--new", is_flag=True, help="Found a network.")
@click.option("--delete-token-file", is_flag=True, help="With --join @FILE: remove the file once the node has joined.")
@output_option
def set_up_service(token: str | None, new: bool, delete_token_file: bool, output: str) -> None:
    """Run this machine's agent as a service of systemd that has joined a network, or founded one. Needs root.

    \b
    Example:
      sudo agiledart setup --new
      sudo agiledart setup --join @join.token
      sudo agiledart setup --join -          (paste the token, Enter, Ctrl-D)

    Settings are in /etc/agiledart/agent.toml: look through them before. systemd alone gives the token to the agent; this command
    removes it when the node has joined. A second --join on a node of a network changes nothing.
    """
    from agiledart_agent.identity.tokens import read_token

    if (token is None) == (not new):
        raise click.UsageError("Give either --join TOKEN or --new.")
    if delete_token_file and not (token or "").startswith("@"):
        raise click.UsageError("--delete-token-file belongs to --join @FILE.")
    if os.geteuid() != 0:
        raise ConfigurationError("A service needs root:  sudo agiledart setup …")
    if shutil.which("systemctl") is None or not Path("/run/systemd/system").is_dir():
        raise OperationFailed(
            "systemd does not run here. Start the agent yourself:  agiledart agent --config /etc/agiledart/agent.toml"
        )
    name = Setup(Path("/"), call).run(None if token is None else read_token(token))
    if delete_token_file and token is not None:
        Path(token[1:]).unlink(missing_ok=True)
    if output == "json":
        print_json({"name": name, "state_dir": f"/{STATE}", "is_new_network": new})
        return
    print_message(f"{name} runs as a service, also after a restart of this machine.", colour=GOOD)
    print_message("Look: sudo agiledart nodes   Log: journalctl -u agiledart -o cat")
    if new:
        print_message("Admit other nodes:  sudo agiledart token create --uses 5")


class Setup:
    """Steps that make an agent a service.

    Args:
        root: root of the file system.
        call: runs `systemctl`.
        seconds: longest time until the node is in the ring.
    """

    def __init__(self, root: Path, call: Call, seconds: float = JOIN_SECONDS) -> None:
        self._root, self._call, self._seconds = root, call, seconds

    def run(self, token: str | None) -> str:
        """Start the service, now and with each start of the machine; return the name of the agent once it is in the ring.

        Raises:
            OperationFailed: there is no unit, or the agent does not get into the ring in time; the token stays for a second try.
        """
        if not any((self._root / folder / UNIT).is_file() for folder in UNIT_FOLDERS):
            raise OperationFailed(
                f"There is no {UNIT}: install the package, or the unit as docs/how-to/systemd.md says."
            )
        if token is not None:
            self._write_token(token)
        self._call(("systemctl", "daemon-reload"))
        self._call(("systemctl", "enable", "--now", UNIT))
        name = self._joined()
        if token is not None:
            (self._root / DROP_IN).unlink(missing_ok=True)
            (self._root / TOKEN).unlink(missing_ok=True)
            self._call(("systemctl", "daemon-reload"))
        return name

    def _write_token(self, token: str) -> None:
        path, drop_in = self._root / TOKEN, self._root / DROP_IN
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(f"{token}\n")
        drop_in.parent.mkdir(parents=True, exist_ok=True)
        drop_in.write_text(DROP_IN_TEXT)

    def _joined(self) -> str:
        deadline = time.monotonic() + self._seconds
        while (place := in_state_dir(self._root / STATE)) is None:
            if time.monotonic() > deadline:
                raise OperationFailed(
                    f"The agent is not in the ring after {self._seconds:.0f} s. Its log says why:  journalctl -u agiledart -o cat"
                )
            time.sleep(LOOK_SECONDS)
        return place.name


def call(words: Sequence[str]) -> None:
    """Run a command. Raises `OperationFailed` with its last line."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OperationFailed(f"{' '.join(words)}: {lines[-1]}")
