"""The way to one other executor: its link, and the channels that go over it."""

from collections.abc import Awaitable, Callable

from agiledart_executor.data_links import Sender
from agiledart_kernel.randomness import RandomStream
from agiledart_transport.framed import Link
from agiledart_transport.kept_link import KeptLink


class DataWay(KeptLink):
    """One executor that channels of this one lead to.

    Args:
        link, name, dial, patience_seconds: as of `KeptLink`.
        given_up: told of it with the reason, when nothing has answered for the whole patience.

    Attributes:
        senders: of the channels.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        dial: Callable[[float, bool], Awaitable[Link]],
        patience_seconds: int,
        random: RandomStream,
        given_up: Callable[["DataWay", str], None],
    ) -> None:
        super().__init__(link, name, dial, patience_seconds, random, self._go_over, lambda why: given_up(self, why))
        self.senders: list[Sender] = []

    def _go_over(self, link: Link) -> None:
        for sender in self.senders:
            sender.move(link)
