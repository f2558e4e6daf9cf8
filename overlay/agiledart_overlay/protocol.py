"""All messages between overlay machines, joined from their modules, and the tags of each module.

A tag that was used once is never given to another message, so that nodes of two versions misunderstand nothing. The node above
has tags 50 to 89 and 350 to 369 for its own messages.
"""

from typing import Final

from agiledart_overlay.scribe.messages import ScribeMessage
from agiledart_overlay.wire.messages import PastryMessage
from agiledart_overlay.wire.ring_messages import RingMessage

OverlayMessage = PastryMessage | RingMessage | ScribeMessage
"""Messages for `Codec(OverlayMessage)`."""

TAGS: Final = (
    (PastryMessage, (range(10, 38), range(370, 380))),
    (RingMessage, (range(38, 50), range(300, 320))),
    (ScribeMessage, (range(320, 350),)),
)
"""Messages, and the tags reserved for them."""

RETIRED_TAGS: Final = (12,)
"""Tags given up, never to be used again."""
