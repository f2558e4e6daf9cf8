"""Keys and chains for tests: one authority and what it may grant. Seeds are fixed, so that a chain is the same on
every run.
"""

from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_kernel.grants import NO_QUOTA, Quota, Role, sign_link
from agiledart_transport.certificates import public_bytes

HOUR = 3_600
NOW = 1_800_000_000

Key = ed25519.Ed25519PrivateKey
Chain = tuple[bytes, ...]


def key_of(name: str) -> Key:
    """The private key that this name stands for in tests."""
    return Key.from_private_bytes(sha256(name.encode()).digest())


def public_of(name: str) -> bytes:
    """The public half of `key_of(name)`."""
    return public_bytes(key_of(name))


@dataclass
class Authority:
    """A network's authority. Every bearer is named; its key is `key_of(name)`."""

    name: str = "authority"
    now: int = NOW
    network: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.network = public_of(self.name)

    def link(
        self,
        signer: str,
        chain: Chain,
        holder: str,
        use: str,
        role: str,
        *,
        until: int = HOUR,
        since: int = 0,
        scope: str = "",
        depth: int = 0,
        quota: Quota = NO_QUOTA,
    ) -> Chain:
        """`chain`, one link longer; nothing is checked."""
        return sign_link(
            self.network, key_of(signer).sign, chain, key=public_of(holder), use=use, role=role,  # type: ignore[arg-type]
            not_before=self.now + since, not_after=self.now + until, scope=scope, depth=depth, quota=quota,
        )  # fmt: skip

    def member(self, holder: str, role: Role = "agent", *, until: int = 12 * HOUR, scope: str = "") -> Chain:
        """authority → invited token → `holder` acting in this role."""
        invited = self.link(self.name, (), f"token of {holder}", "invite", role, until=24 * HOUR, scope=scope)
        return self.link(f"token of {holder}", invited, holder, "act", role, until=until, scope=scope)

    def executor(self, holder: str, agent: str = "pi", app: str = "taxi", until: int = HOUR) -> Chain:
        """… → `agent` → `holder` acting as an executor of one application."""
        return self.link(agent, self.member(agent), holder, "act", "executor", until=until, scope=f"app:{app}")

    def holder(self, role: Role, name: str = "", scope: str = "") -> tuple[str, Chain]:
        """A name and a good chain for any role."""
        name = name or f"the {role}"
        if role == "executor":
            return name, self.executor(name, app=scope.removeprefix("app:") or "taxi")
        return name, self.member(name, role, scope=scope)
