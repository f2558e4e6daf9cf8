"""`Node`: overlay and applications of one agent in one machine.

A step takes one event to the part that it concerns, then works off what the parts emitted: effects for the overlay and
messages to this node itself are taken within the same step, everything else goes to the driver. Timers are named
`("overlay", …)` or `("node", …)`.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Received, Send, SetTimer, TimerFired
from agiledart_kernel.observe import Observer, ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.asking.auditing import Auditing
from agiledart_node.asking.checkpoints import checkpoints
from agiledart_node.asking.entrusting import Entrusting
from agiledart_node.asking.forgetting import Forgetting
from agiledart_node.asking.kept_checkpoints import KeptCheckpoints
from agiledart_node.asking.questions import Questions
from agiledart_node.asking.recovering_runs import RegainingRuns
from agiledart_node.asking.sharing import Sharing
from agiledart_node.asking.stopping import Stopping
from agiledart_node.asking.tapping import Tapping
from agiledart_node.asking.wanting_changes import WantingChanges
from agiledart_node.banning.banning import Banning
from agiledart_node.banning.spreading import TIMER as BANS_TIMER
from agiledart_node.desk.clock_book import Clocks
from agiledart_node.desk.config import NodeConfig
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed, TellOverlay
from agiledart_node.draining.draining import Draining
from agiledart_node.draining.relieving import Relieving
from agiledart_node.draining.wanting_drains import WantingDrains
from agiledart_node.forming.joining import Joining
from agiledart_node.forming.submission import Submissions
from agiledart_node.forming.surveying import Surveying
from agiledart_node.hosting.hosted import Hosted, Key
from agiledart_node.hosting.hosting import Hosting
from agiledart_node.hosting.loading import Loading
from agiledart_node.hosting.watching import Watching
from agiledart_node.records.kinds import NAMES, NODE_NAMES, merge_of
from agiledart_node.records.merged_applications import applications
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.records.signatures import Signatures, VerifyOrder
from agiledart_node.records.sinks import SINKS, FindSharers, FindSink, NoteSink, Sinks
from agiledart_node.recovering.change_requests import ChangeRequests
from agiledart_node.recovering.keeping_state import KeepingState
from agiledart_node.recovering.recovering import Recovering
from agiledart_node.registering.registering import Registering
from agiledart_node.registering.renewing import Renewing
from agiledart_node.registering.uses import TOKENS, USES
from agiledart_node.scheduling.claims import CLAIMS
from agiledart_node.scheduling.messages import SchedulingMessage
from agiledart_node.scheduling.schedulers import ANSWERS as SCHEDULING_ANSWERS
from agiledart_node.scheduling.schedulers import Schedulers
from agiledart_node.steering.self_scaling import TIMER as STEERING_TIMER
from agiledart_node.steering.self_scaling import SelfScaling
from agiledart_node.wire.audit_messages import AskAudit, AuditLines, AuditMessage
from agiledart_node.wire.ban_messages import BanDigest, BanMessage, BanNews
from agiledart_node.wire.change_messages import AskChange, ChangeMessage, ChangeTaken
from agiledart_node.wire.checkpoint_messages import (
    CHECKPOINT_ANSWERS,
    AskCheckpoint,
    AskCopy,
    AskKept,
    AskLoan,
    AskRemoval,
    CheckpointMessage,
)
from agiledart_node.wire.commands import (
    Audit,
    Ban,
    Bans,
    Checkpoints,
    DrainNode,
    ExplainRecovery,
    ExplainScaling,
    ExportCheckpoint,
    Forget,
    Info,
    ListApplications,
    Logs,
    Move,
    Nodes,
    RecoverRun,
    RemoveCheckpoint,
    Renew,
    Route,
    Scale,
    Secrets,
    SetSecret,
    Share,
    Status,
    Stop,
    Submit,
    Tap,
    Tokens,
)
from agiledart_node.wire.drain_messages import AskDrain, AskRelief, DrainIs, DrainMessage, LookAtDrain, Relieved
from agiledart_node.wire.effects import RefusedRequest
from agiledart_node.wire.events import (
    Asked,
    BansFound,
    BeRenewalDesk,
    ClockRead,
    InstanceFailed,
    InstanceFinished,
    InstancePrepared,
    InstanceReported,
    InstanceUnprepared,
    KeyMet,
    RenewMembership,
    RunsFound,
    TokenKnown,
)
from agiledart_node.wire.formation_messages import (
    ROUTED_CODEC,
    Acknowledged,
    AskLogs,
    AskReports,
    AskStop,
    AskTap,
    AskWhetherActive,
    CheckHost,
    CollectJoins,
    Deploy,
    Deployed,
    Drain,
    FormationMessage,
    Halt,
    HostChecked,
    InstancesEnded,
    Join,
    JoinArrived,
    JoinTree,
    Load,
    LogLines,
    Reports,
    RouteProbe,
    SendJoins,
    StartFlow,
    Survey,
    TapRows,
    TraceHops,
)
from agiledart_node.wire.fragment_effects import FragmentOffered, FragmentStored
from agiledart_node.wire.recovery_messages import (
    AskPart,
    AskRecovery,
    FoundRegister,
    Listening,
    MakeVoter,
    PartIs,
    RecoveringMessage,
    RecoveryIs,
    RunClosed,
    TermListening,
    VoterMade,
)
from agiledart_node.wire.regain_messages import REGAIN_ANSWERS, AskRegain, AskStanding, RegainMessage
from agiledart_node.wire.renewal_messages import AskRenewal, RenewalIs, RenewalMessage
from agiledart_node.wire.secret_messages import AskSecrets, SecretMessage, SecretsAre, SecretStored, StoreSecret
from agiledart_overlay.protocol import OverlayMessage
from agiledart_overlay.scribe.events import TopicMessage
from agiledart_overlay.wire.effects import (
    Delivered,
    Forwarding,
    Joined,
    NeighboursChanged,
    PeerFailed,
    PeerLeft,
    RecordAnswer,
)
from agiledart_overlay.wire.events import LeaveRing
from agiledart_recovery.wire.events import FragmentDamaged
from agiledart_recovery.wire.messages import RecoveryMessage, RunMessage

NodeMessage = (
    OverlayMessage
    | FormationMessage
    | SchedulingMessage
    | RecoveringMessage
    | RecoveryMessage
    | BanMessage
    | AuditMessage
    | SecretMessage
    | RenewalMessage
    | ChangeMessage
    | DrainMessage
    | CheckpointMessage
    | RegainMessage
)
"""Everything that agents send to each other over links of the service `overlay`."""

NODE_CODEC: Codec[NodeMessage] = Codec(NodeMessage)

_ANSWERS = (
    VoterMade,
    PartIs,
    RecoveryIs,
    JoinTree,
    Load,
    Deployed,
    Acknowledged,
    Reports,
    LogLines,
    TapRows,
    HostChecked,
    AuditLines,
    SecretStored,
    SecretsAre,
    RenewalIs,
    ChangeTaken,
    DrainIs,
    Relieved,
    *CHECKPOINT_ANSWERS,
    *REGAIN_ANSWERS,
    *SCHEDULING_ANSWERS,
)

_PATROL = ("node", "patrol")

_KINDS = (SINKS, NAMES, NODE_NAMES, CLAIMS, USES, TOKENS)
"""Of records on the ring, beside those of applications."""


class Node:
    """One agent's machine.

    Args:
        me: this node; its incarnation must be higher than in any earlier life.
        config: figures.
        random: for everything that this node draws.
        observe: told what happened.
        verify: judges signed orders; None in a world without keys, where everybody is believed.
        secret: that nobody else knows; keys come from it.
    """

    def __init__(
        self,
        me: Peer,
        config: NodeConfig,
        random: RandomStream,
        observe: Observer = ignore,
        verify: VerifyOrder | None = None,
        secret: bytes = b"",
    ) -> None:
        config.validate()
        self.me, self.config = me, config
        signatures = Signatures(verify)
        self._desk = desk = Desk(me, config, random, observe, merge_of((applications(signatures.judge), *_KINDS)))
        self.overlay = desk.overlay
        orders = Orders(desk, verify, signatures)
        self._records = Records(desk, orders)
        self._hosting = Hosting(desk, orders, self._records)
        self._loading = Loading(desk, self._hosting)
        self._joining = Joining(desk)
        self._surveying = Surveying(desk, self._hosting)
        self._watching = Watching(desk, self._records, self._hosting, orders)
        draws = RandomStream(random.bits(64), "recovery")
        self.recovering = Recovering(desk, self._records, self._hosting, draws, secret, orders.is_recovery)
        self._submissions = Submissions(
            desk,
            self._records,
            self._joining,
            self._surveying,
            self._watching,
            self.recovering,
            orders,
            RandomStream(random.bits(64), "tickets"),
        )
        self.schedulers = Schedulers(
            desk,
            self._records,
            self._hosting,
            self._watching,
            self._submissions,
            orders,
            RandomStream(random.bits(64), "scheduling"),
        )
        self._join_recovery()
        self._surveying.served = lambda: self.schedulers.served
        self._questions = Questions(desk, self._records, self._hosting, self._surveying, self._watching)
        self._sharing = Sharing(desk, self._records, self._questions, orders)
        self._forgetting = Forgetting(desk, self._records, self._questions, self._watching, orders)
        self._questions.on_old = self._forgetting.tidy
        self._tapping = Tapping(desk, self._questions, self._hosting)
        self._end_runs(orders)
        self._take_changes(orders)
        self._banning = Banning(desk, orders, verify)
        self._auditing, self._entrusting = Auditing(desk), Entrusting(desk, self._records, orders)
        self._renewing = Renewing(desk, self._records)
        self._registering = Registering(desk, self._records, orders, RandomStream(int(me.node), "registering"))
        self._sinks = Sinks(desk, self._records, orders)
        self._is_patrolling, self._todo = False, deque[Event]()
        self._by_event = self._event_table()
        self._by_message = self._message_table()
        self._by_timer, self._by_order = self._timer_table(), self._order_table()

    def _order_table(self) -> dict[type, Callable[..., Coroutine[Any, None, None]]]:
        return {
            Submit: self.schedulers.dispatching.submit,
            Stop: self._stopping.stop,
            **dict.fromkeys((Scale, Move), self._wanting.change),
            DrainNode: self._wanting_drains.drain,
            **dict.fromkeys((ExportCheckpoint, RemoveCheckpoint), self._kept.wanted),
            RecoverRun: self._regaining.recover,
        }

    def _end_runs(self, orders: Orders) -> None:
        """At a user's wish, also so that their state is kept."""
        about = self._desk, self._records
        self._kept = KeptCheckpoints(*about, self._questions, self._watching, orders)
        self._keeping = KeepingState(*about, self.recovering, orders)
        self._regaining = RegainingRuns(*about, self.recovering, orders)
        self._stopping = Stopping(*about, self._questions, self._watching, orders, self._kept)

    def _take_changes(self, orders: Orders) -> None:
        """Stages of what runs change at a user's wish, or by themselves: `changes` where the run is coordinated."""
        about = self._desk, self._records
        self.changes = ChangeRequests(*about, self.recovering, orders, self._surveying.loads)
        self.steering = SelfScaling(*about, self.recovering, self.changes, self._surveying.loads)
        self._wanting = WantingChanges(*about, self._questions, self._watching, orders)
        self.recovering.scaling_of = self.steering.standings
        self._draining = Draining(*about, self._hosting, self.recovering, orders)
        self._relieving = Relieving(self._desk, self.recovering, self.changes)
        self._wanting_drains = WantingDrains(self._desk, orders)

    def _join_recovery(self) -> None:
        """Recovery hears of what breaks, ends and is written down; what it gives up is closed like everything else."""
        keeping = self._hosting.on_close

        def closed(hosted: Hosted) -> None:
            keeping(hosted)
            self.recovering.forget(hosted)

        self._hosting.on_close = closed
        self.recovering.closed = self._watching.closed
        self.recovering.noting.drain = self._watching.drain
        self._watching.on_broken = self.recovering.broken
        self._watching.changes_of = self.recovering.changes_known
        self._watching.on_record = self.recovering.noting.noted

    def _event_table(self) -> dict[type, Callable[[Any], None]]:
        return {
            Received: self._received,
            TimerFired: self._timer_fired,
            Completed: self._driver_answered,
            Failed: self._driver_answered,
            Asked: self._asked,
            ClockRead: self._clock_read,
            InstanceReported: self._report,
            InstanceFinished: self._hosting.finished,
            InstanceFailed: self._watching.instance_failed,
            InstancePrepared: self.recovering.prepared,
            InstanceUnprepared: lambda event: self._desk.drop("unprepared"),
            RunsFound: self.recovering.found_on_disk,
            FragmentOffered: self.recovering.offered,
            FragmentStored: self.recovering.stored,
            FragmentDamaged: self.recovering.damaged,
            LeaveRing: self._leave,
            BansFound: lambda event: self._banning.spreading.found(event.orders),
            KeyMet: self._registering.met,
            BeRenewalDesk: self._renewing.open,
            RenewMembership: self._renewing.renew,
            TokenKnown: self._registering.list_token,
            NoteSink: self._sinks.note,
            FindSink: self._sinks.find,
            FindSharers: self._sinks.find_sharers,
        }

    def _timer_table(self) -> dict[object, Callable[[], None]]:
        return {
            _PATROL: self._patrol,
            STEERING_TIMER: self.steering.on_timer,
            BANS_TIMER: self._banning.spreading.on_timer,
            **self.schedulers.by_timer,
        }

    def _message_table(self) -> dict[type, Callable[[Peer, Any], None]]:
        desk = self._desk
        return {
            SendJoins: self._joining.send_joins,
            CollectJoins: self._joining.collect,
            JoinArrived: self._joining.arrived,
            Survey: lambda sender, message: desk.send(sender, self._surveying.load(message)),
            Deploy: self._hosting.deploy,
            StartFlow: self._hosting.start_flow,
            Halt: self._hosting.halt,
            Drain: self._hosting.drain,
            InstancesEnded: self._watching.ended,
            AskStop: self._watching.ask_stop,
            AskReports: self._questions.reports,
            AskLogs: self._begin(self._questions.local_logs),
            AskTap: self._begin(self._tapping.local),
            AskAudit: self._begin(self._auditing.local),
            StoreSecret: self._begin(self._entrusting.store),
            AskSecrets: self._begin(self._entrusting.local),
            CheckHost: self._submissions.checking.asked,
            AskWhetherActive: self._whether_active,
            TraceHops: self._questions.traced,
            MakeVoter: self.recovering.make_voter,
            FoundRegister: self.recovering.found_register,
            Listening: self.recovering.listening,
            RunClosed: self.recovering.ending.run_closed,
            AskPart: self.recovering.ask_part,
            AskRecovery: self.recovering.ask_recovery,
            TermListening: self.recovering.term_listening,
            AskChange: self._begin(self.changes.asked),
            AskCheckpoint: self._begin(self._keeping.asked),
            AskStanding: self._begin(self._regaining.standing),
            AskRegain: self._begin(self._regaining.asked),
            AskCopy: self._begin(self._keeping.copy),
            AskKept: self._begin(self._kept.local),
            AskRemoval: self._begin(self._kept.ordered),
            AskLoan: self._begin(self._kept.ordered),
            AskDrain: self._begin(self._draining.asked),
            LookAtDrain: self._draining.look,
            AskRelief: self._begin(self._relieving.asked),
            BanNews: self._banning.spreading.on_news,
            BanDigest: self._banning.spreading.on_digest,
            AskRenewal: self._renewing.asked,
            **self.schedulers.by_message,
        }

    @property
    def joined(self) -> bool:
        """Whether this node is a member of the ring."""
        return self.overlay.joined

    @property
    def hosted(self) -> tuple[Key, ...]:
        """(application, version) of everything that this node runs a part of or guards."""
        return tuple(self._hosting.table)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Messages that the applications' side ignored, by reason; the overlay counts its own."""
        return self._desk.dropped

    @property
    def is_leaving(self) -> bool:
        """Whether this node was told to leave."""
        return self._desk.is_leaving

    @property
    def is_draining(self) -> bool:
        """Whether this node was told to take nothing."""
        return self._desk.is_draining

    @property
    def clocks(self) -> Clocks:
        """What is known of the clocks of this node and others."""
        return self._desk.clocks

    @property
    def soft_state_size(self) -> int:
        """JOIN states that this node remembers."""
        return len(self._joining.soft_state.forwarders)

    def violations(self) -> list[str]:
        """What must hold of this node between any two steps and does not, in sentences; empty when all is well.

        The overlay judges itself, and so does each part of the node, by this node's own state alone; nothing changes.
        """
        parts = (self._desk, self._hosting, self._loading, self.schedulers)
        found = [line for part in parts for line in part.violations()]
        if self._todo or self._desk.talks.effects:
            found.append("step: something that a step has done was not told")
        if self.joined and not self._is_patrolling:
            found.append("patrol: the node is in the ring, and looks after nothing")
        return [*self.overlay.violations(), *(f"{line} (at {self.me.name or self.me.node.short})" for line in found)]

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Take one event; return what the driver is to do, in order."""
        self._desk.talks.now = now
        out: list[Effect] = []
        self._todo.append(event)
        while self._todo:
            event = self._todo.popleft()
            handler = self._by_event.get(type(event))
            if handler is not None:
                handler(event)
            else:
                self._desk.tell_overlay(event)
            self._work_off(out)
        return out

    def _work_off(self, out: list[Effect]) -> None:
        """Effects of the parts: some stay inside, the rest goes to the driver."""
        effects = self._desk.talks.effects
        while effects:
            taken = effects[:]
            effects.clear()
            for effect in taken:
                if isinstance(effect, TellOverlay):
                    for of_overlay in self.overlay.step(effect.event, self._desk.now):
                        self._from_overlay(of_overlay, out)
                elif isinstance(effect, Send) and effect.to.node == self.me.node:
                    self._todo.append(Received(self.me, effect.message))
                else:
                    out.append(effect)

    def _from_overlay(self, effect: Effect, out: list[Effect]) -> None:
        if isinstance(effect, RecordAnswer):
            self._desk.talks.answered(effect.request, effect)
        elif isinstance(effect, Delivered | Forwarding):
            self._routed(effect)
        elif isinstance(effect, TopicMessage):
            self.schedulers.role.on_topic(effect)
        else:
            out.append(effect)
            if isinstance(effect, NeighboursChanged):
                self._watching.check_lives()
                self._banning.spreading.neighbours_changed()
                self.recovering.peers_changed()
                self.schedulers.neighbours_changed()
            elif isinstance(effect, PeerFailed | PeerLeft):
                self._desk.talks.gone(effect.peer)
                self._desk.clocks.forget(effect.peer.node)
                self._desk.others.pop(effect.peer.node, None)
                self.schedulers.peer_gone(effect.peer)
                self.recovering.peer_gone(effect.peer)
                self._watching.peer_gone(effect.peer, effect.reason if isinstance(effect, PeerFailed) else "left")
            elif isinstance(effect, Joined):
                self._joined()

    def _joined(self) -> None:
        self._desk.talks.begin(self._records.register(self.me))
        if not self._is_patrolling:
            self._is_patrolling = True
            self._set_patrol()

    def _set_patrol(self) -> None:
        self._desk.emit(SetTimer(_PATROL, Instant(self._desk.now + self.config.patrol_interval_ns)))

    def _routed(self, effect: Delivered | Forwarding) -> None:
        try:
            payload = ROUTED_CODEC.decode(effect.payload)
        except RemoteProtocolError as error:
            self._desk.drop(f"routed {error.reason}")
            return
        if isinstance(effect, Forwarding):
            if isinstance(payload, Join):
                self._joining.forwarding(effect, payload)
        elif isinstance(payload, Join):
            self._joining.delivered(effect, payload)
        elif isinstance(payload, RouteProbe):
            self._questions.probed(effect, payload)

    def _received(self, event: Received) -> None:
        sender, message = event.sender, event.message
        self._desk.talks.seen(sender)
        handler = self._by_message.get(type(message))
        if handler is not None:
            handler(sender, message)
        elif isinstance(message, RunMessage):
            self.recovering.received(sender, message)
        elif isinstance(message, _ANSWERS):
            if isinstance(message, Load):
                self._surveying.heard(sender, message)
            if not self._desk.talks.heard(sender, message.request, message):
                self._desk.drop("late answer")
        else:
            self._desk.tell_overlay(event)

    def _timer_fired(self, event: TimerFired) -> None:
        name = event.name
        if isinstance(name, tuple) and len(name) == 2 and name[0] == "recovery":
            self.recovering.timer_fired(name[1])
        elif isinstance(name, tuple) and len(name) == 3 and name[0] == "node":
            self._desk.talks.timer(name)
        elif (action := self._by_timer.get(name)) is not None:
            action()
        else:
            self._desk.tell_overlay(event)

    def _patrol(self) -> None:
        self._joining.soft_state.forget_old(self._desk.now)
        self._watching.patrol()
        self.recovering.patrol()
        self.steering.look()
        self._set_patrol()

    def _report(self, event: InstanceReported) -> None:
        self._hosting.reported(event)

    def _clock_read(self, event: ClockRead) -> None:
        self._desk.read_clock(event.wall_ms)
        if self.joined and not self._desk.talks.is_full:
            self._desk.talks.begin(self._surveying.compare_clocks())

    def _driver_answered(self, event: Completed | Failed) -> None:
        if not self._desk.talks.answered(event.request, event):
            self._desk.drop("late driver answer")

    def _asked(self, event: Asked) -> None:
        request, command = event.request, event.command
        if self._desk.talks.is_full:
            limit = self.config.max_conversations
            self._refuse(request, f"{self.me.name} is busy with {limit:,} requests; try again in a moment.")
        elif not self.joined and not isinstance(command, Info):
            self._refuse(request, f"{self.me.name} is not in a ring yet; try again in some seconds.")
        else:
            conversation = self._answer_to(event)
            if conversation is None:
                self._refuse(request, f"{type(command).__name__} is not answered by the node but by its agent.")
            else:
                self._desk.talks.begin(self._answered(request, conversation))

    def _answer_to(self, event: Asked) -> Coroutine[Any, None, None] | None:
        request, command = event.request, event.command
        if (wanted := self._by_order.get(type(command))) is not None:
            return wanted(request, command, event.submitter, event.asker, event.order)
        if isinstance(command, Forget):
            return self._forgetting.forget(request, command, event.asker, event.order)
        if isinstance(command, Ban):
            return self._banning.ban(request, command, event.asker, event.order)
        if isinstance(command, Renew):
            return self._renewing.renew_user(request, command, event.asker)
        if isinstance(command, Tokens):
            return self._registering.tokens(request)
        if isinstance(command, Bans):
            return self._banning.bans(request)
        if isinstance(command, SetSecret):
            return self._entrusting.entrust(request, command, event.asker, event.order)
        if isinstance(command, Secrets):
            return self._entrusting.secrets(request, command, event.asker)
        if isinstance(command, Share):
            return self._sharing.share(request, command, event.asker, event.order)
        return self._answer_to_question(event)

    def _answer_to_question(self, event: Asked) -> Coroutine[Any, None, None] | None:
        """Of who only wants to know."""
        request, command, questions = event.request, event.command, self._questions
        if isinstance(command, Tap):
            return self._tapping.tap(request, command, event.asker)
        if isinstance(command, ListApplications):
            return questions.list_applications(request, event.asker)
        if isinstance(command, Status):
            return questions.status(request, command.name, event.asker)
        if isinstance(command, Nodes):
            return questions.nodes(request)
        if isinstance(command, Route):
            return questions.route(request, command.key)
        if isinstance(command, Logs):
            return questions.logs(request, command.name, command.after, event.asker)
        if isinstance(command, Info):
            return questions.info(request)
        if isinstance(command, Audit):
            return self._auditing.audit(request, command)
        if isinstance(command, Checkpoints):
            return checkpoints(self._desk, questions, self._kept, request, command, event.asker)
        if isinstance(command, ExplainRecovery):
            return questions.recovery(request, command.name, event.asker)
        if isinstance(command, ExplainScaling):
            return questions.scaling(request, command.name, command.stage, event.asker)
        return None

    async def _answered(self, request: int, conversation: Coroutine[Any, None, None]) -> None:
        try:
            await conversation
        except NotAllowed as refusal:
            self._desk.emit(RefusedRequest(request, refusal.text, refusal.exit_code, refusal.reason))
        except CommandRefused as refusal:
            self._refuse(request, refusal.text, refusal.exit_code)
        except OperationFailed as failure:
            self._refuse(request, str(failure))

    def _refuse(self, request: int, text: str, exit_code: int = 1) -> None:
        self._desk.emit(RefusedRequest(request, text, exit_code))

    def _begin(self, answer: Callable[[Peer, Any], Coroutine[Any, None, None]]) -> Callable[[Peer, Any], None]:
        """A question of another node that takes a conversation of our own; when there are too many, it asks again."""

        def begin(sender: Peer, message: Any) -> None:
            if not self._desk.talks.is_full:
                self._desk.talks.begin(answer(sender, message))

        return begin

    def _whether_active(self, sender: Peer, message: AskWhetherActive) -> None:
        key = (message.application, message.version)
        self._watching.whether_active(sender, message, is_scheduling=key in self._submissions.deploying)

    def _leave(self, event: LeaveRing) -> None:
        if not self._desk.is_leaving:
            self._desk.is_leaving = True
            self._desk.talks.begin(self._leave_after_telling(event))

    async def _leave_after_telling(self, event: LeaveRing) -> None:
        await self._watching.leave()
        await self.schedulers.leave()
        self._desk.tell_overlay(event)
