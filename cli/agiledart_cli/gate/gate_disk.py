"""Folder of a gate: a file for each lease, hashes of tokens, stages that it scales, whether it is paused. One process uses it."""

import fcntl
import os
from pathlib import Path
from urllib.parse import quote

import msgspec

from agiledart_agent.state_files.durable_file import write_durably
from agiledart_cli.gate.lease_use import Use
from agiledart_kernel.errors import OperationFailed
from agiledart_provisioning.gate.lease_entry import LeaseEntry

_DECODER = msgspec.json.Decoder(LeaseEntry)


class GateDisk:
    """Files of a gate. Raises OperationFailed when another process has them, or one of them is damaged."""

    def __init__(self, folder: Path) -> None:
        self._ledger, self._paused, self._tokens = folder / "ledger", folder / "paused", folder / "tokens.json"
        self._scaled, self._use = folder / "scaled.json", folder / "use.json"
        try:
            self._ledger.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OperationFailed(f"The gate's folder {folder} cannot be used: {error.strerror}.") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OperationFailed(f"Another process runs this gate; it uses {folder}.") from None

    def entries(self) -> tuple[LeaseEntry, ...]:
        """Return the ledger, in the order in which the leases began. Raises OperationFailed: a file is damaged."""
        entries = []
        for path in self._ledger.glob("*.json"):
            try:
                entries.append(_DECODER.decode(path.read_bytes()))
            except (OSError, msgspec.MsgspecError) as error:
                raise OperationFailed(
                    f"{path} of the ledger cannot be read: {error}. The gate leases nothing without its ledger. Put a copy back."
                ) from None
        return tuple(sorted(entries, key=lambda entry: (entry.began_ns, entry.lease_id)))

    def write(self, entry: LeaseEntry) -> None:
        """Write an entry, synced to the disk. Raises OSError."""
        path = self._ledger / f"{quote(entry.lease_id, safe='')}.json"
        write_durably(path, msgspec.json.format(msgspec.json.encode(entry), indent=1))

    @property
    def is_paused(self) -> bool:
        """Return whether an admin has paused the gate."""
        return self._paused.exists()

    def set_paused(self, is_paused: bool) -> None:
        """Remember across restarts whether the gate is paused. Raises OSError."""
        if is_paused:
            write_durably(self._paused, b"")
        else:
            self._paused.unlink(missing_ok=True)

    def tokens(self) -> dict[str, str]:
        """Return hash of a token → its lease."""
        try:
            return msgspec.json.decode(self._tokens.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise OperationFailed(f"{self._tokens} cannot be read: {error}. Put a copy back, or remove it.") from None

    def write_tokens(self, tokens: dict[str, str]) -> None:
        """Write the hashes of tokens and their leases. Raises OSError."""
        write_durably(self._tokens, msgspec.json.encode(tokens))

    def scaled(self) -> set[str]:
        """Return the stages that have a number from this gate. Raises OperationFailed: the file is damaged."""
        try:
            return msgspec.json.decode(self._scaled.read_bytes(), type=set[str])
        except FileNotFoundError:
            return set()
        except (OSError, msgspec.MsgspecError) as error:
            raise OperationFailed(f"{self._scaled} cannot be read: {error}. Put a copy back, or remove it.") from None

    def write_scaled(self, stages: set[str]) -> None:
        """Write the stages that have a number from this gate. Raises OSError."""
        write_durably(self._scaled, msgspec.json.encode(sorted(stages)))

    def use(self) -> Use:
        """Return lease → application → seconds of instances. Raises OperationFailed: the file is damaged."""
        try:
            return msgspec.json.decode(self._use.read_bytes(), type=Use)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise OperationFailed(f"{self._use} cannot be read: {error}. Put a copy back, or remove it.") from None

    def write_use(self, use: Use) -> None:
        """Write the use of leases. Raises OSError."""
        write_durably(self._use, msgspec.json.encode(use))

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)
