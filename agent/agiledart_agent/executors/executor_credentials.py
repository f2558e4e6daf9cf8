"""Credentials of executors: each executor has a key of its own and a grant for one application, never the node's key."""

from collections.abc import Awaitable, Callable, Iterable

from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_agent.executors.log_write_checks import may_continue_latency_logs
from agiledart_agent.executors.protected_paths import protected_paths
from agiledart_agent.executors.quotas import user_code_bounds
from agiledart_agent.executors.secret_store import SecretStore
from agiledart_agent.identity.executor_pass import ExecutorPass, make_executor_pass
from agiledart_agent.identity.identity import Identity
from agiledart_agent.settings import AgentSettings
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_executor.wire.agent_messages import Configure, CredentialsRenewed, PeerVerdict, VerifyPeer
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import Hello, decode_hello
from agiledart_kernel.grants import Grant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.services import executor_scope
from agiledart_transport.certificates import leaf_of
from agiledart_transport.local_peer_verifier import LocalPeerVerifier

_PART: Codec[DeploymentPart] = Codec(DeploymentPart)
EXECUTOR_GRANT_HOURS = 24 * 30
MAX_KEYS = 1_024
"""Public keys of executors that are remembered, to renew their grants."""


class ExecutorCredentials:
    """Issues and renews the credentials of executors, and verifies peers against them.

    Args:
        secrets: secrets of users, which an executor gets with its configuration.
        verifier: of strangers at an executor's data port; an executor has no cryptography library.
        admit: raises `Refused` unless a key that joined by a token is registered.
        note: keeps a line of (application, text) for the user.
    """

    def __init__(
        self,
        settings: AgentSettings,
        identity: Identity,
        secrets: SecretStore,
        verifier: LocalPeerVerifier,
        admit: Callable[[Grant, Hello], Awaitable[None]],
        note: Callable[[str, str], None],
    ) -> None:
        self._settings, self._identity, self._secrets = settings, identity, secrets
        self._verifier, self._admit, self._note = verifier, admit, note
        self._grants: dict[str, Grant] = {}
        self._owners: dict[str, bytes] = {}
        self._passes: dict[str, ExecutorPass] = {}  # node id → credentials that an executor presents

    def configure(
        self, application: str, version: int, number: int, part: bytes, host: str, agent_address: str
    ) -> Configure:
        """Return the configuration of a new executor: a key of its own, a grant for one application, a certificate.

        Never the node's key.
        """
        deployed = _PART.decode(part)
        latency_bytes = self._settings.latency_log_bytes
        if latency_bytes and not may_continue_latency_logs(deployed, self._identity.node_id, self._settings.state_dir):
            latency_bytes = 0
            self._note(application, "its latencies are not kept: their log belongs to an earlier owner of this name")
        # The agent remembers the key, so that `renew` can sign new credentials for it.
        executor_pass = make_executor_pass(
            self._identity, executor_scope(application, deployed.owner), EXECUTOR_GRANT_HOURS
        )
        self._grants[application] = executor_pass.grant
        self._owners[application] = deployed.owner
        self._passes[executor_pass.node_id.hex] = executor_pass
        while len(self._passes) > MAX_KEYS:
            del self._passes[next(iter(self._passes))]
        return Configure(
            application=application,
            version=version,
            number=number,
            credentials=executor_pass.credentials,
            chain=executor_pass.chain,
            node_id=executor_pass.node_id,
            incarnation=self._identity.incarnation,
            node_name=self._settings.name,
            host=host,
            agent_address=agent_address,
            latency_log_bytes=latency_bytes,
            latency_log_days=self._settings.latency_log_days,
            bounds=user_code_bounds(self._settings),
            home=self._identity.node_id,
            closed=protected_paths(self._settings),
            path_timeout=self._settings.path_timeout,
            secrets=self._secrets.provisioned(application, deployed.signed_command),
            proxy=self._settings.proxy,
        )

    def certificate_of(self, executor: NodeId) -> bytes:
        """Return the TLS leaf of an executor that was configured here, DER; empty: it is unknown."""
        executor_pass = self._passes.get(executor.hex)
        return b"" if executor_pass is None else leaf_of(executor_pass.credentials)

    def owner_of(self, application: str) -> bytes:
        """Return the key of the owner of an application whose executors were configured here; empty: none were."""
        return self._owners.get(application, b"")

    def renew(self, processes: Iterable[ExecutorProcess], ending_by: float) -> None:
        """Give executors a new grant and certificate for the same key, when the agent's membership was renewed or they
        expire by then.

        The grant of an executor ends with the membership of its agent.
        """
        for process in processes:
            node = process.own_node.hex
            executor_pass = self._passes.get(node)
            if executor_pass is None or executor_pass.ends > ending_by:
                continue
            application = process.application
            scope = executor_pass.grant.scope
            executor_pass = make_executor_pass(self._identity, scope, EXECUTOR_GRANT_HOURS, executor_pass.key)
            self._passes[node], self._grants[application] = executor_pass, executor_pass.grant
            process.send(CredentialsRenewed(executor_pass.chain, executor_pass.credentials))

    async def verify_peer(self, asked: VerifyPeer, application: str, answer: Callable[[PeerVerdict], None]) -> None:
        """Answer the question of an executor whether a peer at its data port is accepted."""
        try:
            hello = decode_hello(asked.hello)
            own = self._grants[application]
            peer = self._verifier.verify(asked.certificate, hello, asked.service, serves=asked.serves, own=own)
            if not asked.serves:
                await self._admit(peer.grant, hello)
        except RemoteProtocolError as error:
            answer(PeerVerdict(asked.request, refused=error.reason))
        else:
            answer(PeerVerdict(asked.request, peer=encode(peer)))
