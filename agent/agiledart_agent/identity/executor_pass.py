"""Credentials of executors: a key of their own with a grant for one application, made by their agent."""

from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.identity.clock_check import ClockIsWrong
from agiledart_agent.identity.identity import Identity
from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import Grant, sign_link, verify_chain
from agiledart_kernel.node_id import NodeId, node_id_of_key
from agiledart_transport.certificates import check_signature, make_credentials, public_bytes
from agiledart_transport.tls_contexts import TlsCredentials

_HOUR: Final = 3_600
_DAY: Final = 24 * _HOUR
"""Time by which an executor's grant begins before it is made, as its TLS leaf does: verifiers whose clock is behind
accept it, too.
"""


@dataclass(frozen=True, slots=True)
class ExecutorPass:
    """Credentials with which an executor opens links. Its key stays with its agent, in memory, so that they can be renewed."""

    credentials: TlsCredentials
    chain: tuple[bytes, ...]
    key: ed25519.Ed25519PrivateKey
    grant: Grant

    @property
    def public_key(self) -> bytes:
        """Public half of its key."""
        return self.grant.key

    @property
    def ends(self) -> int:
        """Seconds since 1970 at which the first of its parts expires."""
        return min(self.grant.not_after, self.credentials.expires)

    @property
    def node_id(self) -> NodeId:
        """Id under which the executor's links are dialled (`expect` of `connect`)."""
        return node_id_of_key(self.public_key)


def grant_executor(
    identity: Identity, executor_public_key: bytes, scope: str, hours: float = 24.0
) -> tuple[bytes, ...]:
    """Return this agent's chain with one more link: the key may act as an executor for so many hours.

    `scope`: of `executor_scope`, for one application of one owner.
    """
    try:
        own = identity.grant()
    except Refused as error:
        if error.reason != "not yet valid":
            raise
        raise ClockIsWrong(f"the clock of this node is behind: its own membership is {error}") from None
    now = int(identity.wall_seconds())
    return sign_link(
        identity.network, identity.key.sign, identity.chain, key=executor_public_key, use="act", role="executor",
        not_before=max(now - _DAY, own.not_before), not_after=min(own.not_after, now + int(hours * _HOUR)),
        scope=scope,
    )  # fmt: skip


def make_executor_pass(
    identity: Identity, scope: str, hours: float = 24.0, key: ed25519.Ed25519PrivateKey | None = None
) -> ExecutorPass:
    """Return the credentials of an executor: TLS leaf and chain of the given key, or of a fresh one."""
    key = key or ed25519.Ed25519PrivateKey.generate()
    chain = grant_executor(identity, public_bytes(key), scope, hours)
    now = int(identity.wall_seconds())
    grant = verify_chain(identity.network, chain, public_bytes(key), now, check_signature)
    return ExecutorPass(make_credentials(key, identity.network, now), chain, key, grant)
