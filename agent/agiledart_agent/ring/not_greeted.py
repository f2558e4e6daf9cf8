"""`NotGreeted`: the reason for which no node at an address is greeted."""

from typing import NamedTuple


class NotGreeted(NamedTuple):
    """Reason, for users, for which no node at an address is greeted. A busy node may answer later, others will not."""

    text: str
    may_answer_later: bool = False
