"""Entry into an attempt, on the coordinator's side: RESET goes to all hosts, until all are in the attempt.

| answer | what follows |
|---|---|
| RESET_OK of all hosts | START |
| RESET_REFUSED: a state is lacking | the run waits for a replica node |
| RESET_REFUSED: another reason | a new attempt, once all have answered |
| RESET_REFUSED: a later attempt | the register is read again; if it has no such attempt, the host counts as unable to enter |
| none in time, or a host is lost | a new attempt |

The awkward case: a host that makes progress. It has more time, however long the restore of its state takes.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.attempt_writer import AttemptWriter
from agiledart_recovery.attempts.configurations import first_ballot_of_configuration
from agiledart_recovery.attempts.coordinator_state import CoordinatorState, Phase
from agiledart_recovery.attempts.leadership import Leadership
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.observations import MessageIgnored


class CoordinatedEntry:
    """Hosts' answers to the RESET of one attempt.

    Attributes:
        deadline: when the coordinator stops waiting for hosts that do not answer.
    """

    def __init__(
        self, context: RecoveryContext, state: CoordinatorState, leadership: Leadership, writer: AttemptWriter
    ) -> None:
        self._context, self._state, self._leadership, self._writer = context, state, leadership, writer
        self.deadline = 0
        self._entered: dict[NodeId, None] = {}
        self._refused: dict[NodeId, None] = {}
        self._read_for: dict[NodeId, int] = {}  # host → the attempt at which the register was read again for it

    def reset(self, timeout_ns: int = 0) -> None:
        """Let all hosts enter the attempt of the register's value, or report what they have prepared in it."""
        state = self._state
        state.phase = Phase.RESETTING
        state.need = ""
        self._entered, self._refused = {}, {}
        state.next_attempt.on_attempt_started()
        state.progress.hosts = {}
        state.progress.enter("restore", self._context.now)
        self.deadline = self._context.now + (timeout_ns or self._context.config.reset_timeout_ns)
        state.commit_protocol.enter(state.value)
        self._send_resets()

    def _send_resets(self) -> None:
        """Send RESET to all hosts. Standby hosts and nodes with old parts of sinks receive it too; the coordinator does not
        wait for them.
        """
        state = self._state
        message = wire.Reset(state.run, state.proposer.ballot, state.value)
        for node, peer in (state.evacuated | state.value.informed).items():
            if node not in self._entered and node not in self._refused:
                self._context.send(peer, message)

    def on_tick(self) -> None:
        """Repeat RESET, or begin a new attempt when a host is lost or late."""
        hosts = self._state.value.plan.hosts
        lost = [node for node in hosts if not self._context.can_reach(node) and node not in self._entered]
        if lost:
            self._writer.begin("a host was lost while the attempt was being entered", "lost")
        elif self._context.now >= self.deadline:
            for node in hosts:
                if node not in self._entered and node not in self._refused:
                    self._state.next_attempt.on_silent(node)
            self._writer.begin("hosts did not enter the attempt in time", "late")
        else:
            self._send_resets()

    def on_host_lost(self, node: NodeId) -> None:
        """Begin a new attempt when a host is lost that has not entered this one."""
        if node not in self._entered:
            self._writer.begin("a host was lost while an attempt was entered", "lost")

    def on_reset_ok(self, sender: Peer, message: wire.ResetOk) -> None:
        """Note that a host is in the attempt."""
        state = self._state
        if state.proposer.value is None or message.attempt != state.value.attempt:
            return
        state.commit_protocol.answered(sender, message)
        if state.phase is Phase.RESETTING:
            self._entered[sender.node] = None
            self._refused.pop(sender.node, None)
            self._look_at_answers()

    def on_reset_refused(self, sender: Peer, message: wire.ResetRefused) -> None:
        """Note that a host cannot enter the attempt, or has entered a later one."""
        state = self._state
        if not state.holds_ballot:
            return
        if state.phase is not Phase.RESETTING and not (state.phase is Phase.WAITING and message.lacks):
            return
        value = state.value
        if sender.node not in state.evacuated and sender.node not in value.nodes:
            self._context.observe(MessageIgnored(sender.node, "host"))
        elif (first := first_ballot_of_configuration(message.attempt)).configuration > value.configuration:
            self._leadership.yield_if_proven(sender, first, message.signed_command)
        elif message.attempt > value.attempt and self._read_for.get(sender.node) != value.attempt:
            # Another coordinator has begun a later attempt: the register knows more than this one.
            self._read_for[sender.node] = value.attempt
            state.proposer.release()
            self._leadership.take_over()
        elif message.attempt >= value.attempt and (planned := value.plan.hosts.get(sender.node)) is not None:
            # The register, read again since, has no later attempt: the host was deceived, or lies.
            self._refused[sender.node] = None
            if message.lacks and message.attempt == value.attempt:
                state.next_attempt.lacks(sender.node, message.lacks, message.reason)
            elif planned.incarnation == sender.incarnation:
                state.next_attempt.on_entry_failed(sender.node, message.reason)
            self._look_at_answers()

    def on_entering(self, sender: Peer, message: wire.AttemptProgress) -> None:
        """Note a host's progress in entering the attempt; a host that gets farther has more time."""
        state, now = self._state, self._context.now
        is_asked = state.phase is Phase.RESETTING and sender.node in state.value.plan.hosts
        if is_asked and message.attempt == state.value.attempt and state.progress.answered(sender.node, message):
            self.deadline = now + self._context.config.reset_timeout_ns
            if state.progress.phase != state.progress.resetting():
                state.progress.enter(state.progress.resetting(), now)

    def _look_at_answers(self) -> None:
        state = self._state
        hosts, refusal = state.value.plan.hosts, state.next_attempt.refusal
        if state.next_attempt.lacking:  # the others wait for the host that lacks state
            self._writer.wait_for(state.next_attempt.replica_nodes, refusal, self._context.config.state_timeout_ns)
            # Rather than what the recovery began with: this reason says what people can do.
            state.progress.reason = refusal
        elif all(node in self._entered or node in self._refused for node in hosts):
            if any(node in self._refused for node in hosts):
                self._writer.begin(refusal or "a host was ended and restarted", "broken" if refusal else "restarted")
            else:
                self._start()

    def try_again(self) -> None:
        """Try again for a run that waits; something may have changed."""
        next_attempt = self._state.next_attempt
        if next_attempt.retry_lacking():
            self._writer.begin(next_attempt.refusal or "its state may be available again")
        else:
            self.reset()

    def _start(self) -> None:
        state = self._state
        state.phase = Phase.RUNNING
        state.next_attempt.on_all_entered()
        state.progress.enter("replay", self._context.now)
        for peer in state.value.plan.hosts.values():
            self._context.send(peer, wire.Start(state.run, state.value.attempt))
        state.commit_protocol.started(state.value)
