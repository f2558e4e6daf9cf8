"""Chains: whatever is damaged or invented, `verify_chain` raises `Refused` with a known reason or is right to
accept.
"""

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import LINK_CONTEXT, REASONS, ROLES, Grant, decode_link, link_hash, verify_chain
from agiledart_transport.certificates import check_signature
from tests.keys import HOUR, NOW, Authority, key_of, public_of

NET = Authority()
EXECUTOR = NET.executor("worker")


def judged(chain: object, holder: str = "worker") -> Grant | None:
    try:
        return verify_chain(NET.network, chain, public_of(holder), NOW, check_signature)  # type: ignore[arg-type]
    except Refused as error:
        assert error.reason in REASONS  # noqa: PT017  anything else raised fails the test by itself
        return None


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=700),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner),
    max_leaves=8,
)


@given(junk)
def test_junk_is_no_chain(chain: object) -> None:
    assert judged(chain) is None


@given(st.integers(0, 2), st.data())
def test_any_damage_to_any_link_is_detected(place: int, data: st.DataObject) -> None:
    chain = list(EXECUTOR)
    signed = chain[place]
    at = data.draw(st.integers(0, len(signed) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    if kind == "flip":
        chain[place] = signed[:at] + bytes([signed[at] ^ data.draw(st.integers(1, 255))]) + signed[at + 1 :]
    elif kind == "cut":
        chain[place] = signed[:at]
    else:
        chain[place] = signed[:at] + b"\0" + signed[at:]
    assert judged(chain) is None


_field = {
    "use": st.sampled_from(["act", "invite"]),
    "role": st.sampled_from(ROLES),
    "scope": st.sampled_from(["", "app:taxi", "app:other", "sink:top"]),
    "since": st.sampled_from([-HOUR, 0, 200, HOUR]),
    "until": st.sampled_from([-1, HOUR, 2 * HOUR]),
    "depth": st.integers(0, 3),
}
steps = st.lists(st.fixed_dictionaries(_field), min_size=1, max_size=4)


@settings(max_examples=200)
@given(steps)
def test_no_accepted_chain_grants_more_than_any_link_above_it(described: list[dict[str, object]]) -> None:
    chain: tuple[bytes, ...] = ()
    signer = "authority"
    for number, fields in enumerate(described):
        chain = NET.link(signer, chain, f"holder {number}", **fields)  # type: ignore[arg-type]
        signer = f"holder {number}"
    grant = judged(chain, signer)
    if grant is None:
        return
    links = [decode_link(signed) for signed in chain]
    assert links[-1].use == "act"
    assert all(link.not_after >= grant.not_after >= NOW for link in links)
    assert all(link.scope in ("", grant.scope) for link in links)
    assert all(link.role == "admin" for link in links[:-2])  # only admins have grandchildren, but for executors
    if len(links) > 1 and links[-2].use == "act":
        assert links[-2].role == "admin" or (links[-2].role, grant.role) == ("agent", "executor")
    if grant.role == "admin" and len(links) > 1:
        assert grant.depth < max(links[-2].depth, 1)


@given(st.lists(junk, max_size=10))
def test_a_signed_link_of_any_fields_is_validated_by_form(fields: list[object]) -> None:
    """Links that the holder of a valid invitation may invent: signed properly, of any shape."""
    parent = EXECUTOR[0]
    try:
        body = msgpack.packb([NET.network, link_hash(parent), *fields])
    except (OverflowError, ValueError):
        return  # the independent library writes no such integer
    signed = key_of("token of pi").sign(LINK_CONTEXT + body) + body
    assert judged([parent, signed], "pi") is None
