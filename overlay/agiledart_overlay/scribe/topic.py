"""One topic at one node: its place in the tree."""

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


class Child:
    """Node that gets all messages of the topic from here.

    Attributes:
        silent: consecutive heartbeats without an answer.
        moving: heartbeats for which it may look for a sibling as its parent; 0: it stays.
    """

    __slots__ = ("moving", "peer", "silent")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.silent = self.moving = 0


class Topic:
    """Topic of which a node is a part: as subscriber, forwarder or root.

    Attributes:
        has_joined: the node above subscribes.
        is_root: this node sends publications down the tree.
        parent: sender of publications; None at the root, and while this node looks for one.
        root_path: ids from the root to the parent.
        last_received_at: last sign of life of the parent.
        asked: node that has not answered a SUBSCRIBE yet; `number` of that message, `asked_at` its time.
        siblings: nodes to be asked before the usual route is tried.
        tries: consecutive SUBSCRIBEs without success.
        moved: publications passed on since the last heartbeat.
    """

    __slots__ = (
        "asked",
        "asked_at",
        "children",
        "has_joined",
        "is_root",
        "key",
        "last_received_at",
        "moved",
        "number",
        "parent",
        "root_path",
        "seen",
        "siblings",
        "tries",
    )

    def __init__(self, key: NodeId) -> None:
        self.key = key
        self.has_joined = self.is_root = False
        self.parent: Peer | None = None
        self.root_path: tuple[NodeId, ...] = ()
        self.last_received_at = self.asked_at = Instant(0)
        self.children: dict[NodeId, Child] = {}
        self.asked: Peer | None = None
        self.number = self.tries = self.moved = 0
        self.siblings: list[Peer] = []
        self.seen: dict[tuple[NodeId, int, int], None] = {}

    @property
    def is_needed(self) -> bool:
        """Report whether this node or a child subscribes."""
        return self.has_joined or bool(self.children)

    @property
    def is_attached(self) -> bool:
        """Report whether publications can reach this node."""
        return self.is_root or self.parent is not None

    def path_from_root(self, me: NodeId) -> tuple[NodeId, ...]:
        """Return the ids from the root to this node."""
        return (me,) if self.parent is None else (*self.root_path, me)
