"""A real Chromium signs in, and follows a failing message into the dead letters and back; ``make test-console``.

It writes the screenshots of docs/console.md where PENSTOCK_SCREENSHOTS says, without it nowhere.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import Client
from services.local_services import NAMES, LocalServices
from storage.accounts.account_table import AccountTable
from storage.accounts.rules import UserKind
from storage.files.filesystem import FileSystem
from storage.stopped.locks import stopped_store

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
ARGUMENTS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
USER = "admin"
WIDTH, HEIGHT = 1_180, 760


@dataclass
class Stand:
    """A store with accounts, a console in front of it, and the keys of a super user."""

    services: LocalServices
    address: str
    secret: str

    def client(self) -> Client:
        at = self.services.addresses
        return Client(
            writer=at["writer"], reader=at["reader"], indexer=at["indexer"],
            access_key=USER, secret_key=self.secret,
        )  # fmt: skip


@contextmanager
def console(addresses: dict[str, str], *options: str) -> Iterator[str]:
    """Run ``penstock console`` as a process; give its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "cli.main", "console", "--listen", f"127.0.0.1:{port}"]
    for name in ("writer", "reader", "indexer"):
        command += [f"--{name}", addresses[name]]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert "console serves on" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert "Traceback" not in errors and "failed" not in errors, errors


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    home = tmp_path_factory.mktemp("console")
    (home / "store").mkdir()
    with stopped_store(home / "store"):
        table = AccountTable(FileSystem(), home / "store" / "config")
        secret = table.restore_user(USER, UserKind.SUPER).secrets[-1]
    services = LocalServices.start(
        home / "store",
        home / "services.log",
        options=["--accounts", "--commit-log-file-size=8MiB"],
        addresses=dict.fromkeys(NAMES, "127.0.0.1:0"),
    )
    try:
        with console(services.addresses, "--accounts") as address:
            yield Stand(services, address, secret)
    finally:
        services.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on the PATH: apt install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Shots:
    """Screenshots of one look, light and dark."""

    def __init__(self, page: Any) -> None:
        self._page = page
        directory = os.environ.get("PENSTOCK_SCREENSHOTS", "")
        self._directory = Path(directory) if directory else None

    def take(self, name: str, *schemes: str) -> None:
        if self._directory is None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        for scheme in schemes or ("light",):
            self._page.emulate_media(color_scheme=scheme)
            self._page.wait_for_timeout(150)
            path = self._directory / f"{name}-{scheme}.png"
            self._page.screenshot(path=path)
        self._page.emulate_media(color_scheme="light")


def sign_in(page: Any, stand: Stand) -> None:
    page.goto(stand.address)
    page.get_by_label("Access key").fill(USER)
    page.get_by_label("Secret key").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    assert "know no user" in page.get_by_role("alert").inner_text()
    page.get_by_label("Secret key").fill(stand.secret)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{stand.address}/")


def test_the_way_of_a_failing_message(stand: Stand, chromium: Any) -> None:
    """Signs in, makes a topic, sends, finds by key, sees it fail and die, resends, resets, deletes."""
    context = chromium.new_context(
        viewport={"width": WIDTH, "height": HEIGHT}, timezone_id="Europe/Berlin", locale="en-GB"
    )
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    shots = Shots(page)
    sign_in(page, stand)
    problems.clear()  # the refused sign-in is one

    page.get_by_role("link", name="Topics").click()
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_label("Queues").fill("4")
    page.get_by_role("button", name="Create").click()
    assert "Topic orders is made." in page.locator("#notices").inner_text()

    with stand.client() as client:
        client.create_group("billing", retry_max_times=1, backoff=[500])
        client.create_topic("payments", queues=2)
        for number in range(240):
            client.produce("orders", b'{"id": %d, "total": 12.5}' % number, keys=[f"order-{number}"], tag="new")  # fmt: skip
            client.produce("payments", b"payment %d" % number, tag="card")
        client.acknowledge(client.receive("orders", group="billing", max_messages=200))
        client.acknowledge(client.receive("payments", group="accounts", max_messages=60))

    page.get_by_label("Body").fill(
        '{"id": 777, "customer": "Ada", "items": [{"name": "pen", "count": 2}]}'
    )
    page.get_by_label("Keys").fill("order-777")
    page.get_by_label("Tag").fill("urgent")
    page.get_by_label("Properties").fill("region=north")
    page.get_by_label("Queue", exact=True).fill("1")
    page.get_by_role("button", name="Send", exact=True).click()
    assert "Stored in queue 1" in page.locator("#notices").inner_text()

    page.get_by_role("link", name="Messages").click()
    form = page.locator("section", has=page.get_by_role("heading", name="By key"))
    form.get_by_label("Topic").fill("orders")
    form.get_by_label("Key", exact=True).fill("order-777")
    form.get_by_role("button", name="Find").click()
    assert '"customer": "Ada"' in page.locator("pre").inner_text()
    assert page.get_by_text("billing:").count() == 1

    track = page.locator("#track-billing")
    with stand.client() as client:
        for attempt in (1, 2):
            handed = client.receive(
                "orders",
                group="billing",
                max_messages=100,
                lease_ms=60_000,
                tag="urgent",
                wait_ms=9_000,
            )
            [record] = handed.records
            assert record.keys == ("order-777",)
            track.get_by_text("in flight").wait_for(timeout=10_000)
            if attempt == 1:
                shots.take("message", "light", "dark")
            client.change_leases(handed, 0 if attempt == 2 else None)
            if attempt == 1:
                track.get_by_text(re.compile("in retries|ready")).wait_for(timeout=10_000)
        deadline = time.monotonic() + 20
        while not track.get_by_text("dead", exact=True).count():
            client.receive("orders", group="billing", tag="urgent", wait_ms=500)
            assert time.monotonic() < deadline
    track.get_by_role("link", name="the dead letter").wait_for(timeout=20_000)
    shots.take("dead", "light")
    track.get_by_role("link", name="the dead letter").click()
    assert "%DLQ%billing" in page.locator("dl").inner_text()

    page.goto(f"{stand.address}/groups/billing")
    letters = page.locator("section", has=page.get_by_role("button", name="Send again"))
    letters.get_by_role("button", name="Send again").click()
    assert "1 dead letters were sent again." in page.locator("#notices").inner_text()
    with stand.client() as client:
        assert len(list(client.query_by_key("orders", "order-777"))) == 2

    page.goto(f"{stand.address}/groups/accounts")
    page.wait_for_timeout(4_500)  # plots
    shots.take("group", "light")
    page.get_by_label("Topic", exact=True).fill("payments")
    page.get_by_label("To", exact=True).fill("earliest")
    page.get_by_role("button", name="Preview").click()
    assert "60 would come again" in page.locator("#live").inner_text()
    shots.take("reset", "light")
    page.get_by_role("button", name="Reset the group").click()
    assert "240 messages to go" in page.locator("#notices").inner_text()

    page.get_by_role("link", name="Overview").click()
    with stand.client() as client:
        for number in range(6):
            for _ in range(3 + number % 3):
                client.produce("payments", b"x" * 20_000)
            page.wait_for_timeout(1_000)
    assert page.locator(".u-over").count() == 3
    shots.take("overview", "light", "dark")

    page.goto(f"{stand.address}/topics/payments")
    page.get_by_label("Type the topic's name").fill("payment")
    page.get_by_role("button", name="Delete topic").click()
    assert "Nothing was deleted" in page.get_by_role("alert").last.inner_text()
    problems.clear()  # the refusal's status
    page.go_back()
    page.get_by_label("Type the topic's name").fill("payments")
    page.get_by_role("button", name="Delete topic").click()
    assert "Topic payments is deleted." in page.locator("#notices").inner_text()
    for name in ("topics", "groups", "log", "accounts", "later"):
        page.goto(f"{stand.address}/{name}")
        page.get_by_role("heading", level=1).wait_for()
    assert problems == []
    context.close()


def test_what_comes_is_followed_and_a_body_of_script_is_not_run(
    stand: Stand, chromium: Any
) -> None:
    page = chromium.new_page()
    sign_in(page, stand)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    with stand.client() as client:
        client.create_topic("followed", queues=3)
        page.goto(f"{stand.address}/topics/followed/follow")
        for number in range(5):
            client.produce("followed", b"<script>alert(%d)</script>" % number)
        page.get_by_text("<script>alert(4)</script>").wait_for(timeout=10_000)
        client.produce("followed", b"<img src=x onerror=alert(9)>")
        page.get_by_text("<img src=x onerror=alert(9)>").wait_for(timeout=10_000)
    assert page.locator("#rows tr").count() == 6
    page.locator("#rows a").first.click()
    page.get_by_role("link", name="hex").click()
    assert "3c 69 6d 67" in page.locator("pre").inner_text()
    assert dialogs == []


def test_a_phone_and_a_keyboard_are_enough(stand: Stand, chromium: Any) -> None:
    """Nothing is wider than 360 px but tables, which scroll by themselves; the keyboard gets everywhere."""
    context = chromium.new_context(viewport={"width": 360, "height": 740})
    page = context.new_page()
    sign_in(page, stand)
    with stand.client() as client:
        if "phone" not in {each.name for each in client.topics()}:
            client.create_topic("phone", queues=2)
        client.produce("phone", b"hello")
    shots = Shots(page)
    for address in ("/", "/topics", "/topics/phone", "/topics/phone/browse", "/messages", "/groups", "/later", "/log", "/accounts"):  # fmt: skip
        page.goto(f"{stand.address}{address}")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, f"{address} is {width} px wide"
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".filter(e => !e.labels.length && !e.ariaLabel).length"
        )
        assert unnamed == 0, address
        assert page.locator("h1").count() == 1 and page.locator("main").count() == 1
    page.goto(f"{stand.address}/")
    shots.take("phone", "dark")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/topics$"))
    context.close()


def test_a_page_outlives_the_services(tmp_path: Path, chromium: Any) -> None:
    """It says who is away, keeps what it had, and comes back by itself."""
    services = LocalServices.start(
        tmp_path / "store", tmp_path / "services.log", options=["--commit-log-file-size=8MiB"],
        addresses=dict.fromkeys(NAMES, "127.0.0.1:0"),
    )  # fmt: skip
    addresses = dict(services.addresses)
    with console(addresses) as address:
        page = chromium.new_page()
        page.goto(address)
        page.get_by_text("takes writes").wait_for()
        services.stop()
        for name in ("writer", "reader", "indexer"):
            page.get_by_text(f"The {name} does not answer.").wait_for(timeout=15_000)
        assert page.get_by_text("takes writes").count() == 1
        back = LocalServices.start(
            tmp_path / "store", tmp_path / "services.log",
            options=["--commit-log-file-size=8MiB"], addresses=addresses,
        )  # fmt: skip
        try:
            page.get_by_text("does not answer").first.wait_for(state="detached", timeout=30_000)
            assert page.get_by_text("takes writes").count() == 1
        finally:
            page.close()
            back.stop()
