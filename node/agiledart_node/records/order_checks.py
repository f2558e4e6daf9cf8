"""Signed orders at a node: what each command's order must say, and the checks of whoever carries one out.

The agent that is asked, the scheduler and each host check for themselves (`Orders`); none believes who brought the order. A world
without keys (simulations) has no judge, and then what is asked is believed.
"""

from typing import Final

import msgspec

from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.bans import ban_terms
from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.orders import (
    Order,
    Terms,
    Verified,
    arguments_of,
    check_fresh,
    content_hash,
    order_hash,
    read_order,
)
from agiledart_kernel.permissions import Application, Asker, refusal
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed
from agiledart_node.records.allowing import check, check_unseen, why_not
from agiledart_node.records.application import FAILED, SPECIFICATION_CODEC, ApplicationRecord
from agiledart_node.records.deeds import asker_of, judged, rights, with_signed_deeds
from agiledart_node.records.signatures import Signatures, VerifyOrder
from agiledart_node.wire.commands import (
    VERB_BY_COMMAND,
    Ban,
    Command,
    CreateToken,
    DrainNode,
    ExportCheckpoint,
    Forget,
    Leave,
    Move,
    RecoverRun,
    RemoveCheckpoint,
    Scale,
    SetSecret,
    Share,
    Stop,
    Submit,
)
from agiledart_recovery.wire.names import Run

CHECK: Final = "check"
"""Verb of the order for a dry run: hosts load the code, and start nothing for it."""

MAX_WORD: Final = 128
"""Characters of a word of an order."""

MAX_SPENT: Final = 1_024
"""Orders that a node remembers because their runs have ended here."""


def _delivery_word(word: str) -> str:
    """What an order says of a delivery: nothing where the run is not saved, or where it is a word that is refused anyway."""
    try:
        delivery = Delivery.named(word)
    except ValueError:
        return ""
    return str(delivery) if delivery.is_saved else ""


def terms_of(command: Command) -> Terms | None:
    """What the order for a command says; None for commands that only look.

    Raises:
        RemoteProtocolError: the command makes no sense.
    """
    match command:
        case Submit():
            name = command.name or SPECIFICATION_CODEC.decode(command.specification).name
            chosen = msgspec.msgpack.encode(sorted(command.parallelism.items())) if command.parallelism else b""
            origin = msgspec.msgpack.encode(command.origin) if command.origin is not None else b""
            arguments = arguments_of(
                (
                    ("origin", content_hash(origin).hex() if origin else ""),
                    ("delivery", _delivery_word(command.delivery)),
                    ("executors", str(command.executors or "")),
                    ("parallelism", content_hash(chosen).hex() if chosen else ""),
                )
            )
            verb = CHECK if command.dry_run else "submit"
            return Terms(verb, name, (content_hash(command.specification), content_hash(command.bundle)), arguments)
        case Stop():
            said = (("checkpoint", command.checkpoint), ("now", "yes" if command.now else ""))
            return Terms("stop", command.name, (), arguments_of(said))
        case ExportCheckpoint() | Forget():
            return Terms(VERB_BY_COMMAND[type(command)], command.name)
        case RemoveCheckpoint():
            return Terms("checkpoint", command.name, (), arguments_of((("remove", "yes"),)))
        case RecoverRun():
            said = (("check", "yes" if command.check else ""), ("without", _word(" ".join(sorted(command.without)))))
            return Terms("recover", command.name, (), arguments_of(said))
        case Share():
            revoke = "yes" if command.revoke else ""
            return Terms("share", command.name, (), arguments_of((("key", command.key[:128]), ("revoke", revoke))))
        case SetSecret():
            contents = (content_hash(command.sealed),) if command.sealed else ()
            arguments = arguments_of((("node", command.node), ("secret", command.secret)))
            return Terms("secret", command.name, contents, arguments)
        case CreateToken():
            # Its fields before there were quotas: agents of both versions agree on an order without one.
            fields: list[object] = msgspec.msgpack.decode(msgspec.msgpack.encode(command))[:-1]
            wanted = content_hash(msgspec.msgpack.encode(fields)).hex()
            return Terms("create token", "", (), arguments_of((("quota", command.quota.text), ("wanted", wanted))))
        case Ban():
            return ban_terms(ban_target(command.target), command.until, command.reason)
        case Scale():
            arguments = arguments_of(
                (("number", "auto" if command.is_auto else str(command.number)), ("stage", _word(command.stage)))
            )
            return Terms("scale", command.name, (), arguments)
        case Move():
            return Terms(
                "move", command.name, (), arguments_of((("node", _word(command.node)), ("stage", _word(command.stage))))
            )
        case DrainNode():
            said = (("node", _word(command.node)), ("stay", "yes" if command.stay else ""))
            return Terms("drain", "", (), arguments_of((*said, ("undo", "yes" if command.undo else ""))))
        case Leave():
            return Terms("leave", "", (), arguments_of((("now", "yes" if command.now else ""),)))
    return None


def _word(text: str) -> str:
    """As it stands in an order: names of fused stages may be longer than its words."""
    return text if len(text) <= MAX_WORD else content_hash(text.encode()).hex()


def ban_target(text: str) -> bytes:
    """Who is meant; raises `Refused` for what is neither a key nor the hash of a link."""
    try:
        target = bytes.fromhex(text)
    except ValueError:
        target = b""
    if len(target) != 32:
        raise Refused("form", "a ban names 64 hex digits: a public key, or the hash of a token")
    return target


def check_order(
    verify: VerifyOrder, raw: bytes, terms: Terms, *, key: bytes = b"", wall_ms: int = 0, waited_ms: int = 0
) -> Verified:
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
    if verified.order.terms != terms:
        raise Refused("terms", f"the order is for something else than this {terms.verb}")
    check_fresh(verified.order, wall_ms, waited_ms)
    return verified


class Orders:
    """The orders that reach a node.

    Args:
        verify: None: nothing is signed in this world.
        signatures: what is known of kept orders.

    Attributes:
        banned: keys and hashes of links → seconds since 1970 until which their orders count no more.
    """

    def __init__(self, desk: Desk, verify: VerifyOrder | None, signatures: Signatures) -> None:
        self._desk, self._verify, self._signatures = desk, verify, signatures
        self._spent: dict[bytes, bool] = {}
        self.banned: dict[bytes, int] = {}

    @property
    def are_signed(self) -> bool:
        """Whether orders mean anything here."""
        return self._verify is not None

    def given(
        self, raw: bytes, command: Command, asker: Asker, submitter: str, waited_ms: int = 0
    ) -> tuple[Asker, str]:
        """Who gave the order for a command: as its signature says, or as was told where nothing is signed.

        Args:
            asker, submitter: as whoever brings it says.

        Raises:
            NotAllowed: the order is none, is altered, or old.
        """
        if self._verify is None:
            return asker, submitter
        try:
            terms = terms_of(command)
            if terms is None:
                return asker, submitter
            verified = check_order(
                self._verified, raw, terms, key=asker.key, wall_ms=self._desk.common_ms, waited_ms=waited_ms
            )
        except RemoteProtocolError as error:
            raise NotAllowed("order", why_refused(VERB_BY_COMMAND[type(command)], error)) from None
        return asker_of(verified), verified.who

    def _verified(self, raw: bytes) -> Verified:
        assert self._verify is not None
        verified = self._verify(raw)
        if self._is_banned(verified):
            raise Refused("banned")
        return verified

    def _is_banned(self, verified: Verified) -> bool:
        now = self._desk.common_ms // 1_000
        return any(self.banned.get(name, 0) > now for name in (*verified.grant.links, *verified.grant.keys))

    def believed(self, raw: bytes) -> Verified | None:
        """What an order that a record keeps says, however long ago it was given; None: it does not count.

        Its signatures are looked at once, bans each time.
        """
        verified = self._signatures.verified(raw)
        return None if verified is None or self._is_banned(verified) else verified

    def is_recovery(self, run: Run, raw: bytes, last: bytes) -> bool:
        """Whether an admin has ordered that a run go on without the majority of its voters, later than with the order `last`.

        It may be long ago: voters that were away hear of it when they are back.
        """
        if self._verify is None:
            return True
        one = self.believed(raw)
        if one is None or (one.order.terms.verb, one.order.terms.application) != ("recover", run.app):
            return False
        if one.order.terms.argument("check") or refusal(asker_of(one), "recover", Application(run.app)):
            return False
        return not last or one.order.wall_ms > _order(last).wall_ms

    def judged(self, record: ApplicationRecord) -> ApplicationRecord:
        """A record as it is acted on: without rights that nobody has signed. Where nothing is signed, as it is."""
        return record if self._verify is None else judged(record, self.believed, self._signatures.verified)

    def changeable(self, record: ApplicationRecord) -> ApplicationRecord:
        """A record as it is written on: without deeds that nobody has signed, so that those that are signed find their place."""
        return record if self._verify is None else with_signed_deeds(record, self._signatures.verified)

    def objection(self, part: DeploymentPart) -> str:
        """Why a part does not follow from the order with which its application was submitted; empty: it does."""
        if self._verify is None:
            return ""
        try:
            terms = self._submitter(part.order).order.terms
        except Refused as error:
            return why_refused("submit", error)
        except NotAllowed as error:
            return error.text
        contents = (content_hash(part.specification), content_hash(part.bundle) if part.bundle else terms.contents[-1])
        if (terms.verb, terms.application) != ("submit", part.application) or terms.contents != contents:
            return f"the order for {part.application} is for other code, settings or another name"
        if self._spent.get(order_hash(part.order)):
            return f"the order to submit {part.application} was carried out before"
        if terms.argument("delivery") != _delivery_word(part.delivery):
            return f"the order for {part.application} is for another delivery"
        return self._objection_to_owner(part)

    def _objection_to_owner(self, part: DeploymentPart) -> str:
        """Why a run is not of who is said to own it; empty: it is."""
        signer = self.believed(part.order)
        if signer is None or part.owner in (b"", signer.grant.key):
            return ""
        proven = rights(part.application, part.owner, (part.order, *part.deeds), self.believed)
        if not proven.owner:
            return f"nobody has signed that {part.application} belongs to the key {part.owner.hex()[:16]}…"
        asker, application = asker_of(signer), Application(part.application, proven.owner, shared=proven.shared)
        why = refusal(asker, "submit", application)
        return why_not(asker, "submit", why, part.application, proven.owner) if why else ""

    def objection_to_check(self, raw: bytes, bundle: bytes) -> str:
        """Why this code is not loaded for a dry run; empty: a user who may submit has asked for that just now."""
        if self._verify is None:
            return ""
        try:
            order = self._submitter(raw).order
            if order.terms.verb != CHECK or order.terms.contents[-1:] != (content_hash(bundle),):
                raise Refused("terms", "the order is for something else than this check")
            check_fresh(order, self._desk.common_ms)
        except Refused as error:
            return why_refused(CHECK, error)
        except NotAllowed as error:
            return error.text
        return ""

    def _submitter(self, raw: bytes) -> Verified:
        """An order of somebody who may submit what it names; raises `Refused` and `NotAllowed`."""
        verified = self._verified(raw)
        check_unseen(asker_of(verified), "submit", verified.order.terms.application)
        return verified

    def spend(self, part: DeploymentPart, *, ran: bool) -> None:
        """A run of this order has ended here. If rows flowed, the order begins no other; else it may be tried again."""
        if self._verify is not None and part.order:
            name = order_hash(part.order)
            self._spent[name] = ran or self._spent.get(name, False)
            while len(self._spent) > MAX_SPENT:
                del self._spent[next(iter(self._spent))]

    def is_doubtful(self, part: DeploymentPart) -> bool:
        """Whether only the application's record can say that this order counts: it was tried here before, or given long ago."""
        if self._verify is None or not part.order:
            return False
        if order_hash(part.order) in self._spent:
            return True
        try:
            check_fresh(read_order(part.order), self._desk.common_ms)
        except Refused:
            return True
        return False

    def check_new(self, raw: bytes, last: ApplicationRecord | None) -> None:
        """Raise NotAllowed when an order was carried out before, or is older than one that was.

        An order whose application failed to come to run is tried again by the agent that was asked.
        """
        if self._verify is None or last is None or not last.order or (raw == last.order and last.state == FAILED):
            return
        if _order(raw).wall_ms <= self._begun_ms(last):
            text = f"This order to submit {last.name} was carried out before, or a later one was. Submit again."
            raise NotAllowed("order", text)

    def check_stop(self, raw: bytes, asker: Asker, record: ApplicationRecord) -> None:
        """Raise NotAllowed when who gave the order may not stop this, or meant a version before it."""
        if self._verify is None:
            return
        check(asker, "stop", record.name, record)
        if _order(raw).wall_ms < self._begun_ms(record):
            raise NotAllowed("order", f"{record.name} was submitted again after this order to stop it.")

    def _begun_ms(self, record: ApplicationRecord) -> int:
        """When the order was given that began this version; -1: it holds none that its giver has signed."""
        one = self._signatures.verified(record.order)
        return -1 if one is None or one.order.terms.application != record.name else one.order.wall_ms


def _order(raw: bytes) -> Order:
    try:
        return read_order(raw)
    except Refused as error:
        raise CommandRefused(f"A record holds an order that cannot be read: {error}") from None


def why_refused(verb: str, error: RemoteProtocolError) -> str:
    """The sentence for a refused order."""
    return f"This order to {verb} is refused: {error}. Give it again with the same version of agiledart."
