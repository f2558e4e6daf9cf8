"""Signed commands at a node: the terms of each command, and the checks by the node that carries it out.

The asked agent, the scheduler and each host check for themselves (`CommandVerifier`); none trusts the sender of a command. A world
without keys (simulations) has no verification, and every command is accepted.
"""

from typing import Final

import msgspec

from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.bans import ban_terms
from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.permissions import ApplicationOwnership, Principal, refusal
from agiledart_kernel.signed_commands import (
    CommandTerms,
    SignedCommand,
    VerifiedCommand,
    check_fresh,
    command_hash,
    content_hash,
    parse_signed_command,
    sorted_arguments,
)
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.records.application import FAILED, SPECIFICATION_CODEC, ApplicationRecord
from agiledart_node.records.permission_checks import check, check_unseen, why_not
from agiledart_node.records.signatures import Signatures, VerifyCommand
from agiledart_node.records.signed_entries import (
    owner_of,
    principal_of,
    rights,
    without_forged_entries,
    without_unproven_rights,
)
from agiledart_node.wire.checkpoint_commands import ExportCheckpoint, RecoverRun, RemoveCheckpoint
from agiledart_node.wire.commands import (
    VERB_BY_COMMAND,
    Command,
    CreateFeed,
    CreateToken,
    DrainNode,
    Forget,
    MoveStage,
    RemoveFeed,
    ScaleStage,
    SetBan,
    SetSecret,
    ShareApplication,
    ShareModel,
    ShutDownAgent,
    Stop,
    Submit,
    Tap,
)
from agiledart_node.wire.lease_messages import NoteLease, OrderGate, RenewHostLease
from agiledart_recovery.wire.names import RunId

CHECK: Final = "check"
"""Verb of the command for a dry run: hosts load the code and start nothing for it."""

MAX_ARGUMENT_LENGTH: Final = 128
"""Characters of one argument of a signed command."""

MAX_EXECUTED: Final = 1_024
"""Commands that a node remembers because their runs have ended here."""


def _delivery_word(word: str) -> str:
    """Return the delivery as a command states it; empty where the run is not saved, or the word is invalid and refused later."""
    try:
        delivery = Delivery.named(word)
    except ValueError:
        return ""
    return str(delivery) if delivery.is_saved else ""


MOVES_TERM = "moves"
"""Signed argument of a submission: whether its stages move by themselves."""


PLACEMENT_TERM = "placement"
"""Signed argument of a submission: strategy and objective, `STRATEGY[:OBJECTIVE]`."""


def moves_of(signed_command: bytes) -> str:
    """Return the word for moves that the command of a submission carries; empty: none, or there is no such command."""
    return _argument(signed_command, MOVES_TERM)


def placement_of(signed_command: bytes) -> str:
    """Return the placement that the command of a submission carries; empty: none, or there is no such command."""
    return _argument(signed_command, PLACEMENT_TERM)


def _argument(signed_command: bytes, name: str) -> str:
    try:
        return parse_signed_command(signed_command).terms.argument(name) if signed_command else ""
    except (RemoteProtocolError, Refused):
        return ""


def _submit_terms(command: Submit) -> CommandTerms:
    name = command.name or SPECIFICATION_CODEC.decode(command.specification).name
    chosen = msgspec.msgpack.encode(sorted(command.parallelism.items())) if command.parallelism else b""
    origin = msgspec.msgpack.encode(command.origin) if command.origin is not None else b""
    arguments = sorted_arguments(
        (
            ("origin", content_hash(origin).hex() if origin else ""),
            ("delivery", _delivery_word(command.delivery)),
            ("executors", str(command.executors or "")),
            (MOVES_TERM, command.moves),
            (PLACEMENT_TERM, command.placement),
            ("parallelism", content_hash(chosen).hex() if chosen else ""),
        )
    )
    # A separate verb, so that the signature of a dry run cannot start the application.
    verb = CHECK if command.dry_run else "submit"
    return CommandTerms(verb, name, (content_hash(command.specification), content_hash(command.bundle)), arguments)


def command_terms(command: Command) -> CommandTerms | None:
    """Return the signed terms of a command; None for commands that only read, except that hosts give rows to users alone.

    Raises:
        RemoteProtocolError: the command is invalid.
    """
    match command:
        case Submit():
            return _submit_terms(command)
        case Stop():
            options = (("checkpoint", command.checkpoint), ("now", "yes" if command.now else ""))
            return CommandTerms("stop", command.name, (), sorted_arguments(options))
        case ExportCheckpoint() | Forget():
            return CommandTerms(VERB_BY_COMMAND[type(command)], command.name)
        case RemoveCheckpoint():
            return CommandTerms("checkpoint", command.name, (), sorted_arguments((("remove", "yes"),)))
        case RecoverRun():
            options = (
                ("check", "yes" if command.check else ""),
                ("without", _word(" ".join(sorted(command.lost_voters)))),
            )
            return CommandTerms("recover", command.name, (), sorted_arguments(options))
        case ShareApplication():
            revoke = "yes" if command.revoke else ""
            return CommandTerms(
                "share", command.name, (), sorted_arguments((("key", command.key[:128]), ("revoke", revoke)))
            )
        case ShareModel():
            options = (("digest", command.digest), ("size", str(command.size)))
            return CommandTerms("model", command.name, (), sorted_arguments(options))
        case SetSecret():
            contents = (content_hash(command.sealed),) if command.sealed else ()
            arguments = sorted_arguments((("node", command.node), ("secret", command.secret)))
            return CommandTerms("secret", command.name, contents, arguments)
        case CreateFeed() | RemoveFeed():
            return _feed_terms(command)
        case CreateToken():
            # Hash the fields without quota and operator: agents of releases before these compute the same hash.
            fields: list[object] = msgspec.msgpack.decode(msgspec.msgpack.encode(command))[:-2]
            fields_hash = content_hash(msgspec.msgpack.encode(fields)).hex()
            chosen = ("operator", command.operator), ("quota", command.quota.text), ("wanted", fields_hash)
            return CommandTerms("create token", "", (), sorted_arguments(chosen))
        case SetBan():
            return ban_terms(ban_target(command.target), command.until, command.reason)
        case ScaleStage() | MoveStage() | Tap():
            return CommandTerms(VERB_BY_COMMAND[type(command)], command.name, (), _step_arguments(command))
        case DrainNode() | ShutDownAgent() | RenewHostLease() | NoteLease() | OrderGate():
            return _node_terms(command)
    return None


def _step_arguments(command: ScaleStage | MoveStage | Tap) -> tuple[tuple[str, str], ...]:
    if isinstance(command, ScaleStage):
        number = "auto" if command.is_auto else str(command.number)
        return sorted_arguments((("number", number), ("stage", _word(command.stage))))
    if isinstance(command, MoveStage):
        return sorted_arguments((("node", _word(command.node)), ("stage", _word(command.stage))))
    return sorted_arguments((("step", _word(command.step)),))


def _lease_terms(command: RenewHostLease | NoteLease | OrderGate) -> CommandTerms:
    if isinstance(command, OrderGate):
        order = sorted_arguments((("order", command.order), ("host", _word(command.host))))
        return CommandTerms("provision", "", (), order)
    if isinstance(command, NoteLease):
        note = content_hash(f"{command.gate} {command.action} {command.why}".encode()).hex()
        return CommandTerms("lease", "", (), sorted_arguments((("lease", _word(command.lease_id)), ("note", note))))
    options = (("node", _word(command.node)), ("lease", _word(command.lease_id)), ("gate", command.gate))
    return CommandTerms("lease", "", (content_hash(command.entry),), sorted_arguments(options))


def _node_terms(command: DrainNode | ShutDownAgent | RenewHostLease | NoteLease | OrderGate) -> CommandTerms:
    if isinstance(command, RenewHostLease | NoteLease | OrderGate):
        return _lease_terms(command)
    if isinstance(command, ShutDownAgent):
        return CommandTerms("leave", "", (), sorted_arguments((("now", "yes" if command.now else ""),)))
    options = (("node", _word(command.node)), ("stay", "yes" if command.stay else ""))
    return CommandTerms("drain", "", (), sorted_arguments((*options, ("undo", "yes" if command.undo else ""))))


def _feed_terms(command: CreateFeed | RemoveFeed) -> CommandTerms:
    options = (("node", command.node), ("remove", "yes" if isinstance(command, RemoveFeed) else ""))
    size = str(command.max_bytes or "") if isinstance(command, CreateFeed) else ""
    return CommandTerms("feed", command.name, (), sorted_arguments((*options, ("max_bytes", size))))


def _word(text: str) -> str:
    """Return a text as a signed command contains it: names of fused stages may be too long, and are hashed."""
    return text if len(text) <= MAX_ARGUMENT_LENGTH else content_hash(text.encode()).hex()


def ban_target(text: str) -> bytes:
    """Return the banned key or hash; raises `Refused` for any other text."""
    try:
        target = bytes.fromhex(text)
    except ValueError:
        target = b""
    if len(target) != 32:
        raise Refused("form", "a ban names 64 hex digits: a public key, or the hash of a token")
    return target


def check_signed_command(
    verify: VerifyCommand, raw: bytes, terms: CommandTerms, *, key: bytes = b"", wall_ms: int = 0, waited_ms: int = 0
) -> VerifiedCommand:
    """Verify a fresh signed command for exactly these terms.

    Args:
        key: key that must have signed it; empty: any.
        wall_ms: the clock; `waited_ms`: time for which the command is known to have waited.

    Raises:
        Refused: it is invalid.
    """
    verified = verify(raw)
    if key and verified.grant.key != key:
        raise Refused("another key", "the command was signed with another key")
    if verified.signed_command.terms != terms:
        raise Refused("terms", f"the signed command differs from this {terms.verb}")
    check_fresh(verified.signed_command, wall_ms, waited_ms)
    return verified


class CommandVerifier:
    """Verification of the signed commands that reach a node.

    Args:
        verify: None: nothing is signed in this world.
        signatures: known signatures of kept commands.

    Attributes:
        banned: keys and hashes of links → seconds since 1970 until which their commands are invalid.
    """

    def __init__(self, context: NodeContext, verify: VerifyCommand | None, signatures: Signatures) -> None:
        self._context, self._verify, self._signatures = context, verify, signatures
        self._executed: dict[bytes, bool] = {}
        self.banned: dict[bytes, int] = {}

    @property
    def requires_signatures(self) -> bool:
        """Return whether commands must be signed here."""
        return self._verify is not None

    def identify_requester(
        self, raw: bytes, command: Command, principal: Principal, submitter: str, waited_ms: int = 0
    ) -> tuple[Principal, str]:
        """Return the requester of a command: the signer, or the given one where nothing is signed.

        Args:
            principal, submitter: requester according to the sender.

        Raises:
            NotAllowed: the command is unsigned, altered or old.
        """
        if self._verify is None:
            return principal, submitter
        try:
            terms = command_terms(command)
            if terms is None:
                return principal, submitter
            verified = check_signed_command(
                self._verified, raw, terms, key=principal.key, wall_ms=self._context.common_ms, waited_ms=waited_ms
            )
        except RemoteProtocolError as error:
            raise NotAllowed("command", why_refused(VERB_BY_COMMAND[type(command)], error)) from None
        return principal_of(verified), verified.signer_label

    def _verified(self, raw: bytes) -> VerifiedCommand:
        assert self._verify is not None
        verified = self._verify(raw)
        if self._is_banned(verified):
            raise Refused("banned")
        return verified

    def _is_banned(self, verified: VerifiedCommand) -> bool:
        now = self._context.common_ms // 1_000
        return any(self.banned.get(name, 0) > now for name in (*verified.grant.links, *verified.grant.keys))

    def verify_unless_banned(self, raw: bytes) -> VerifiedCommand | None:
        """Return the content of a kept command, however old; None: it is invalid or its signer is banned.

        Signatures are checked once, bans each time.
        """
        verified = self._signatures.verified(raw)
        return None if verified is None or self._is_banned(verified) else verified

    def is_recovery(self, run: RunId, raw: bytes, last: bytes) -> bool:
        """Return whether an admin commanded a quorum recovery of this run, later than with the command `last`.

        The command may be old: voters that were away learn of it when they return.
        """
        if self._verify is None:
            return True
        verified = self.verify_unless_banned(raw)
        if verified is None or (verified.signed_command.terms.verb, verified.signed_command.terms.application) != (
            "recover",
            run.app,
        ):
            return False
        if verified.signed_command.terms.argument("check") or refusal(
            principal_of(verified), "recover", ApplicationOwnership(run.app)
        ):
            return False
        return not last or verified.signed_command.wall_ms > _parsed_command(last).wall_ms

    def without_unproven_rights(self, record: ApplicationRecord) -> ApplicationRecord:
        """Return a record without rights that no user has signed. Where nothing is signed, return it unchanged."""
        return (
            record
            if self._verify is None
            else without_unproven_rights(record, self.verify_unless_banned, self._signatures.verified)
        )

    def without_forged_entries_of(self, record: ApplicationRecord) -> ApplicationRecord:
        """Return a record without entries that no user has signed, before it is written again; they take space from signed ones."""
        return record if self._verify is None else without_forged_entries(record, self._signatures.verified)

    def objection(self, part: DeploymentPart) -> str:
        """Return why a part does not follow from the command that submitted its application; empty: it does."""
        if self._verify is None:
            return ""
        try:
            terms = self._submitter(part.signed_command).signed_command.terms
        except Refused as error:
            return why_refused("submit", error)
        except NotAllowed as error:
            return error.text
        contents = (content_hash(part.specification), content_hash(part.bundle) if part.bundle else terms.contents[-1])
        if (terms.verb, terms.application) != ("submit", part.application) or terms.contents != contents:
            return f"the command for {part.application} is for other code, settings or another name"
        if self._executed.get(command_hash(part.signed_command)):
            return f"the command to submit {part.application} was carried out before"
        if terms.argument("delivery") != _delivery_word(part.delivery):
            return f"the command for {part.application} is for another delivery"
        return self._objection_to_owner(part)

    def _objection_to_owner(self, part: DeploymentPart) -> str:
        """Return why a run does not belong to its alleged owner; empty: it does."""
        signer = self.verify_unless_banned(part.signed_command)
        if signer is None or part.owner in (b"", signer.grant.key):
            return ""
        proven = rights(
            part.application, part.owner, (part.signed_command, *part.signed_entries), self.verify_unless_banned
        )
        if not proven.owner:
            return f"no signature shows that {part.application} belongs to the key {part.owner.hex()[:16]}…"
        principal, application = (
            principal_of(signer),
            ApplicationOwnership(part.application, proven.owner, shared=proven.shared),
        )
        why = refusal(principal, "submit", application)
        return why_not(principal, "submit", why, part.application, proven.owner) if why else ""

    def objection_to_check(self, raw: bytes, bundle: bytes) -> str:
        """Return why this code must not be loaded for a dry run; empty: a user with the permission has just requested that."""
        if self._verify is None:
            return ""
        try:
            signed_command = self._submitter(raw).signed_command
            if signed_command.terms.verb != CHECK or signed_command.terms.contents[-1:] != (content_hash(bundle),):
                raise Refused("terms", "the signed command differs from this check")
            check_fresh(signed_command, self._context.common_ms)
        except Refused as error:
            return why_refused(CHECK, error)
        except NotAllowed as error:
            return error.text
        return ""

    def _submitter(self, raw: bytes) -> VerifiedCommand:
        """Verify a command of a user who may submit the named application; raises `Refused` and `NotAllowed`."""
        verified = self._verified(raw)
        check_unseen(principal_of(verified), "submit", verified.signed_command.terms.application)
        return verified

    def mark_executed(self, part: DeploymentPart, *, ran: bool) -> None:
        """Note the end of this command's run here.

        After rows flowed, the command starts no other run; otherwise it may be retried.
        """
        if self._verify is not None and part.signed_command:
            name = command_hash(part.signed_command)
            self._executed[name] = ran or self._executed.get(name, False)
            while len(self._executed) > MAX_EXECUTED:
                del self._executed[next(iter(self._executed))]

    def may_be_replay(self, part: DeploymentPart) -> bool:
        """Return whether only the application's record can tell if this command is valid: it was tried here before, or is old."""
        if self._verify is None or not part.signed_command:
            return False
        if command_hash(part.signed_command) in self._executed:
            return True
        try:
            check_fresh(parse_signed_command(part.signed_command), self._context.common_ms)
        except Refused:
            return True
        return False

    def check_not_replayed(self, raw: bytes, last: ApplicationRecord | None) -> None:
        """Raise NotAllowed when a command was carried out before, or is older than one that was.

        The asked agent retries a command whose application failed before it ran.
        """
        if (
            self._verify is None
            or last is None
            or not last.signed_command
            or (raw == last.signed_command and last.state == FAILED)
        ):
            return
        if _parsed_command(raw).wall_ms <= self._begun_ms(last):
            text = f"This command to submit {last.name} was carried out before, or a later one was. Submit again."
            raise NotAllowed("command", text)

    def check_stop(self, raw: bytes, principal: Principal, record: ApplicationRecord) -> None:
        """Raise NotAllowed when the signer may not stop this application, or meant an earlier version."""
        if self._verify is None:
            return
        check(principal, "stop", record.name, record)
        if _parsed_command(raw).wall_ms < self._begun_ms(record):
            raise NotAllowed("command", f"{record.name} was submitted again after this command to stop it.")

    def check_by_part(
        self, principal: Principal, verb: str, part: DeploymentPart, record: ApplicationRecord | None
    ) -> None:
        """Raise NotAllowed when a host of a run sees no right of this requester: the host has verified the owner of its part.

        Args:
            record: any agent may have written it, so only the signed shares in it count.
        """
        if self._verify is None:
            return
        entries = (part.signed_command, *part.signed_entries, *(record.signed_entries if record is not None else ()))
        owner = owner_of(part)
        proven = rights(part.application, owner, entries, self.verify_unless_banned)
        application = ApplicationOwnership(part.application, owner, shared=proven.shared)
        if why := refusal(principal, verb, application):
            raise NotAllowed(why, why_not(principal, verb, why, part.application, owner))

    def _begun_ms(self, record: ApplicationRecord) -> int:
        """Return the time of the command that started this version; -1: the record has none with a valid signature."""
        verified = self._signatures.verified(record.signed_command)
        return (
            -1
            if verified is None or verified.signed_command.terms.application != record.name
            else verified.signed_command.wall_ms
        )


def _parsed_command(raw: bytes) -> SignedCommand:
    try:
        return parse_signed_command(raw)
    except Refused as error:
        raise CommandRefused(f"A record contains a command that cannot be read: {error}") from None


def why_refused(verb: str, error: RemoteProtocolError) -> str:
    """Return the sentence for a refused command."""
    return f"This command to {verb} is refused: {error}. Repeat it with the same version of agiledart."
