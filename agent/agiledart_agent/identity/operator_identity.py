"""Identity of an agent's operator, a person at its machine who uses its control socket.

The agent's own key hosts; it commands nothing for users (decision 0018). At the socket the operator's key signs, and owns
what is submitted there.

    operator.identity    the operator's key and chain, in the state directory

On the node that created the network the operator is an admin, by a membership of 90 days. The node signs it again while it
has the authority's key. So a state directory without that key gives an admin's rights for 90 days at most. On a node that
joined, the operator has the role that the join token gives to it, or that of a user's token (`agiledart identity
operator`). A renewal service signs a submitter or reader of a join token again, with its node. Without an operator the agent's
own key signs: its role lets it look at the network, drain this node and leave.
"""

import contextlib
import secrets
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.reader_identity import read_identity, write_identity
from agiledart_agent.identity.tokens import Token, redeem
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.grants import OPERATOR_ROLES, Grant, decode_link, link_hash, sign_link, verify_chain
from agiledart_kernel.permissions import Principal
from agiledart_kernel.signed_commands import CommandTerms, sign_command
from agiledart_transport.agent_connection import ClientIdentity
from agiledart_transport.certificates import check_signature, public_bytes

FILE: Final = "operator.identity"
_DAY: Final = 86_400

RENEWED_OPERATORS: Final = ("submitter", "reader")
"""Roles of operators that a renewal service signs again. Admins get another token."""

FOUNDER_DAYS: Final = 90
"""Membership of the founder's operator."""


class OperatorIdentity:
    """The operator of one agent.

    Args:
        identity: the agent's own, which signs where there is no operator.
        user: the operator's; None: there is none.
    """

    def __init__(self, identity: Identity, user: ClientIdentity | None = None) -> None:
        self._identity, self._user = identity, user

    @property
    def chain(self) -> tuple[bytes, ...]:
        """The chain that commands at the socket carry."""
        return self._identity.chain if self._user is None else self._user.chain

    @property
    def not_after(self) -> int | None:
        """Wall time in seconds at which the operator's membership ends; None: there is no operator."""
        return None if self._user is None else decode_link(self._user.chain[-1]).not_after

    def renew(self) -> None:
        """Sign the founder's operator again in the last half of its membership. Raises `OperationFailed`."""
        if _is_due(self._identity, self._user):
            self._user = _signed_by_authority(self._identity)

    @property
    def is_renewable(self) -> bool:
        """True where a renewal service signs the operator's membership again. It signs no admin's."""
        return self._user is not None and decode_link(self._user.chain[-1]).role in RENEWED_OPERATORS

    @property
    def is_to_be_renewed(self) -> bool:
        """True in the last tenth of such a membership: it is to be signed again."""
        if self._user is None or not self.is_renewable:
            return False
        link = decode_link(self._user.chain[-1])
        return _left(self._identity, self._user) <= (link.not_after - link.not_before) / 10

    def take(self, chain: tuple[bytes, ...]) -> int:
        """Take a renewed membership of the same key and role. Return when it ends. Raises `OperationFailed`."""
        assert self._user is not None, "the caller looks"
        now = decode_link(self._user.chain[-1])
        user = ClientIdentity(self._user.network, self._user.seed, chain)
        try:
            grant = _grant(self._identity, user)
        except Refused as error:
            raise OperationFailed(f"the answer of the renewal service is not valid ({error})") from None
        if grant.role != now.role or grant.not_after <= now.not_after:
            raise OperationFailed("the renewal service cannot sign for longer: its own membership ends")
        self._user = _stored(self._identity, ed25519.Ed25519PrivateKey.from_private_bytes(user.seed), chain)
        return grant.not_after

    @property
    def principal(self) -> Principal:
        """The requester at the socket."""
        if not self.chain:  # in no network yet
            return Principal("agent", "", self._identity.public_key)
        link = decode_link(self.chain[-1])
        return Principal(link.role, link.scope, link.key, link.quota)

    def sign(self, terms: CommandTerms, wall_ms: int) -> bytes:
        """Return a command of the socket's user, signed."""
        key = self._identity.key
        if self._user is not None:
            key = ed25519.Ed25519PrivateKey.from_private_bytes(self._user.seed)
        return sign_command(key.sign, self.chain, self._identity.network, terms, wall_ms, secrets.token_bytes)


def operator_of(identity: Identity, token: Token | None) -> OperatorIdentity:
    """Return the operator of a node, made at its first start. Raises `OperationFailed` when it cannot be stored.

    Args:
        token: with which the node joins; None: it has joined before, or created its network.
    """
    known = stored_operator(identity)
    if token is not None and token.operator and not _is_from(token.operator, known):
        with contextlib.suppress(OperationFailed):  # the token has expired: a service starts with that of its first day
            return OperatorIdentity(identity, _redeemed(identity, token, token.operator, known))
    operator = OperatorIdentity(identity, known)
    operator.renew()
    return operator


def _is_due(identity: Identity, user: ClientIdentity | None) -> bool:
    """Return whether the authority's key, where it is, signs an operator: none is valid here, or the founder's ends soon."""
    if identity.authority is None or user is None:
        return identity.authority is not None
    is_founders = len(user.chain) == 1 and decode_link(user.chain[-1]).role == "admin"
    return is_founders and not 0 < _left(identity, user) - FOUNDER_DAYS * _DAY / 2 <= FOUNDER_DAYS * _DAY / 2


def _left(identity: Identity, user: ClientIdentity) -> float:
    return decode_link(user.chain[-1]).not_after - identity.wall_seconds()


def _signed_by_authority(identity: Identity) -> ClientIdentity:
    """Return the founder's operator with a new membership; its key stays, since it owns applications."""
    assert identity.authority is not None, "the caller looks"
    key, now = ed25519.Ed25519PrivateKey.generate(), int(identity.wall_seconds())
    with contextlib.suppress(OperationFailed, Refused):
        user = read_identity(identity.directory / FILE)[0]
        if user.network == identity.network:
            key = ed25519.Ed25519PrivateKey.from_private_bytes(user.seed)
    chain = sign_link(
        identity.network, identity.authority.sign, (), key=public_bytes(key), use="act", role="admin",
        not_before=now, not_after=now + FOUNDER_DAYS * _DAY,
    )  # fmt: skip
    return _stored(identity, key, chain)


def stored_operator(identity: Identity) -> ClientIdentity | None:
    """Return the stored operator of a node, if it is a member of the node's network now."""
    with contextlib.suppress(OperationFailed, Refused):
        user = read_identity(identity.directory / FILE)[0]
        _grant(identity, user)
        return user
    return None


def let_operate(identity: Identity, token: Token) -> Grant:
    """Let the holder of a user's token operate this node, from its next start on. Return the new rights.

    Raises:
        OperationFailed: the token is of another network, is too old, or is for no user.
    """
    invited = token.operator or token.chain
    role = decode_link(invited[-1]).role
    if token.network != identity.network:
        raise OperationFailed(
            f"The token is of network {token.network.hex()[:8]}, this node of {identity.network.hex()[:8]}."
        )
    if role not in OPERATOR_ROLES:
        raise OperationFailed(
            f"This token is for a new {role}. An operator needs one of the role submitter, reader or admin."
        )
    return _grant(identity, _redeemed(identity, token, invited, stored_operator(identity)))


def _redeemed(
    identity: Identity, token: Token, invited: tuple[bytes, ...], known: ClientIdentity | None
) -> ClientIdentity:
    """Return the operator with rights by this invitation; the key stays, since it owns applications."""
    key = ed25519.Ed25519PrivateKey.generate()
    if known is not None:
        key = ed25519.Ed25519PrivateKey.from_private_bytes(known.seed)
    return _stored(identity, key, redeem(token, public_bytes(key), int(identity.wall_seconds()), invited))


def _is_from(invited: tuple[bytes, ...], known: ClientIdentity | None) -> bool:
    """Return whether the stored operator has its rights by this invitation."""
    return known is not None and link_hash(invited[-1]) in map(link_hash, known.chain)


def _grant(identity: Identity, user: ClientIdentity) -> Grant:
    key = public_bytes(ed25519.Ed25519PrivateKey.from_private_bytes(user.seed))
    return verify_chain(identity.network, user.chain, key, int(identity.wall_seconds()), check_signature)


def _stored(identity: Identity, key: ed25519.Ed25519PrivateKey, chain: tuple[bytes, ...]) -> ClientIdentity:
    user = ClientIdentity(identity.network, key.private_bytes_raw(), chain)
    path: Path = identity.directory / FILE
    beside = path.with_name(f".{FILE}.new")
    try:
        beside.unlink(missing_ok=True)
        write_identity(beside, user)
        beside.replace(path)
    except OSError as error:
        raise OperationFailed(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None
    return user
