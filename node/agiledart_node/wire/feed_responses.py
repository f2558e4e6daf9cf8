"""Response schemas about feeds. Conventions as in `responses`."""

import msgspec


class FeedRow(msgspec.Struct, frozen=True):
    """A feed.

    Args:
        node, node_id: the node that keeps it.
        owner: key of the submitter that created it, hex; empty: an admin did, and all applications may read it.
        rows: number of published rows, with those that were trimmed.
        log_bytes, staged_bytes: disk space of its rows, and of rows that wait to be published.
        published_ms: wall time of the last publication; 0: none yet.
    """

    name: str
    node: str
    node_id: str
    owner: str
    rows: int
    log_bytes: int
    staged_bytes: int
    published_ms: int


class FeedsResponse(msgspec.Struct, frozen=True):
    """Response to `feeds`; to `feed`, without rows."""

    feeds: list[FeedRow]
    silent_nodes: list[str]
