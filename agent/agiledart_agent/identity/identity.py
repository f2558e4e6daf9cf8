"""Who a node is: its key, its network, its grant, which life it is in. All of it lives in the state directory.

    node.key         the node's Ed25519 key; PeerId, NodeId and TLS identity come from it
    authority.key    only where the network was founded: the key whose public half is the network's id
    network.json     the network's id and the chain of grants of this node
    incarnation      number of the node's current life
    lock             held while an agent runs, with its pid

The node's key and its network have copies with checksums (`kept_file`): a damaged or missing one is put right, and told. The
authority's key has none: who moves it to a safe place does not leave a copy behind.

Source: the admission spec, section 1; decision 0004.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final, Generic, NamedTuple, TypeVar

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.state_files.backed_up_file import BackedUpFile, is_stored, read_file_and_copy, write_backed_up
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private, secure_state_directory
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.grants import SKEW_SECONDS, Grant, Sign, link_hash, sign_link, verify_chain
from agiledart_kernel.node_id import NodeId, node_id_of_key
from agiledart_transport.certificates import check_signature, make_credentials, peer_id_text, public_bytes
from agiledart_transport.tls_contexts import TlsCredentials

RELEASED: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""No clock that is right shows an earlier time than this: the software did not exist."""

FIRST_AGENT_DAYS: Final = 3_650
"""Membership of the node that founded the network; it holds the authority's key and could renew itself anyway."""

T = TypeVar("T")

_HOUR: Final = 3_600
_DAY: Final = 24 * _HOUR
"""So long before it was made an executor's grant begins, as its TLS leaf does: judges whose clock is behind take it, too."""

_JOIN_AGAIN: Final = "Join its network again with a token:  rm {path}*   and   agiledart agent --join @FILE"

_UNSIGNED: Final = (
    "{path} cannot be used: {why}. This node signs nothing for its network until a copy of the key is put back there."
)


class ClockIsWrong(OperationFailed):
    """The wall clock shows a time that cannot be."""


class _DamagedKey(OperationFailed):
    """A file that should hold a key, and holds none."""


class _Network(msgspec.Struct, frozen=True):
    """What `network.json` holds; msgspec writes bytes as base64."""

    network: bytes
    chain: tuple[bytes, ...]
    is_untouched: bool = False
    token: bytes = b""
    receipt: bytes = b""


@dataclass(frozen=True, slots=True, repr=False)
class Issuer:
    """A key that may sign invitations: the authority's (empty chain) or an admin's."""

    network: bytes
    sign: Sign
    public_key: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ExecutorPass:
    """What an executor needs to open links. Its key stays with its agent, in memory, so that what it shows can be renewed."""

    credentials: TlsCredentials
    chain: tuple[bytes, ...]
    key: ed25519.Ed25519PrivateKey
    grant: Grant

    @property
    def public_key(self) -> bytes:
        """Of its key."""
        return self.grant.key

    @property
    def ends(self) -> int:
        """Seconds since 1970 at which something of it has ended."""
        return min(self.grant.not_after, self.credentials.expires)

    @property
    def node_id(self) -> NodeId:
        """The id under which the executor's links are dialled (`expect` of `connect`)."""
        return node_id_of_key(self.public_key)


@dataclass(slots=True, repr=False)
class Identity:
    """A node's identity. Make it with `load_or_create` (an agent) or `read` (a tool beside it).

    Attributes:
        directory: the state directory.
        network: the network's id; empty while the node belongs to none.
        chain: signed links from the authority's down to this node's.
        token: the signed record of the token by which it came, `receipt`: that it was counted among its uses. Empty: by none, or
            not yet.
        incarnation: grows at every start; 0 when only read.
        authority: the authority's key, where it is kept.
        repaired: files that were read from their copies, and why.
        is_untouched: this node founded its network and has seen no other node and no application in it: nobody misses it.
        lock: held while this is an agent's.
    """

    directory: Path
    key: ed25519.Ed25519PrivateKey
    wall_seconds: Callable[[], float]
    network: bytes = b""
    chain: tuple[bytes, ...] = ()
    token: bytes = b""
    receipt: bytes = b""
    incarnation: int = 0
    authority: ed25519.Ed25519PrivateKey | None = None
    repaired: dict[Path, str] = field(default_factory=dict)
    is_untouched: bool = False
    lock: IO[str] | None = None
    _is_kept: bool = True
    _has_left: bool = False
    _chosen: dict[Path, BackedUpFile] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Identity({self.peer_id})"

    @classmethod
    def load_or_create(cls, state_dir: Path, wall_seconds: Callable[[], float] = time.time) -> "Identity":
        """The identity in this directory, locked for one running agent, in its next life.

        Raises `OperationFailed`: another agent holds the directory, the clock is wrong, a file is damaged or
        readable by others, the disk is full.
        """
        check_clock(wall_seconds())
        try:
            secure_state_directory(state_dir)
            lock = _lock(state_dir)
        except OSError as error:
            raise OperationFailed(f"{state_dir} cannot be used as state directory: {error.strerror}.") from None
        try:
            path = state_dir / "node.key"
            is_new = not is_stored(path)
            if is_new and is_stored(network := state_dir / "network.json"):
                raise OperationFailed(
                    f"{path} is missing, and {network} is this node's: without its key it is nobody in its network. Put a "
                    f"copy of the key back, or be a new node:  rm {network}*   and   agiledart agent --join @FILE"
                )
            if is_new:
                store_key(path, ed25519.Ed25519PrivateKey.generate())
            identity = cls.read(state_dir, wall_seconds)
            identity.keep_copies()
            # A counter that was lost starts from the clock: above all that a life a second could have counted.
            counted = 0 if is_new else _read_incarnation(state_dir / "incarnation", int(wall_seconds()))
            identity.incarnation = counted + 1
            write_durably(state_dir / "incarnation", f"{identity.incarnation}\n".encode())
        except OSError as error:
            lock.close()
            raise OperationFailed(f"{error.filename or state_dir} cannot be written: {error.strerror}.") from None
        except OperationFailed:
            lock.close()
            raise
        identity.lock = lock
        return identity

    @classmethod
    def read(cls, state_dir: Path, wall_seconds: Callable[[], float] = time.time) -> "Identity":
        """The identity in this directory as it is, without a lock: to sign tokens beside a running agent."""
        path = state_dir / "node.key"
        if not is_stored(path):
            raise OperationFailed(f'No node lives in {state_dir}. Start one with "agiledart agent".')
        network = state_dir / "network.json"
        key, note = _that_go_together(
            _keys_in(path), _networks_in(network) if is_stored(network) else [], wall_seconds()
        )
        chosen = {path: key.kept, **({network: note.kept} if note is not None else {})}
        identity = cls(state_dir, key.is_what, wall_seconds, _chosen=chosen)
        identity.repaired = {at: kept.notice for at, kept in chosen.items() if kept.notice}
        if note is not None:
            stored = note.is_what
            identity.network, identity.chain = stored.network, stored.chain
            identity.is_untouched = stored.is_untouched
            identity.token, identity.receipt = stored.token, stored.receipt
        authority = state_dir / "authority.key"
        if authority.exists():
            identity._take_authority(authority)
        return identity

    def _take_authority(self, path: Path) -> None:
        """Have the authority's key; without it this node is a member like others, and says why."""
        try:
            key = _read_key(path)
        except _DamagedKey:
            key, why = None, "it is damaged, and holds no Ed25519 key"
        else:
            why = "it is the key of another network"
        if key is not None and self.network in (b"", public_bytes(key)):
            self.authority = key if self.network else None
        elif self.network:
            self.repaired[path] = _UNSIGNED.format(path=path, why=why)
        else:
            raise OperationFailed(f"{_UNSIGNED.format(path=path, why=why)} Or found another network:  rm {path}")

    def keep_copies(self) -> None:
        """Put the copies of damaged files in their places, and make those that are missing; raises OSError."""
        for path, kept in self._chosen.items():
            if kept.notice or not kept.has_backup:
                write_backed_up(path, kept.content)

    # ---------------------------------------------------------------------------------------------------- what it is

    @property
    def public_key(self) -> bytes:
        """The 32 bytes that everything else comes from."""
        return public_bytes(self.key)

    @property
    def node_id(self) -> NodeId:
        """The node's position on the ring."""
        return node_id_of_key(self.public_key)

    @property
    def peer_id(self) -> str:
        """The node's name for libp2p and people, `12D3Koo…`."""
        return peer_id_text(self.public_key)

    def grant(self) -> Grant:
        """What this node may do now; raises `Refused` (for example `expired`), `length` when it belongs to no
        network."""
        return verify_chain(self.network, self.chain, self.public_key, int(self.wall_seconds()), check_signature)

    def check_membership(self) -> None:
        """Raise `OperationFailed`, with what to do, when key and network do not go together or the membership is over."""
        path = self.directory / "network.json"
        try:
            self.grant()
        except Refused as error:
            if error.reason == "not yet valid":
                raise
            if error.reason == "expired":
                raise OperationFailed(
                    f"This node's membership {error}. {_JOIN_AGAIN.format(path=path)} (make one where the network was "
                    "started:  agiledart token create)"
                ) from None
            raise OperationFailed(
                f"{path} does not go with {path.with_name('node.key')} ({error}): one of the two is damaged, or another "
                f"node's. Put both back from a copy. {_JOIN_AGAIN.format(path=path)}"
            ) from None

    def credentials(self) -> TlsCredentials:
        """A fresh TLS leaf for this node. Make a new one at each start and before it expires."""
        return make_credentials(self.key, self.network, int(self.wall_seconds()))

    def issuer(self) -> Issuer:
        """The key with which this node may sign tokens; raises `OperationFailed` when it has none."""
        if self.authority is not None:
            return Issuer(self.network, self.authority.sign, self.network, ())
        if self.network:
            try:
                if self.grant().role == "admin":
                    return Issuer(self.network, self.key.sign, self.public_key, self.chain)
            except Refused as error:
                raise OperationFailed(
                    f"This node's own membership is not good by its clock ({error}). Set the clock if it is wrong "
                    "(sudo timedatectl set-ntp true), or ask another agent."
                ) from None
        if lacking := self.repaired.get(self.directory / "authority.key"):
            raise OperationFailed(lacking)
        raise OperationFailed(
            f"{self.directory} has neither the network's authority key nor an admin's, so it cannot make tokens. "
            "Make them where the network was started."
        )

    def admin_chain(self) -> tuple[bytes, ...]:
        """A chain by which this node's own key acts as an admin for an hour; raises `OperationFailed` when it may not."""
        issuer = self.issuer()
        if issuer.chain:
            return self.chain
        now = int(self.wall_seconds())
        return sign_link(
            self.network, issuer.sign, (), key=self.public_key, use="act", role="admin",
            not_before=now - SKEW_SECONDS, not_after=now + _HOUR,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------- changes

    def create_network(self) -> None:
        """Start a new network: make its authority key and this node its first agent; raises `OperationFailed`.

        Nothing is written before `keep_network`: a start that fails leaves no network behind.
        """
        if self.network:
            raise OperationFailed(f"{self.directory} already belongs to network {self.network.hex()[:8]}.")
        path = self.directory / "authority.key"
        # A key without network.json: a crash came between the two. One whose network was left is that network's.
        has_key = path.exists() and not self._has_left
        authority = _read_key(path) if has_key else ed25519.Ed25519PrivateKey.generate()
        now = int(self.wall_seconds())
        network = public_bytes(authority)
        chain = sign_link(
            network, authority.sign, (), key=self.public_key, use="act", role="agent",
            not_before=now, not_after=now + FIRST_AGENT_DAYS * 24 * _HOUR,
        )  # fmt: skip
        self.network, self.chain, self._is_kept = network, chain, False
        self.authority, self.is_untouched = authority, True

    def join_network(self, network: bytes, chain: tuple[bytes, ...], token: bytes = b"") -> None:
        """Belong to a network by this chain (from `tokens.redeem`); written down by `keep_network`.

        `token`: the signed record of the token.

        Raises `OperationFailed`, `Refused`.
        """
        if self.network and self.network != network:
            raise OperationFailed(
                f"{self.directory} belongs to network {self.network.hex()[:8]}, the token to {network.hex()[:8]}. "
                "Give another --state-dir, or remove this one to leave its network for good."
            )
        grant = verify_chain(network, chain, self.public_key, int(self.wall_seconds()), check_signature)
        if not self.chain or self.token != token or grant.invitation not in map(link_hash, self.chain):
            self.receipt = b""
        self.network, self.chain, self.token, self._is_kept = network, chain, token, False

    def leave_network(self) -> None:
        """Belong to no network, having been alone in one that nobody misses. `keep_network` of the next one removes its key."""
        assert self.is_untouched, "others may live in this network"
        self.network, self.chain, self.authority = b"", (), None
        self.token = self.receipt = b""
        self.is_untouched, self._has_left = False, True

    def keep_network(self) -> None:
        """Write down which network this node belongs to, for the next starts; raises `OperationFailed`."""
        if self._is_kept:
            return
        path = self.directory / "authority.key"
        try:
            if self._has_left:
                path.unlink(missing_ok=True)
            if self.authority is not None and not path.exists():
                store_key(path, self.authority)
            self._store()
        except OSError as error:
            raise OperationFailed(f"{error.filename or path} cannot be written: {error.strerror}.") from None
        self._is_kept, self._has_left = True, False

    def renew(self, chain: tuple[bytes, ...]) -> None:
        """Belong to the network by this chain from now on. A full disk is no reason to end: it is asked for again."""
        self.chain = chain
        if self._is_kept:
            with contextlib.suppress(OSError):
                self._store()

    def keep_receipt(self, receipt: bytes) -> None:
        """Show this from now on to whoever does not know us. A full disk is no reason to end: who meets us asks the ring."""
        self.receipt = receipt
        if self._is_kept:
            with contextlib.suppress(OSError):
                self._store()

    def touch_network(self) -> None:
        """Another node or an application has come: somebody would miss this network now. A full disk is no reason to end."""
        if self.is_untouched:
            self.is_untouched = False
            with contextlib.suppress(OSError):
                self._store()

    def _store(self) -> None:
        note = _Network(self.network, self.chain, self.is_untouched, self.token, self.receipt)
        write_backed_up(self.directory / "network.json", msgspec.json.encode(note) + b"\n")

    def close(self) -> None:
        """Let another agent have the directory."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None


# -------------------------------------------------------------------------------------------------------------
# executors


def grant_executor(identity: Identity, executor_public_key: bytes, app: str, hours: float = 24.0) -> tuple[bytes, ...]:
    """This agent's chain, one link longer: the key may act as an executor of one application for so many hours."""
    try:
        own = identity.grant()
    except Refused as error:
        if error.reason != "not yet valid":
            raise
        raise ClockIsWrong(f"the clock of this node is behind: its own membership is {error}") from None
    now = int(identity.wall_seconds())
    return sign_link(
        identity.network, identity.key.sign, identity.chain, key=executor_public_key, use="act", role="executor",
        not_before=max(now - _DAY, own.not_before), not_after=min(own.not_after, now + int(hours * _HOUR)), scope=f"app:{app}",
    )  # fmt: skip


def make_executor_pass(
    identity: Identity, app: str, hours: float = 24.0, key: ed25519.Ed25519PrivateKey | None = None
) -> ExecutorPass:
    """All that an executor needs: TLS leaf and chain of its key, or, for a new one, of a fresh key."""
    key = key or ed25519.Ed25519PrivateKey.generate()
    chain = grant_executor(identity, public_bytes(key), app, hours)
    now = int(identity.wall_seconds())
    grant = verify_chain(identity.network, chain, public_bytes(key), now, check_signature)
    return ExecutorPass(make_credentials(key, identity.network, now), chain, key, grant)


# -----------------------------------------------------------------------------------------------------------------
# files


def check_clock(wall_seconds: float) -> None:
    """Raise `ClockIsWrong` when the wall clock cannot be right."""
    if wall_seconds < RELEASED.timestamp():
        shown = datetime.fromtimestamp(max(0.0, wall_seconds), UTC).date()
        raise ClockIsWrong(
            f"The clock of this node says {shown}: certificates and event times would be wrong. "
            "Set it (sudo timedatectl set-ntp true)"
        )


def _lock(directory: Path) -> IO[str]:
    """The directory's lock, held until the file is closed; the system lets go of it when the process ends, however."""
    file = os.fdopen(os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = file.read(20).strip()
        file.close()
        who = f"another agent (pid {holder})" if holder.isdigit() else "another agent"
        raise OperationFailed(
            f"{directory} is in use by {who}. Give another --state-dir for a second agent, or stop the other."
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def store_key(path: Path, key: ed25519.Ed25519PrivateKey) -> None:
    """Put a key in the place of another, so that a restart finds the one or the other; raises OSError."""
    write = write_backed_up if path.name == "node.key" else write_durably
    write(
        path,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


class _Found(NamedTuple, Generic[T]):
    """What a kept file, or its copy, holds."""

    is_what: T
    kept: BackedUpFile


def _that_go_together(
    keys: Sequence[_Found[ed25519.Ed25519PrivateKey]], networks: Sequence[_Found[_Network]], now: float
) -> tuple[_Found[ed25519.Ed25519PrivateKey], _Found[_Network] | None]:
    """The key and the network's note of one node: of the file and its copy one may be another node's."""
    for key in keys:
        for note in networks:
            try:
                verify_chain(
                    note.is_what.network, note.is_what.chain, public_bytes(key.is_what), int(now), check_signature
                )
            except Refused as error:
                if error.reason not in ("expired", "not yet valid"):
                    continue
            return key, note
    return keys[0], networks[0] if networks else None


def _networks_in(path: Path) -> list[_Found[_Network]]:
    found, why = [], ""
    try:
        for kept in read_file_and_copy(path):
            try:
                found.append(_Found(msgspec.json.decode(kept.content, type=_Network), kept))
            except msgspec.MsgspecError as error:
                why = why or str(error)
    except OSError as error:
        why = str(error)
    if not found:
        raise OperationFailed(f"{path} is damaged ({why}). {_JOIN_AGAIN.format(path=path)}")
    return found


def _keys_in(path: Path) -> list[_Found[ed25519.Ed25519PrivateKey]]:
    """Keys in a file and its copy, one at least. Raises `_DamagedKey`, OperationFailed."""
    try:
        both = read_file_and_copy(path, secret=True)
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {error.strerror}.") from None
    found = []
    for kept in both:
        with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
            key = serialization.load_pem_private_key(kept.content, None)
            if isinstance(key, ed25519.Ed25519PrivateKey):
                found.append(_Found(key, kept))
    if not found:
        raise _DamagedKey(
            f"{path} is damaged: it holds no Ed25519 key, and it has no good copy. Put a copy of yours there, or be a new node:  "
            f"rm {path} {path.with_name('network.json')}*   and join with a token:  agiledart agent --join @FILE"
        )
    return found


def _read_key(path: Path) -> ed25519.Ed25519PrivateKey:
    """A key; raises `_DamagedKey`, OperationFailed."""
    return _keys_in(path)[0].is_what


def _read_incarnation(path: Path, floor: int) -> int:
    try:
        text = read_private(path).decode("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return floor
    return int(text) if text.isdigit() and len(text) < 18 else floor
