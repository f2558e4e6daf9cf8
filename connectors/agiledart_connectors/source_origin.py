"""The run and the instance that a source reads for: a name for what its system keeps for it while it is away."""

import json
from dataclasses import dataclass, field
from hashlib import blake2b

from agiledart_connectors.feed_requests import FeedRequests


@dataclass(frozen=True)
class SourceOrigin:
    """Reader of a run on a mesh; `agiledart run` has none.

    Attributes:
        network: identifier of the network.
        application, step: of the source.
        index: number of the instance.
        begins: a new run begins here; else an earlier attempt, perhaps on another node, has read before.
        feeds: requests for rows of feeds.
    """

    network: bytes = b""
    application: str = ""
    step: str = ""
    index: int = 0
    begins: bool = True
    feeds: FeedRequests | None = field(default=None, compare=False, repr=False)


def session_name(network: bytes, application: str, step: str, index: int = 0) -> str:
    """Return the name of a source's session: the same on every node, another in every network.

    It has 23 characters, which every broker of MQTT 3.1.1 admits (section 3.1.3.1).
    """
    text = json.dumps([network.hex(), application, step, index])
    return f"agiledart-{blake2b(text.encode(), digest_size=8).hexdigest()[:13]}"
