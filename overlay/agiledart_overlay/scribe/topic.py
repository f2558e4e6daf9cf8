"""One topic at one node: its place in the tree."""

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


class Child:
    """A node that gets everything of the topic from here.

    Attributes:
        silent: beats in a row that it did not answer.
        moving: beats for which it may look for a sibling to go to; 0: it stays.
    """

    __slots__ = ("moving", "peer", "silent")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.silent = self.moving = 0


class Topic:
    """A topic of which a node is a part: as subscriber, forwarder or root.

    Attributes:
        has_joined: the node above wants what is published.
        is_root: this node sends it down the tree.
        parent: from whom it comes; None at the root, and while this node looks for one.
        way: ids from the root to the parent.
        heard_at: last sign of life of the parent.
        asked: to whom SUBSCRIBE was sent and not answered, with its number; `asked_at` when.
        siblings: nodes to be asked before the usual way is tried.
        tries: SUBSCRIBEs without success in a row.
        moved: publications passed on since the last beat.
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
        """Whether anybody here or below wants what is published."""
        return self.has_joined or bool(self.children)

    @property
    def is_attached(self) -> bool:
        """Whether publications can reach this node."""
        return self.is_root or self.parent is not None

    def path_from_root(self, me: NodeId) -> tuple[NodeId, ...]:
        """Ids from the root to this node."""
        return (me,) if self.parent is None else (*self.root_path, me)
