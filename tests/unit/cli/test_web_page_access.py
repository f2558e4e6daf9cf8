"""Access to the page: tokens, cookies, and the headers of other pages in the same browser."""

import pytest

from agiledart_cli.web.page_access import COOKIE_SECONDS, MAX_SESSIONS, MAX_TOKENS, PageAccess


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> PageAccess:
    return PageAccess(8800, clock)


def test_a_token_begins_one_session(access: PageAccess) -> None:
    token = access.new_token()
    session = access.begin_session(token)
    assert session is not None
    assert access.is_session(f"other=1; agiledart-8800={session}")
    assert access.begin_session(token) is None


@pytest.mark.parametrize("token", ["", "x", "ü" * 8])
def test_an_unknown_token_begins_none(access: PageAccess, token: str) -> None:
    access.new_token()
    assert access.begin_session(token) is None


def test_old_unused_tokens_are_replaced(access: PageAccess) -> None:
    tokens = [access.new_token() for _ in range(MAX_TOKENS + 1)]
    assert access.begin_session(tokens[0]) is None
    assert access.begin_session(tokens[1]) is not None


def test_a_session_ends_after_its_time(access: PageAccess, clock: Clock) -> None:
    session = access.begin_session(access.new_token())
    clock.now = COOKIE_SECONDS - 1
    assert access.is_session(f"agiledart-8800={session}")
    clock.now = COOKIE_SECONDS
    assert not access.is_session(f"agiledart-8800={session}")


def test_the_oldest_of_too_many_sessions_ends(access: PageAccess) -> None:
    sessions = [access.begin_session(access.new_token()) for _ in range(MAX_SESSIONS + 1)]
    assert [access.is_session(f"agiledart-8800={session}") for session in (sessions[0], sessions[1], sessions[-1])] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("cookie", ["", "agiledart-8800=", "agiledart-8800", "agiledart-8801=SESSION", "=;=;"])
def test_other_cookies_are_no_session(access: PageAccess, cookie: str) -> None:
    session = access.begin_session(access.new_token()) or ""
    assert not access.is_session(cookie.replace("SESSION", session))


def test_the_cookie_is_kept_from_scripts_and_other_sites(access: PageAccess) -> None:
    words = access.set_cookie("s").split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Max-Age=28800"} <= set(words)


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1:8800", True),
        ("localhost:8800", True),
        ("LOCALHOST:8800", True),
        ("[::1]:8800", True),
        ("127.0.0.1", False),
        ("127.0.0.1:8801", False),
        ("rebound.example:8800", False),
        ("", False),
    ],
)
def test_only_loopback_names_are_the_servers_own(access: PageAccess, host: str, is_own: bool) -> None:
    assert access.is_own_host(host) is is_own


@pytest.mark.parametrize(
    ("origin", "site", "is_own"),
    [
        ("http://127.0.0.1:8800", None, True),
        ("http://localhost:8800", "same-origin", True),
        ("http://127.0.0.1:8800", "same-site", False),
        ("http://127.0.0.1:8800", "cross-site", False),
        ("http://127.0.0.1:8801", None, False),
        ("https://127.0.0.1:8800", None, False),
        ("http://rebound.example:8800", None, False),
        ("null", None, False),
        ("", None, False),
        (None, None, False),
    ],
)
def test_only_the_page_itself_may_change_something(
    access: PageAccess, origin: str | None, site: str | None, is_own: bool
) -> None:
    assert access.is_own_origin(origin, site) is is_own
