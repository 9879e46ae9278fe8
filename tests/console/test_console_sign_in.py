"""Signing in and out, over services that are played; and services that are away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest
from run_cli import penstock
from starlette.testclient import TestClient

from cli.failures import ExitCode
from penstock import PermissionDenied, Topic, Unauthenticated, Unavailable
from services.config.settings import ConsoleSettings
from services.console import attempts, sessions
from services.console.app import make_app
from storage.clock import SystemClock

HERE = "http://127.0.0.1:5805"
SECRETS = {"ann": "secret-of-ann", "bob": "secret-of-bob"}


class PlayedClient:
    """Services with two users; ``has_accounts`` says whether they ask who calls."""

    has_accounts = True
    is_away = False
    opened: list[str]

    def __init__(self, access_key: str, secret_key: str) -> None:
        self.name = access_key
        self.is_known = SECRETS.get(access_key) == secret_key

    async def __aenter__(self) -> PlayedClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def close(self) -> None:
        pass

    def check(self) -> None:
        assert self.name.isascii(), "gRPC takes no such metadata"
        if PlayedClient.is_away:
            raise Unavailable("nobody is there")
        if PlayedClient.has_accounts and not self.is_known:
            raise Unauthenticated("no such user")

    async def groups(self) -> list[str]:
        await asyncio.sleep(0)
        self.check()
        return [f"group-of-{self.name}"]

    async def topics(self) -> list[Topic]:
        self.check()
        return [
            Topic(name=f"of-{self.name}", read_queue_count=1, write_queue_count=1, perm=6, attributes={})
        ]  # fmt: skip

    async def stored_queues(self, *_: object, **__: object) -> list[Any]:
        self.check()
        return []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def denied(*_: object, **__: object) -> None:
            self.check()
            raise PermissionDenied(f"user {self.name!r} may not do this: {name}")

        return denied


@pytest.fixture
def visit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TestClient]]:
    monkeypatch.setattr(PlayedClient, "has_accounts", True)
    monkeypatch.setattr(PlayedClient, "is_away", False)
    with ExitStack() as stack:
        settings = ConsoleSettings(accounts=True)
        app = make_app(settings, SystemClock(), PlayedClient)  # type: ignore[arg-type]

        def browser() -> TestClient:
            return stack.enter_context(TestClient(app, base_url=HERE))

        yield browser


def form_token(page: str) -> str:
    found = re.search(r'name="form_token" value="([0-9a-f]+)"', page)
    assert found is not None
    return found[1]


def sign_in(browser: TestClient, name: str, secret: str, **changes: str) -> Any:
    token = form_token(browser.get("/sign-in").text)
    fields = {"access_key": name, "secret_key": secret, "form_token": token} | changes
    return browser.post("/sign-in", data=fields, headers={"origin": HERE})


@pytest.mark.parametrize("address", ["/", "/topics", "/message?at=0", "/accounts"])
def test_nobody_sees_a_page_who_has_not_signed_in(visit: Any, address: str) -> None:
    browser = visit()
    shown = browser.get(address)
    live = browser.get(address, headers={"hx-request": "true"})

    assert str(shown.url) == f"{HERE}/sign-in"
    assert (live.status_code, live.headers["hx-redirect"]) == (401, "/sign-in")
    assert browser.get("/rates.json").status_code == 401
    changed = browser.post("/topics", data={"name": "x"}, headers={"origin": HERE})
    assert str(changed.url) == f"{HERE}/sign-in"


def test_each_calls_as_the_user_who_signed_in(visit: Any) -> None:
    ann, bob = visit(), visit()
    sign_in(ann, "ann", SECRETS["ann"])
    sign_in(bob, "bob", SECRETS["bob"])

    assert "of-ann" in ann.get("/topics").text and "of-bob" not in ann.get("/topics").text
    assert "of-bob" in bob.get("/topics").text and "of-ann" not in bob.get("/topics").text


def test_signing_in_gives_a_new_session_and_signing_out_ends_it(visit: Any) -> None:
    """An id that somebody planted before is worth nothing after."""
    browser = visit()
    browser.get("/sign-in")
    before = browser.cookies[sessions.COOKIE]
    sign_in(browser, "ann", SECRETS["ann"])
    session_id = browser.cookies[sessions.COOKIE]
    assert session_id != before
    token = form_token(browser.get("/topics").text)
    browser.post("/sign-out", data={"form_token": token}, headers={"origin": HERE})
    browser.cookies.set(sessions.COOKIE, session_id)

    assert str(browser.get("/topics").url) == f"{HERE}/sign-in"


@pytest.mark.parametrize(
    ("name", "secret", "changes"),
    [("ann", "wrong", {}), ("eve", "x", {}), ("", "", {}), ("\u00fc", "x", {}), ("a\x07", "x", {}), ("ann", SECRETS["ann"], {"form_token": "0"})],
)  # fmt: skip
def test_wrong_keys_and_forged_forms_sign_nobody_in(
    visit: Any, name: str, secret: str, changes: dict[str, str]
) -> None:
    browser = visit()

    assert sign_in(browser, name, secret, **changes).status_code == 403
    assert str(browser.get("/topics").url) == f"{HERE}/sign-in"


def test_after_too_many_attempts_the_right_keys_have_to_wait(visit: Any) -> None:
    browser = visit()
    for _ in range(attempts.BY_NAME_HERE_MAX):
        sign_in(browser, "ann", "wrong")
    answer = sign_in(browser, "ann", SECRETS["ann"])

    assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0


async def test_attempts_at_once_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlayedClient, "has_accounts", True)
    app = make_app(ConsoleSettings(accounts=True), SystemClock(), PlayedClient)  # type: ignore[arg-type]
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=HERE) as browser:
        token = form_token((await browser.get("/sign-in")).text)
        fields = {"access_key": "ann", "secret_key": "wrong", "form_token": token}
        answers = await asyncio.gather(
            *(browser.post("/sign-in", data=fields, headers={"origin": HERE}) for _ in range(25))
        )

    statuses = [answer.status_code for answer in answers]
    assert statuses.count(403) == attempts.BY_NAME_HERE_MAX
    assert statuses.count(429) == 25 - attempts.BY_NAME_HERE_MAX


def test_names_that_none_has_are_counted(visit: Any) -> None:
    browser = visit()
    for _ in range(attempts.BY_NAME_HERE_MAX):
        assert sign_in(browser, "\u00fc", "x").status_code == 403

    assert sign_in(browser, "\u00e4", "x").status_code == 429


def test_nobody_sends_long_forms_without_signing_in(visit: Any) -> None:
    assert sign_in(visit(), "ann", SECRETS["ann"], more="x" * 4_096).status_code == 403


@pytest.mark.parametrize("address", ["/", "/topics"])
def test_whose_account_is_disabled_is_asked_to_sign_in(
    visit: Any, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    browser = visit()
    sign_in(browser, "ann", SECRETS["ann"])
    app: Any = browser.app
    [caller] = app.state.console.sessions._callers.values()
    caller.client.is_known = False
    caller.answers.forget()

    assert str(browser.get(address).url) == f"{HERE}/sign-in"
    assert not app.state.console.sessions._sessions


def test_signing_in_again_ends_the_session_before(visit: Any) -> None:
    browser = visit()
    for name in SECRETS:
        sign_in(browser, name, SECRETS[name])
    sessions_now = browser.app.state.console.sessions._sessions

    assert [each.caller.name for each in sessions_now.values()] == ["bob"]


def test_services_without_accounts_sign_nobody_in(
    visit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take any keys: whoever comes would be let in."""
    monkeypatch.setattr(PlayedClient, "has_accounts", False)
    answer = sign_in(visit(), "anybody", "anything")

    assert answer.status_code == 403 and "have no accounts" in answer.text


def test_what_a_user_may_not_do_is_said_on_the_page(visit: Any) -> None:
    browser = visit()
    sign_in(browser, "ann", SECRETS["ann"])
    token = form_token(browser.get("/topics").text)
    made = browser.post(
        "/topics", data={"name": "x", "queues": "1", "form_token": token}, headers={"origin": HERE}
    )

    assert made.status_code == 403 and "may not do this" in made.text
    assert "may not do this: writer_status" in browser.get("/").text.replace("&#39;", "'")


def test_a_service_that_is_away_leaves_what_it_said_last(
    visit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = visit()
    sign_in(browser, "ann", SECRETS["ann"])
    assert "of-ann" in browser.get("/topics").text
    monkeypatch.setattr(PlayedClient, "is_away", True)
    app: Any = browser.app
    for caller in app.state.console.sessions._callers.values():
        caller.answers.forget()
    away = browser.get("/topics")

    assert away.status_code == 200
    assert "of-ann" in away.text and "The writer does not answer." in away.text
    assert browser.get("/groups").status_code == 503
    monkeypatch.setattr(PlayedClient, "is_away", False)
    for caller in app.state.console.sessions._callers.values():
        caller.answers.forget()
    assert "does not answer" not in browser.get("/topics").text


def test_a_page_that_follows_keeps_its_place_while_services_are_away(
    visit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = visit()
    sign_in(browser, "ann", SECRETS["ann"])
    monkeypatch.setattr(PlayedClient, "is_away", True)
    shown = browser.get("/topics/of-ann/follow?cursor=0-5.1-7", headers={"hx-request": "true"})

    assert shown.status_code == 200 and "nobody is there" in shown.text
    assert "cursor=0-5.1-7&" in shown.text
    assert shown.text.count("<p") == 1  # what replaces the one before


def test_a_console_that_everybody_reaches_is_refused_at_its_start() -> None:
    refused = penstock("console", "--listen", "0.0.0.0:0", "--plaintext")

    assert refused.exit_code == ExitCode.USAGE
    assert "--accounts" in refused.stderr and "--read-only" in refused.stderr
