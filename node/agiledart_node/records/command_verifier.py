"""Signed orders at a node: what each command's order must say, and the checks of whoever carries one out.

The agent that is asked, the scheduler and each host check for themselves (`CommandVerifier`); none believes who brought the order. A world
without keys (simulations) has no judge, and then what is asked is believed.
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
from agiledart_node.records.signed_entries import principal_of, rights, without_forged_entries, without_unproven_rights
from agiledart_node.wire.commands import (
    VERB_BY_COMMAND,
    Command,
    CreateToken,
    DrainNode,
    ExportCheckpoint,
    Forget,
    MoveStage,
    RecoverRun,
    RemoveCheckpoint,
    ScaleStage,
    SetBan,
    SetSecret,
    ShareApplication,
    ShutDownAgent,
    Stop,
    Submit,
)
from agiledart_recovery.wire.names import RunId

CHECK: Final = "check"
"""Verb of the order for a dry run: hosts load the code, and start nothing for it."""

MAX_ARGUMENT_LENGTH: Final = 128
"""Characters of a word of an order."""

MAX_EXECUTED: Final = 1_024
"""Orders that a node remembers because their runs have ended here."""


def _delivery_word(word: str) -> str:
    """What an order says of a delivery: nothing where the run is not saved, or where it is a word that is refused anyway."""
    try:
        delivery = Delivery.named(word)
    except ValueError:
        return ""
    return str(delivery) if delivery.is_saved else ""


def command_terms(command: Command) -> CommandTerms | None:
    """What the order for a command says; None for commands that only look.

    Raises:
        RemoteProtocolError: the command makes no sense.
    """
    match command:
        case Submit():
            name = command.name or SPECIFICATION_CODEC.decode(command.specification).name
            chosen = msgspec.msgpack.encode(sorted(command.parallelism.items())) if command.parallelism else b""
            origin = msgspec.msgpack.encode(command.origin) if command.origin is not None else b""
            arguments = sorted_arguments(
                (
                    ("origin", content_hash(origin).hex() if origin else ""),
                    ("delivery", _delivery_word(command.delivery)),
                    ("executors", str(command.executors or "")),
                    ("parallelism", content_hash(chosen).hex() if chosen else ""),
                )
            )
            verb = CHECK if command.dry_run else "submit"
            return CommandTerms(
                verb, name, (content_hash(command.specification), content_hash(command.bundle)), arguments
            )
        case Stop():
            said = (("checkpoint", command.checkpoint), ("now", "yes" if command.now else ""))
            return CommandTerms("stop", command.name, (), sorted_arguments(said))
        case ExportCheckpoint() | Forget():
            return CommandTerms(VERB_BY_COMMAND[type(command)], command.name)
        case RemoveCheckpoint():
            return CommandTerms("checkpoint", command.name, (), sorted_arguments((("remove", "yes"),)))
        case RecoverRun():
            said = (
                ("check", "yes" if command.check else ""),
                ("without", _word(" ".join(sorted(command.lost_voters)))),
            )
            return CommandTerms("recover", command.name, (), sorted_arguments(said))
        case ShareApplication():
            revoke = "yes" if command.revoke else ""
            return CommandTerms(
                "share", command.name, (), sorted_arguments((("key", command.key[:128]), ("revoke", revoke)))
            )
        case SetSecret():
            contents = (content_hash(command.sealed),) if command.sealed else ()
            arguments = sorted_arguments((("node", command.node), ("secret", command.secret)))
            return CommandTerms("secret", command.name, contents, arguments)
        case CreateToken():
            # Its fields before there were quotas: agents of both versions agree on an order without one.
            fields: list[object] = msgspec.msgpack.decode(msgspec.msgpack.encode(command))[:-1]
            wanted = content_hash(msgspec.msgpack.encode(fields)).hex()
            return CommandTerms(
                "create token", "", (), sorted_arguments((("quota", command.quota.text), ("wanted", wanted)))
            )
        case SetBan():
            return ban_terms(ban_target(command.target), command.until, command.reason)
        case ScaleStage():
            arguments = sorted_arguments(
                (("number", "auto" if command.is_auto else str(command.number)), ("stage", _word(command.stage)))
            )
            return CommandTerms("scale", command.name, (), arguments)
        case MoveStage():
            return CommandTerms(
                "move",
                command.name,
                (),
                sorted_arguments((("node", _word(command.node)), ("stage", _word(command.stage)))),
            )
        case DrainNode():
            said = (("node", _word(command.node)), ("stay", "yes" if command.stay else ""))
            return CommandTerms("drain", "", (), sorted_arguments((*said, ("undo", "yes" if command.undo else ""))))
        case ShutDownAgent():
            return CommandTerms("leave", "", (), sorted_arguments((("now", "yes" if command.now else ""),)))
    return None


def _word(text: str) -> str:
    """As it stands in an order: names of fused stages may be longer than its words."""
    return text if len(text) <= MAX_ARGUMENT_LENGTH else content_hash(text.encode()).hex()


def ban_target(text: str) -> bytes:
    """Who is meant; raises `Refused` for what is neither a key nor the hash of a link."""
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
    """A fresh order for exactly this.

    Args:
        key: of who must have given it; empty: whoever it was.
        wall_ms: the clock, `waited_ms`: for which the order is known to have been under way.

    Raises:
        Refused: it is not.
    """
    verified = verify(raw)
    if key and verified.grant.key != key:
        raise Refused("another key", "the order was signed by somebody else")
    if verified.signed_command.terms != terms:
        raise Refused("terms", f"the order is for something else than this {terms.verb}")
    check_fresh(verified.signed_command, wall_ms, waited_ms)
    return verified


class CommandVerifier:
    """The orders that reach a node.

    Args:
        verify: None: nothing is signed in this world.
        signatures: what is known of kept orders.

    Attributes:
        banned: keys and hashes of links → seconds since 1970 until which their orders count no more.
    """

    def __init__(self, context: NodeContext, verify: VerifyCommand | None, signatures: Signatures) -> None:
        self._context, self._verify, self._signatures = context, verify, signatures
        self._executed: dict[bytes, bool] = {}
        self.banned: dict[bytes, int] = {}

    @property
    def requires_signatures(self) -> bool:
        """Whether orders mean anything here."""
        return self._verify is not None

    def given(
        self, raw: bytes, command: Command, principal: Principal, submitter: str, waited_ms: int = 0
    ) -> tuple[Principal, str]:
        """Who gave the order for a command: as its signature says, or as was told where nothing is signed.

        Args:
            asker, submitter: as whoever brings it says.

        Raises:
            NotAllowed: the order is none, is altered, or old.
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
        """What an order that a record keeps says, however long ago it was given; None: it does not count.

        Its signatures are looked at once, bans each time.
        """
        verified = self._signatures.verified(raw)
        return None if verified is None or self._is_banned(verified) else verified

    def is_recovery(self, run: RunId, raw: bytes, last: bytes) -> bool:
        """Whether an admin has ordered that a run go on without the majority of its voters, later than with the order `last`.

        It may be long ago: voters that were away hear of it when they are back.
        """
        if self._verify is None:
            return True
        one = self.verify_unless_banned(raw)
        if one is None or (one.signed_command.terms.verb, one.signed_command.terms.application) != ("recover", run.app):
            return False
        if one.signed_command.terms.argument("check") or refusal(
            principal_of(one), "recover", ApplicationOwnership(run.app)
        ):
            return False
        return not last or one.signed_command.wall_ms > _parsed_command(last).wall_ms

    def without_unproven_rights(self, record: ApplicationRecord) -> ApplicationRecord:
        """A record as it is acted on: without rights that nobody has signed. Where nothing is signed, as it is."""
        return (
            record
            if self._verify is None
            else without_unproven_rights(record, self.verify_unless_banned, self._signatures.verified)
        )

    def without_forged_entries_of(self, record: ApplicationRecord) -> ApplicationRecord:
        """A record as it is written on: without deeds that nobody has signed, so that those that are signed find their place."""
        return record if self._verify is None else without_forged_entries(record, self._signatures.verified)

    def objection(self, part: DeploymentPart) -> str:
        """Why a part does not follow from the order with which its application was submitted; empty: it does."""
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
            return f"the order for {part.application} is for other code, settings or another name"
        if self._executed.get(command_hash(part.signed_command)):
            return f"the order to submit {part.application} was carried out before"
        if terms.argument("delivery") != _delivery_word(part.delivery):
            return f"the order for {part.application} is for another delivery"
        return self._objection_to_owner(part)

    def _objection_to_owner(self, part: DeploymentPart) -> str:
        """Why a run is not of who is said to own it; empty: it is."""
        signer = self.verify_unless_banned(part.signed_command)
        if signer is None or part.owner in (b"", signer.grant.key):
            return ""
        proven = rights(
            part.application, part.owner, (part.signed_command, *part.signed_entries), self.verify_unless_banned
        )
        if not proven.owner:
            return f"nobody has signed that {part.application} belongs to the key {part.owner.hex()[:16]}…"
        principal, application = (
            principal_of(signer),
            ApplicationOwnership(part.application, proven.owner, shared=proven.shared),
        )
        why = refusal(principal, "submit", application)
        return why_not(principal, "submit", why, part.application, proven.owner) if why else ""

    def objection_to_check(self, raw: bytes, bundle: bytes) -> str:
        """Why this code is not loaded for a dry run; empty: a user who may submit has asked for that just now."""
        if self._verify is None:
            return ""
        try:
            signed_command = self._submitter(raw).signed_command
            if signed_command.terms.verb != CHECK or signed_command.terms.contents[-1:] != (content_hash(bundle),):
                raise Refused("terms", "the order is for something else than this check")
            check_fresh(signed_command, self._context.common_ms)
        except Refused as error:
            return why_refused(CHECK, error)
        except NotAllowed as error:
            return error.text
        return ""

    def _submitter(self, raw: bytes) -> VerifiedCommand:
        """An order of somebody who may submit what it names; raises `Refused` and `NotAllowed`."""
        verified = self._verified(raw)
        check_unseen(principal_of(verified), "submit", verified.signed_command.terms.application)
        return verified

    def mark_executed(self, part: DeploymentPart, *, ran: bool) -> None:
        """A run of this order has ended here. If rows flowed, the order begins no other; else it may be tried again."""
        if self._verify is not None and part.signed_command:
            name = command_hash(part.signed_command)
            self._executed[name] = ran or self._executed.get(name, False)
            while len(self._executed) > MAX_EXECUTED:
                del self._executed[next(iter(self._executed))]

    def may_be_replay(self, part: DeploymentPart) -> bool:
        """Whether only the application's record can say that this order counts: it was tried here before, or given long ago."""
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
        """Raise NotAllowed when an order was carried out before, or is older than one that was.

        An order whose application failed to come to run is tried again by the agent that was asked.
        """
        if (
            self._verify is None
            or last is None
            or not last.signed_command
            or (raw == last.signed_command and last.state == FAILED)
        ):
            return
        if _parsed_command(raw).wall_ms <= self._begun_ms(last):
            text = f"This order to submit {last.name} was carried out before, or a later one was. Submit again."
            raise NotAllowed("command", text)

    def check_stop(self, raw: bytes, principal: Principal, record: ApplicationRecord) -> None:
        """Raise NotAllowed when who gave the order may not stop this, or meant a version before it."""
        if self._verify is None:
            return
        check(principal, "stop", record.name, record)
        if _parsed_command(raw).wall_ms < self._begun_ms(record):
            raise NotAllowed("command", f"{record.name} was submitted again after this order to stop it.")

    def _begun_ms(self, record: ApplicationRecord) -> int:
        """When the order was given that began this version; -1: it holds none that its giver has signed."""
        one = self._signatures.verified(record.signed_command)
        return -1 if one is None or one.signed_command.terms.application != record.name else one.signed_command.wall_ms


def _parsed_command(raw: bytes) -> SignedCommand:
    try:
        return parse_signed_command(raw)
    except Refused as error:
        raise CommandRefused(f"A record holds an order that cannot be read: {error}") from None


def why_refused(verb: str, error: RemoteProtocolError) -> str:
    """The sentence for a refused order."""
    return f"This order to {verb} is refused: {error}. Give it again with the same version of agiledart."
