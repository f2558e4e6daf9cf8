"""A peer that lives but is not in the ring: by its own word, or by that of a helper that could ask it.

It joins again, or it went and its good-bye was lost. If that is old news, it will refute.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.effects import PeerLeft


def step_out(view: View, node: NodeId, refutations: int) -> None:
    """Out of the tables with it; a watched peer stays known."""
    known = view.book.get(node)
    if known is None:
        return
    if refutations > known.refutations:
        view.step_aside(known, refutations)
    elif node not in view.watched:
        view.remove(known.peer, known.refutations, has_left=False)
        view.effects.append(PeerLeft(known.peer))
