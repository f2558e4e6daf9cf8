"""Identity of a node: its key, its network, its grant, its incarnation. All of it is in the state directory.

    node.key         the node's Ed25519 key; PeerId, NodeId and TLS identity come from it
    authority.key    only where the network was created: the key whose public half is the network's id
    network.json     the network's id and the chain of grants of this node
    incarnation      number of the node's current incarnation
    lock             held while an agent runs, with its pid

The node's key and its network have copies with checksums (`backed_up_file`): a damaged or missing file is restored,
with a notice. The authority's key has no copy, so moving it to safe storage leaves no copy here.

Source: the admission spec, section 1; decision 0004.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.identity.clock_check import check_clock
from agiledart_agent.identity.identity_files import (
    _JOIN_AGAIN,
    DamagedKey,
    StoredNetwork,
    keys_in,
    lock_directory,
    matching_parts,
    networks_in,
    read_incarnation,
    read_key,
    store_key,
)
from agiledart_agent.state_files.backed_up_file import BackedUpFile, is_stored, write_backed_up
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import secure_state_directory
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.grants import Grant, Sign, link_hash, sign_link, verify_chain
from agiledart_kernel.node_id import NodeId, node_id_of_key
from agiledart_transport.certificates import check_signature, make_credentials, peer_id_text, public_bytes
from agiledart_transport.tls_contexts import TlsCredentials

FIRST_AGENT_DAYS: Final = 3_650
"""Membership of the node that created the network. It holds the authority's key and could renew itself anyway."""

_UNSIGNED: Final = (
    "{path} cannot be used: {why}. This node signs nothing for its network until a copy of the key is put back there."
)


@dataclass(frozen=True, slots=True, repr=False)
class Issuer:
    """A key that may sign invitations: the authority's (empty chain) or an admin's."""

    network: bytes
    sign: Sign
    public_key: bytes
    chain: tuple[bytes, ...]


@dataclass(slots=True, repr=False)
class Identity:
    """A node's identity. Make it with `load_or_create` (an agent) or `read` (a tool beside it).

    Attributes:
        directory: the state directory.
        network: the network's id; empty while the node belongs to none.
        chain: signed links from the authority's down to this node's.
        token: signed record of the token by which it joined; empty: without one.
        receipt: proof that it was registered as a use of that token; empty: not yet.
        incarnation: grows at every start; 0 when only read.
        authority: the authority's key, where it is kept.
        repaired: files that were restored from their copies, and why.
        is_untouched: this node created its network and has seen no other node and no application in it: nothing depends
            on it.
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
        """Return the identity in this directory, locked for one running agent, in its next incarnation.

        Raises `OperationFailed`: another agent holds the directory, the clock is wrong, a file is damaged or readable
        by others, the disk is full.
        """
        check_clock(wall_seconds())
        try:
            secure_state_directory(state_dir)
            lock = lock_directory(state_dir)
        except OSError as error:
            raise OperationFailed(f"{state_dir} cannot be used as state directory: {error.strerror}.") from None
        try:
            path = state_dir / "node.key"
            is_new = not is_stored(path)
            if is_new and is_stored(network := state_dir / "network.json"):
                raise OperationFailed(
                    f"{path} is missing, and {network} needs it: without its key this node is no member of its network. Put a "
                    f"copy of the key back, or start as a new node:  rm {network}*   and   agiledart agent --join @FILE"
                )
            if is_new:
                store_key(path, ed25519.Ed25519PrivateKey.generate())
            identity = cls.read(state_dir, wall_seconds)
            identity.keep_copies()
            # A lost counter starts from the clock: higher than one incarnation a second could have counted.
            counted = 0 if is_new else read_incarnation(state_dir / "incarnation", int(wall_seconds()))
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
        """Return the identity in this directory as it is, without a lock: to sign tokens beside a running agent."""
        path = state_dir / "node.key"
        if not is_stored(path):
            raise OperationFailed(f'There is no node in {state_dir}. Start one with "agiledart agent".')
        network = state_dir / "network.json"
        key, network_file = matching_parts(
            keys_in(path), networks_in(network) if is_stored(network) else [], wall_seconds()
        )
        files = {path: key.file, **({network: network_file.file} if network_file is not None else {})}
        identity = cls(state_dir, key.content, wall_seconds, _chosen=files)
        identity.repaired = {at: chosen_file.notice for at, chosen_file in files.items() if chosen_file.notice}
        if network_file is not None:
            stored = network_file.content
            identity.network, identity.chain = stored.network, stored.chain
            identity.is_untouched = stored.is_untouched
            identity.token, identity.receipt = stored.token, stored.receipt
        authority = state_dir / "authority.key"
        if authority.exists():
            identity._take_authority(authority)
        return identity

    def _take_authority(self, path: Path) -> None:
        """Read the authority's key. Without it this node is a member like others, and `repaired` says why."""
        try:
            key = read_key(path)
        except DamagedKey:
            key, reason = None, "it is damaged, and holds no Ed25519 key"
        else:
            reason = "it is the key of another network"
        if key is not None and self.network in (b"", public_bytes(key)):
            self.authority = key if self.network else None
        elif self.network:
            self.repaired[path] = _UNSIGNED.format(path=path, why=reason)
        else:
            raise OperationFailed(f"{_UNSIGNED.format(path=path, why=reason)} Or create another network:  rm {path}")

    def keep_copies(self) -> None:
        """Restore damaged files from their copies, and write missing copies. Raises OSError."""
        for path, stored in self._chosen.items():
            if stored.notice or not stored.has_backup:
                write_backed_up(path, stored.content)

    # ---------------------------------------------------------------------------------------------------- properties

    @property
    def public_key(self) -> bytes:
        """The 32 bytes from which everything else derives."""
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
        """Return the grant of this node now. Raises `Refused` (for example `expired`), `length` when it belongs to no network."""
        return verify_chain(self.network, self.chain, self.public_key, int(self.wall_seconds()), check_signature)

    def check_membership(self) -> None:
        """Raise `OperationFailed`, with advice, when key and network do not match or the membership is over."""
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
                f"{path} does not match {path.with_name('node.key')} ({error}): one of the two is damaged, or another "
                f"node's. Put both back from a copy. {_JOIN_AGAIN.format(path=path)}"
            ) from None

    def credentials(self) -> TlsCredentials:
        """Return a fresh TLS leaf for this node. Make a new one at each start and before it expires."""
        return make_credentials(self.key, self.network, int(self.wall_seconds()))

    def issuer(self) -> Issuer:
        """Return the key with which this node may sign tokens. Raises `OperationFailed` when it has none."""
        if self.authority is not None:
            return Issuer(self.network, self.authority.sign, self.network, ())
        if self.network:
            try:
                if self.grant().role == "admin":
                    return Issuer(self.network, self.key.sign, self.public_key, self.chain)
            except Refused as error:
                raise OperationFailed(
                    f"This node's own membership is not valid by its clock ({error}). Set the clock if it is wrong "
                    "(sudo timedatectl set-ntp true), or ask another agent."
                ) from None
        if missing_key_text := self.repaired.get(self.directory / "authority.key"):
            raise OperationFailed(missing_key_text)
        raise OperationFailed(
            f"{self.directory} has neither the network's authority key nor an admin's, so it cannot make tokens. "
            "Make them where the network was started."
        )

    # ------------------------------------------------------------------------------------------------------- changes

    def create_network(self) -> None:
        """Create a new network: make its authority key, and this node its first agent. Raises `OperationFailed`.

        Nothing is written before `keep_network`: a start that fails leaves no network behind.
        """
        if self.network:
            raise OperationFailed(f"{self.directory} already belongs to network {self.network.hex()[:8]}.")
        path = self.directory / "authority.key"
        # A key without network.json: a crash came between the two. The key of a network that was left belongs to that
        # network.
        has_key = path.exists() and not self._has_left
        authority = read_key(path) if has_key else ed25519.Ed25519PrivateKey.generate()
        now = int(self.wall_seconds())
        network = public_bytes(authority)
        chain = sign_link(
            network, authority.sign, (), key=self.public_key, use="act", role="agent",
            not_before=now, not_after=now + FIRST_AGENT_DAYS * 86_400,
        )  # fmt: skip
        self.network, self.chain, self._is_kept = network, chain, False
        self.authority, self.is_untouched = authority, True

    def join_network(self, network: bytes, chain: tuple[bytes, ...], token: bytes = b"") -> None:
        """Join a network by this chain (from `tokens.redeem`). `keep_network` stores it.

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
        """Leave a network on which nothing depends. `keep_network` of the next network removes its key."""
        assert self.is_untouched, "other nodes may be in this network"
        self.network, self.chain, self.authority = b"", (), None
        self.token = self.receipt = b""
        self.is_untouched, self._has_left = False, True

    def keep_network(self) -> None:
        """Store the network of this node, for the next starts. Raises `OperationFailed`."""
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
        """Use this chain from now on. A full disk does not end the agent: it will request renewal again."""
        self.chain = chain
        if self._is_kept:
            with contextlib.suppress(OSError):
                self._store()

    def keep_receipt(self, receipt: bytes) -> None:
        """Present this receipt from now on to peers that do not know this node.

        A full disk does not end the agent: such peers ask the ring.
        """
        self.receipt = receipt
        if self._is_kept:
            with contextlib.suppress(OSError):
                self._store()

    def touch_network(self) -> None:
        """Note that another node or an application has come, so the network must not be left lightly.

        A full disk does not end the agent.
        """
        if self.is_untouched:
            self.is_untouched = False
            with contextlib.suppress(OSError):
                self._store()

    def _store(self) -> None:
        content = StoredNetwork(self.network, self.chain, self.is_untouched, self.token, self.receipt)
        write_backed_up(self.directory / "network.json", msgspec.json.encode(content) + b"\n")

    def close(self) -> None:
        """Release the directory for another agent."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None
