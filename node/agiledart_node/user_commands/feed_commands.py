"""The commands `feed create`, `remove` and `list`: feeds are kept by one node, which any agent finds for its users."""

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import FEED_PREFIX, Principal
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import check_unseen
from agiledart_node.records.records import Records
from agiledart_node.records.sink_directory import SINK_CODEC, sink_key
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
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
        self._context, self._records, self._verifier = context, records, verifier

    async def change(self, request: int, command: CreateFeed | RemoveFeed, principal: Principal, signed: bytes) -> None:
        """Have a node create or remove a feed, and answer when it has. Raises CommandRefused."""
        context = self._context
        principal, _ = self._verifier.identify_requester(signed, command, principal, "")
        check_unseen(principal, "feed", command.name)
        peer = self._peer(command.node)
        if isinstance(command, CreateFeed):
            await self._check_free(command.name)
        number = context.requests.number()
        message = RequestFeedChange(number, command, signed)
        answer = await context.requests.ask(peer, message, number, FeedChanged, Duration(context.config.ask_timeout_ns))
        if answer is None or answer.refusal:
            raise CommandRefused(answer.refusal if answer is not None else f"{peer.name} did not answer. Try again.")
        context.reply(request, FeedsResponse([], []))

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

    def _peer(self, node: str) -> Peer:
        for peer in self._context.known():
            if peer.node.hex == node:
                return peer
        raise CommandRefused(f"{self._context.me.name} knows no node {node[:16]}. Ask the agent of that node itself.")

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
        self._context.send(sender, FeedChanged(message.request, await self._carried_out(message)))

    async def _carried_out(self, message: RequestFeedChange) -> str:
        context, command = self._context, message.command
        try:
            principal, _ = self._verifier.identify_requester(message.signed_command, command, Principal(), "")
            if self._verifier.requires_signatures:
                check_unseen(principal, "feed", command.name)
        except NotAllowed as error:
            context.drop("command: refused")
            return error.text
        if command.node != context.me.node.hex:
            return f"that command is not for {context.me.name}, but for another node"
        number = context.requests.number()
        answers = await context.ask_driver(
            number, ChangeFeed(number, command, principal), context.config.report_timeout_ns
        )
        answer = answers.get(number)
        if isinstance(answer, Completed):
            return ""
        reason = answer.reason if isinstance(answer, Failed) else ""
        return reason or f"{context.me.name} could not do it in time. Try again."

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
