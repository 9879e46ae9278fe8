"""Groups: the list, and one group with its lag, members, dead letters, reset and pause."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final, NamedTuple

from starlette.responses import JSONResponse, Response

from penstock import Group, GroupDescription, GroupQueue, Unimplemented
from services.console.answers import LastAnswer
from services.console.page import PATIENCE_S, BadInput, Page
from services.console.pages.status import now_ms
from services.console.pages.topics import stored_ms
from services.console.templates import in_address
from services.times import parse_place

QUEUE_ROWS: Final = 32
GROUP_ROWS: Final = 25
LAG_FRESH_S: Final = 4.0


class GroupRow(NamedTuple):
    """A group in the list; ``settings`` is None of one that only commits offsets, ``lag`` of one that did not answer."""

    name: str
    settings: Group | None
    lag: int | None
    leased: int
    waiting: int
    dead: int


class LagRow(NamedTuple):
    """A group in a queue; ``behind_ms`` is the age of the oldest message that is not done, None: none, or unknown."""

    queue: GroupQueue
    behind_ms: int | None


async def show(page: Page) -> Response:
    """List groups."""
    wanted = page.given("q").lower()
    names, settings, leases, dead = await asyncio.gather(
        page.ask("reader", "groups", page.client.groups, fresh_s=10),
        page.ask("reader", "group settings", page.client.group_settings, fresh_s=3),
        page.ask("reader", "leases", page.client.lease_status, fresh_s=3),
        page.ask("reader", "dead", page.client.dead_letter_counts, fresh_s=10),
    )
    by_name = {each.name: each for each in settings.needed()}
    found = sorted(name for name in {*names.needed(), *by_name} if wanted in name.lower())
    sheet = page.sheet(found, rows_max=GROUP_ROWS)
    held = {each.group: each for each in leases.value.groups} if leases.value else {}
    letters = {each.group: each.messages for each in dead.value or ()}
    described = await asyncio.gather(*(_progress(page, name) for name in sheet.rows))
    rows = [
        GroupRow(
            name,
            by_name.get(name),
            None if progress is None else sum(each.lag for each in progress.queues),
            held[name].leased if name in held else 0,
            held[name].waiting if name in held else 0,
            letters.get(name, 0),
        )
        for name, progress in zip(sheet.rows, described, strict=True)
    ]
    return page.show("groups.html", sheet=sheet, rows=rows, wanted=wanted)


async def _progress(page: Page, name: str) -> GroupDescription | None:
    answer = await page.ask(
        "reader", ("group", name), lambda: page.client.describe_group(name),
        fresh_s=LAG_FRESH_S, patience_s=PATIENCE_S,
    )  # fmt: skip
    return answer.value


async def create(page: Page) -> Response:
    """Create a group."""
    name = page.given("name")
    await page.client.create_group(
        name,
        retry_max_times=page.optional_number("retries"),
        orderly=page.given("orderly") == "yes",
        begin="latest" if page.given("begin") == "latest" else "earliest",
    )
    return page.done(f"Group {name} is made.", f"/groups/{in_address(name)}")


async def show_one(page: Page) -> Response:
    """Show a group."""
    name = page.path("group")
    found, clients, dead = await asyncio.gather(
        page.ask("reader", ("group", name), lambda: page.client.describe_group(name)),
        page.ask(
            "reader", ("clients", name), lambda: page.client.connected_clients(name), fresh_s=3
        ),
        page.ask("reader", "dead", page.client.dead_letter_counts, fresh_s=3),
    )
    description = found.needed()
    _count(page, name, found)
    queues = sorted(description.queues, key=lambda each: (-each.lag, each.topic, each.queue_id))
    sheet = page.sheet(queues, rows_max=QUEUE_ROWS)
    ages = await asyncio.gather(*(_behind(page, each) for each in sheet.rows))
    rate = page.session.caller.rates.rate(("group", name), "done")
    letters = next((each for each in dead.value or () if each.group == name), None)
    return page.show(
        "group.html",
        name=name,
        group=description.group,
        topics=sorted({each.topic for each in description.queues}),
        lag=sum(each.lag for each in queues),
        leased=sum(each.leased for each in queues),
        waiting=sum(each.waiting for each in queues),
        rate=rate,
        sheet=sheet,
        rows=[LagRow(each, age) for each, age in zip(sheet.rows, ages, strict=True)],
        clients=clients.value,
        no_gateway=isinstance(clients.error, Unimplemented),
        clients_problem=clients.error.message if clients.error is not None else "",
        letters=letters,
    )


def _count(page: Page, name: str, answer: LastAnswer[GroupDescription]) -> None:
    found = answer.value
    if found is None or answer.is_away:
        return
    page.session.caller.rates.add(
        ("group", name),
        answer.answered_ms,
        {
            "lag": sum(each.lag for each in found.queues),
            "leased": sum(each.leased for each in found.queues),
            "done": sum(each.max_offset - each.lag for each in found.queues),
            "stored": sum(each.max_offset for each in found.queues),
        },
        is_plotted=True,
    )


async def _behind(page: Page, queue: GroupQueue) -> int | None:
    """Return how old the oldest message is that a group has not done; None if that cannot be read."""
    if not queue.lag:
        return None
    at = max(queue.group_offset, queue.min_offset)

    time_ms = await stored_ms(page, queue.topic, queue.queue_id, at)
    return max(0, now_ms() - time_ms) if time_ms else None


async def lag(page: Page) -> Response:
    """Return the columns of a group's plots."""
    name = page.path("group")
    found = await page.ask("reader", ("group", name), lambda: page.client.describe_group(name))
    _count(page, name, found)
    plot = page.session.caller.rates.plot(
        ("group", name), rates=("stored", "done"), levels=("lag", "leased")
    )
    return JSONResponse(plot, headers={"Cache-Control": "no-store"})


async def pause(page: Page) -> Response:
    """Have a group's members get nothing more, or go on."""
    name, is_paused = page.path("group"), page.given("paused") == "yes"
    await page.client.update_group(name, paused=is_paused)
    state = "paused: its members get nothing" if is_paused else "running again"
    return page.done(f"Group {name} is {state}.", f"/groups/{in_address(name)}")


def _target(page: Page) -> tuple[str, int | datetime | str, tuple[int, ...]]:
    topic, place = page.given("topic"), page.given("to")
    if not topic:
        raise BadInput("topic: say in which topic the group goes on elsewhere")
    target: int | datetime | str = page.parsed(parse_place, place)
    queue = page.optional_number("queue")
    if isinstance(target, int) and queue is None:
        raise BadInput("queue: an offset is that of one queue, give its number")
    return topic, target, () if queue is None else (queue,)


async def preview(page: Page) -> Response:
    """Show what a reset would skip and repeat; nothing is changed."""
    name = page.path("group")
    topic, target, queues = _target(page)
    resets = await page.client.reset_group(name, topic, target, queues=queues, preview=True)  # type: ignore[arg-type]
    return page.show(
        "reset.html",
        name=name,
        topic=topic,
        to=page.given("to"),
        place=target.isoformat() if isinstance(target, datetime) else str(target),
        queue=page.given("queue"),
        zone=page.given("zone"),
        resets=resets,
        skipped=sum(max(0, each.lag_before - each.lag_after) for each in resets),
        repeated=sum(max(0, each.lag_after - each.lag_before) for each in resets),
    )


async def reset(page: Page) -> Response:
    """Set where a group goes on."""
    name = page.path("group")
    topic, target, queues = _target(page)
    resets = await page.client.reset_group(name, topic, target, queues=queues)  # type: ignore[arg-type]
    left = sum(each.lag_after for each in resets)
    return page.done(
        f"Group {name} goes on there in {topic}: {left:,} messages to go.",
        f"/groups/{in_address(name)}",
    )


async def resend(page: Page) -> Response:
    """Send a group's dead letters again."""
    name = page.path("group")
    sent = await page.client.resend_dead_letters(
        name,
        topic=page.given("topic"),
        most=page.number("most", 0),
        again=page.given("again") == "yes",
    )
    return page.done(f"{sent:,} dead letters were sent again.", f"/groups/{in_address(name)}")


async def delete(page: Page) -> Response:
    """Delete a group whose name was typed."""
    name = page.path("group")
    if page.given("typed") != name:
        raise BadInput(f"Type the group's name, {name}, to delete it. Nothing was deleted.")
    await page.client.delete_group(name)
    return page.done(f"Group {name} is deleted; its dead letters stay.", "/groups")
