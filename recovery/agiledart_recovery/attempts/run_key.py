"""Key of a run on one of its hosts: collected from voters or other hosts, and dealt to voters that have no share.

| state | what the host does |
|---|---|
| named by the value, no key | asks the voters; each gives its shares to hosts that its own value names; again also other hosts |
| waits for a pending plan | asks hosts, when it needs the key: they give it to hosts of the plan that they prepare for |
| has the key | gives it to hosts of its value and of the plan that it prepares for; deals shares to voters that have none |

The awkward case: voters change while the last hosts die. Voters keep shares of the deal before, and most of its voters still
vote, so the next hosts get the key from those. A node that merely votes never has more than its shares.
"""

from collections.abc import Callable

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.key_splitting import combine_shares, key_digest, split_key
from agiledart_recovery.register.proposer import electors_of
from agiledart_recovery.wire.key_share import KeyShare
from agiledart_recovery.wire.messages import KeyShareDealt, QueryRunKey, RunKeyParts
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import RegisterValue, RunState

ASK_NS, DEAL_NS = 500 * MILLISECOND, 2 * SECOND
"""Times between two questions for the key, and between two deals to a voter that does not answer."""

HOSTS_ASKED = 4
"""Other hosts that are asked at once; the next ones follow with the next question."""


class RunKey:
    """Key of a run, as far as this host has it.

    Attributes:
        key: empty while it is not here.

    Args:
        on_key: called when the key was not here before.
        is_over: returns whether the run has ended here.
    """

    def __init__(
        self, context: RecoveryContext, run: RunId, key: bytes, on_key: Callable[[], None], is_over: Callable[[], bool]
    ) -> None:
        self._context, self._run, self.key = context, run, key
        self._on_key, self._is_over = on_key, is_over
        self._value: RegisterValue | None = None
        self._shares: dict[NodeId, tuple[KeyShare, ...]] = {}
        self._deals: dict[tuple[NodeId, int], tuple[KeyShare, ...]] = {}
        self._is_wanted = self._has_timer = False
        self._questions = 0

    def follow(self, value: RegisterValue) -> None:
        """Follow the register: its hosts need the key, its voters a share of it each."""
        self._value = value
        if not value.key_digest or value.state is not RunState.RUNNING:
            return
        if self.key and key_digest(self.key) != value.key_digest:
            self.key = b""
        self._is_wanted = self._is_wanted or value.needs_key(self._context.me.node)
        self._look()

    def want(self) -> None:
        """Get the key: a state that is to be stored or rebuilt needs it."""
        self._is_wanted = True
        self._look()

    def on_timer(self) -> None:
        """Ask or deal again."""
        self._has_timer = False
        self._look()

    def _look(self) -> None:
        if self._value is None or self._has_timer or self._is_over() or not self._value.key_digest:
            return
        if self.key:
            self._deal(self._value)
        elif self._is_wanted:
            self._ask(self._value)

    def _set_timer(self, delay_ns: int) -> None:
        self._has_timer = True
        self._context.set_timer((self._run, "key"), delay_ns)

    # ---- collecting

    def _ask(self, value: RegisterValue) -> None:
        me = self._context.me.node
        peers = {voter.peer.node: voter.peer for voter in electors_of(value)}
        if self._questions or not value.plan.at(me):
            others = [peer for node, peer in value.plan.hosts.items() if node != me and self._context.can_reach(node)]
            begin = self._questions * HOSTS_ASKED % max(1, len(others))
            peers |= {peer.node: peer for peer in (others[begin:] + others[:begin])[:HOSTS_ASKED]}
        self._questions += 1
        for peer in peers.values():
            self._context.send(peer, QueryRunKey(self._run))
        self._set_timer(ASK_NS)

    def on_parts(self, sender: Peer, message: RunKeyParts) -> bool:
        """Take what a voter or a host has of the key. Return false when it may not be either."""
        value = self._value
        if value is None or not value.key_digest:
            return False
        voters = {voter.peer.node: voter for voter in electors_of(value)}
        if sender.node not in voters and sender.node not in value.plan.hosts:
            return False
        if sender.node in voters:
            self._shares[sender.node] = message.shares
            self._deals[sender.node, message.voter_slot] = message.shares
        if self.key:
            return True
        if message.key and key_digest(message.key) == value.key_digest:
            self.key = message.key
        else:
            shares = [share for node in voters for share in self._shares.get(node, ())]
            self.key = combine_shares(shares, len(value.voters), value.key_digest)
        if self.key:
            self._shares = {}
            self._on_key()
            self._look()
        return True

    # ---- giving

    def key_for(self, node: NodeId, coming: bool) -> bytes:
        """Return the key for a node that asks for it; empty when the node is no host of the run.

        Args:
            coming: the plan that this host prepares for names the node.
        """
        is_host = self._value is not None and (coming or self._value.needs_key(node))
        return self.key if is_host else b""

    def _deal(self, value: RegisterValue) -> None:
        """Deal shares to the voters that have not said that they have one."""
        nodes = tuple(voter.peer.node for voter in value.voters)
        self._deals = {voter.voter_id: self._deals.get(voter.voter_id, ()) for voter in value.voters}
        lacking = [
            (voter, share)
            for voter, share in zip(value.voters, split_key(self.key, nodes), strict=True)
            if share not in self._deals[voter.voter_id]
        ]
        if not lacking or not value.plan.at(self._context.me.node):
            return
        for voter, share in lacking:
            if self._context.can_reach(voter.peer.node):
                self._context.send(voter.peer, KeyShareDealt(self._run, share))
        self._set_timer(DEAL_NS)
