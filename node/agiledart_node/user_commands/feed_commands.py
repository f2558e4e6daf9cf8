"""The commands `feed create`, `remove` and `list`: feeds are kept by one node, which any agent finds for its users."""

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import FEED_PREFIX, Principal
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.records.sink_directory import SINK_CODEC, sink_key
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
from agiledart_node.user_commands.command_forwarding import CommandForwarding
from agiledart_node.wire.commands import CreateFeed, Feeds, RemoveFeed
from agiledart_node.wire.feed_messages import (
    MAX_FEEDS_LISTED,
    ChangeFeed,
    FeedChanged,
    FeedInfo,
    FeedList,
    QueryFeeds,
    ReadFeeds,
    RequestFeedChange,
)
from agiledart_node.wire.feed_responses import FeedRow, FeedsResponse


class FeedCommands:
    """Commands about feeds, on the asked agent and on the node that keeps a feed."""

    def __init__(self, context: NodeContext, records: Records, verifier: CommandVerifier) -> None:
        self._context, self._records = context, records
        self._forwarding = CommandForwarding(context, verifier, "feed")

    async def change(self, request: int, command: CreateFeed | RemoveFeed, principal: Principal, signed: bytes) -> None:
        """Have a node create or remove a feed, and answer when it has. Raises CommandRefused."""
        self._forwarding.requester(command, principal, signed)
        if isinstance(command, CreateFeed):
            await self._check_free(command.name)
        await self._forwarding.forward(command, lambda number: RequestFeedChange(number, command, signed), FeedChanged)
        self._context.reply(request, FeedsResponse([], []))

    async def _check_free(self, name: str) -> None:
        """Raise CommandRefused when the ring knows a log or a feed of this name."""
        answer = await self._records.read(sink_key(name))
        if not answer.ok:
            return
        try:
            record = SINK_CODEC.decode(answer.value)
        except RemoteProtocolError:
            return
        if not record.application.startswith(FEED_PREFIX):
            raise CommandRefused(f"{name} is the log of an application already. Choose another name.")

    async def feeds(self, request: int, command: Feeds, principal: Principal) -> None:
        """Answer with the feeds of all nodes."""
        answers = await ask_all_agents(self._context, lambda number, peer, count: QueryFeeds(number), FeedList)
        names = display_names(tuple(peer for peer, _ in answers))
        rows = [
            _row(peer, names[peer.node], feed)
            for peer, answer in answers
            for feed in (answer.feeds if answer is not None else ())
        ]
        rows.sort(key=lambda row: (row.name, row.node))
        silent = sorted(names[peer.node] for peer, answer in answers if answer is None)
        self._context.reply(request, FeedsResponse(rows, silent))

    # ---- on the node that keeps a feed

    async def carry_out(self, sender: Peer, message: RequestFeedChange) -> None:
        """Carry out a command that another agent sends; it is verified here again."""
        command, timeout_ns = message.command, self._context.config.report_timeout_ns
        refusal = await self._forwarding.carry_out(
            command,
            message.signed_command,
            lambda number, principal: ChangeFeed(number, command, principal),
            timeout_ns,
        )
        self._context.send(sender, FeedChanged(message.request, refusal))

    async def answer_agent(self, sender: Peer, message: QueryFeeds) -> None:
        """Answer another agent with the feeds of this node."""
        context, number = self._context, self._context.requests.number()
        answer = (await context.ask_driver(number, ReadFeeds(number), context.config.report_timeout_ns)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            feeds = tuple(feed for feed in answer.result if isinstance(feed, FeedInfo))[:MAX_FEEDS_LISTED]
            context.send(sender, FeedList(message.request, feeds, context.known()[:MAX_AGENTS]))


def _row(peer: Peer, node: str, feed: FeedInfo) -> FeedRow:
    return FeedRow(
        feed.name,
        node,
        peer.node.hex,
        feed.owner.hex(),
        feed.rows,
        feed.log_bytes,
        feed.staged_bytes,
        feed.published_ms,
    )
