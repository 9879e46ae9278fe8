"""Who gets to the console's pages, and from where: sessions, forms of other sites, names that point here, read only."""

from __future__ import annotations

from typing import Any

import pytest
from hand_clock import HandClock

from penstock import Client
from services.config.settings import ConsoleSettings
from services.console import attempts, sessions

PAGES = ["/", "/topics", "/messages", "/groups", "/later", "/log", "/accounts"]


@pytest.mark.parametrize("address", PAGES)
def test_each_page_is_shown_and_tells_the_browser_to_run_nothing_else(
    browser: Any, address: str
) -> None:
    """No inline script or style is needed: the policy allows none."""
    shown = browser.get(address)
    policy = shown.headers["content-security-policy"]

    assert shown.status_code == 200
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert (
        "<script>" not in shown.text and " style=" not in shown.text and "onclick" not in shown.text
    )


def test_the_cookie_is_for_this_site_and_not_for_scripts(browser: Any) -> None:
    cookie = browser.get("/").headers["set-cookie"].lower()

    assert "httponly" in cookie and "samesite=strict" in cookie


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9", ""])
def test_the_form_of_another_site_changes_nothing(
    browser: Any, client: Client, origin: str
) -> None:
    answer = browser.post("/topics", name="forged", queues="1", headers={"origin": origin})

    assert answer.status_code == 403
    assert "forged" not in {each.name for each in client.topics()}


@pytest.mark.parametrize("token", ["", "0" * 64, "nonsense"])
def test_a_forged_token_changes_nothing(browser: Any, client: Client, token: str) -> None:
    answer = browser.post("/topics", name="forged", queues="1", form_token=token)

    assert answer.status_code == 403
    assert "This form is too old" in answer.text
    assert "forged" not in {each.name for each in client.topics()}


def test_a_token_is_of_one_session(open_console: Any, client: Client) -> None:
    """What somebody else's page carries is worth nothing here."""
    console = open_console()
    other = console.token()
    console.client.cookies.clear()

    assert console.post("/topics", name="forged", queues="1", form_token=other).status_code == 403


def test_a_name_that_points_here_is_no_way_in(browser: Any) -> None:
    """Another site's name may resolve to this address; its pages would read these."""
    assert browser.get("/topics", headers={"host": "evil.example:5805"}).status_code == 421
    assert browser.get("/topics", headers={"host": "localhost:5805"}).status_code == 200


def test_a_malformed_host_or_origin_is_refused(browser: Any) -> None:
    assert browser.get("/topics", headers={"host": "["}).status_code == 421
    assert browser.post("/topics", name="x", headers={"origin": "http://["}).status_code == 403


def test_a_console_that_is_read_only_changes_nothing_and_has_no_forms(
    open_console: Any, client: Client
) -> None:
    console = open_console(read_only=True)
    session_id = console.get("/").cookies[sessions.COOKIE]
    token = console.client.app.state.console.sessions.form_token(session_id)
    answer = console.post("/topics", name="forged", queues="1", form_token=token)

    assert answer.status_code == 403 and "changes nothing" in answer.text
    assert 'method="post"' not in "".join(console.get(address).text for address in PAGES)
    assert "forged" not in {each.name for each in client.topics()}


@pytest.mark.parametrize(
    ("settings", "is_allowed"),
    [
        ({"listen": "127.0.0.1:5805"}, True),
        ({"listen": "0.0.0.0:5805", "plaintext": True}, False),
        ({"listen": "0.0.0.0:5805", "plaintext": True, "read_only": True}, True),
        ({"listen": "0.0.0.0:5805", "read_only": True}, False),
        ({"listen": "0.0.0.0:5805", "accounts": True, "plaintext": True}, False),
    ],
)
def test_where_it_listens_has_to_be_safe(settings: dict[str, Any], is_allowed: bool) -> None:
    """Without accounts on loopback or read only, with accounts beyond loopback over TLS alone."""
    if is_allowed:
        ConsoleSettings(**settings)
        return
    with pytest.raises(ValueError, match="--listen"):
        ConsoleSettings(**settings)


def test_attempts_are_limited_by_name_and_by_address() -> None:
    """Who tries a name from one address does not keep its owner out at another."""
    clock = HandClock()
    tried = attempts.SignInAttempts(clock)
    for _ in range(attempts.BY_NAME_HERE_MAX):
        assert not tried.take("10.0.0.1", "ann")

    assert 0 < tried.take("10.0.0.1", "ann") <= attempts.WINDOW_S
    assert not tried.take("10.9.9.9", "ann")
    assert not tried.take("10.0.0.1", "bob")
    for name in map(str, range(attempts.BY_ADDRESS_MAX)):
        tried.take("10.0.0.1", name)
    assert tried.take("10.0.0.1", "carl")
    clock.pass_s(attempts.WINDOW_S + 1)
    assert not tried.take("10.0.0.1", "ann")
    assert len(tried._taken) == 3  # all that is older is forgotten


def test_attempts_for_a_name_are_limited_wherever_they_come_from() -> None:
    tried = attempts.SignInAttempts(HandClock())
    waits = [tried.take(f"10.0.0.{number}", "ann") for number in range(attempts.BY_NAME_MAX + 1)]

    assert not any(waits[:-1]) and waits[-1]


def test_an_attempt_that_succeeds_is_not_counted() -> None:
    tried = attempts.SignInAttempts(HandClock())
    for _ in range(attempts.BY_NAME_MAX * 2):
        assert not tried.take("10.0.0.1", "ann")
        tried.give_back("10.0.0.1", "ann")


class FakeClient:
    """What a session holds; counts how often it was closed."""

    closed = 0

    async def close(self) -> None:
        FakeClient.closed += 1


def opened(clock: HandClock) -> sessions.BrowserSessions:
    return sessions.BrowserSessions(lambda *_: FakeClient(), clock)  # type: ignore[arg-type, return-value]


async def test_a_session_ends_when_nobody_is_there_and_pages_that_are_open_do_not_keep_it() -> None:
    clock = HandClock()
    known = opened(clock)
    session = await known.open("ann", "secret")
    clock.pass_s(sessions.IDLE_S - 1)
    assert await known.find(session.id, touch=False) is session
    clock.pass_s(2)

    assert await known.find(session.id, touch=False) is None


async def test_a_session_ends_after_half_a_day_however_busy() -> None:
    clock = HandClock()
    known = opened(clock)
    session = await known.open("ann", "secret")
    for _ in range(int(sessions.LONGEST_S // 1_000)):
        clock.pass_s(1_000)
        assert await known.find(session.id, touch=True) is session
    clock.pass_s(1_000)

    assert await known.find(session.id, touch=True) is None


async def test_credentials_go_with_the_last_session_of_their_user() -> None:
    clock = HandClock()
    known = opened(clock)
    before = FakeClient.closed
    one, two = await known.open("ann", "secret"), await known.open("ann", "secret")
    other = await known.open("ann", "another")
    assert one.caller is two.caller is not other.caller
    await known.end(one)
    assert FakeClient.closed == before
    await known.end(two)

    assert FakeClient.closed == before + 1


async def test_sessions_are_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    known = opened(HandClock())
    first = await known.open("ann", "secret")
    others = [await known.open(str(number), "secret") for number in range(3)]

    assert await known.find(first.id, touch=False) is None
    assert [await known.find(each.id, touch=False) for each in others] == others


def test_static_files_come_from_here_with_their_licences(browser: Any) -> None:
    for path in ("htmx/htmx.min.js", "htmx/LICENSE", "uplot/uPlot.iife.min.js", "uplot/LICENSE"):
        assert browser.get(f"/static/vendor/{path}").status_code == 200
    assert browser.get("/static/%2e%2e/app.py").status_code == 404
