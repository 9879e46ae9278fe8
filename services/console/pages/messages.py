"""Messages: found by id, key or place, a queue browsed or followed, and one message with its way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from starlette.responses import Response

from penstock import (
    AsyncKeyRecords,
    MessageNotFound,
    PenstockError,
    PullResult,
    QueueNotFound,
    Record,
    Records,
    Unauthenticated,
    UncoveredRange,
)
from services.console.bodies import shown
from services.console.page import BadInput, Page
from services.console.pages.topics import described
from services.times import parse_place, parse_time_ms
from storage.format.message_id import IPV4_ID_SIZE

ROWS: Final = 50
FOLLOWED_MAX: Final = 256  # queues
FOLLOWED_ROWS: Final = 100  # of one look
LOOKS_MAX: Final = 20  # pulls of a filtered browse, of so many records
PULLED: Final = 500


async def find(page: Page) -> Response:
    """Find messages: by id, by key and time window, by topic, queue and offset."""
    given = page.given
    records: list[Record] = []
    uncovered: list[UncoveredRange] = []
    asked = ""
    if given("id"):
        asked = given("id")
        records = await _by_id(page, asked)
    elif given("topic") and given("key"):
        asked = given("key")
        records = await _by_key(page, uncovered)
    elif given("topic") and given("offset"):
        asked = given("offset")
        pulled = await page.client.pull(
            given("topic"), page.number("queue", 0), page.number("offset"), max_messages=1
        )
        records = list(pulled.records)
        if not records:
            raise MessageNotFound(
                f"queue {page.number('queue', 0)} of {given('topic')} has no message at offset {asked};"
                f" it has those from {pulled.min_offset} to {pulled.max_offset - 1}"
            )
    if len(records) == 1 and not uncovered and not page.is_live:
        return await _show(page, records[0])
    return page.show("messages.html", rows=records, asked=asked, uncovered=uncovered)


async def _by_id(page: Page, text: str) -> list[Record]:
    if text.isascii() and text.isdecimal() and len(text) < 2 * IPV4_ID_SIZE:
        return [await page.client.message(page.number("id"))]
    topic = page.given("topic")
    if topic:  # RocketMQ's clients name messages by unique ids, which are looked up like keys
        return await _first(page.client.query_by_key(topic, text, unique=True, page_size=ROWS))
    return [await page.client.message(text)]


async def _by_key(page: Page, uncovered: list[UncoveredRange]) -> list[Record]:
    begin, end = page.given("since"), page.given("until")
    found = page.client.query_by_key(
        page.given("topic"),
        page.given("key"),
        begin=page.parsed(parse_time_ms, begin) if begin else None,
        end=page.parsed(parse_time_ms, end) if end else None,
        on_damaged=lambda *_: None,
        on_uncovered=uncovered.append,
    )
    return await _first(found)


async def _first(found: AsyncKeyRecords) -> list[Record]:
    """Return the newest records of a query."""
    records: list[Record] = []
    async for record in found:
        records.append(record)
        if len(records) >= ROWS:
            break
    return records


# One message


async def _asked_for(page: Page) -> Record:
    """Return the message that the address names by its commit offset."""
    return await page.client.message(page.number("at"))


async def show(page: Page) -> Response:
    """Show a message and its way."""
    return await _show(page, await _asked_for(page))


async def _show(page: Page, record: Record) -> Response:
    place = record.topic, record.queue_id, record.queue_offset
    at = record.commit_offset
    # Positions are asked for by message: those that another page asked for may be older than it.
    writer, indexer, tracks = await asyncio.gather(
        page.ask("writer", ("writer", at), page.client.writer_status),
        page.ask("indexer", ("indexer", at), page.client.indexer_status),
        page.ask(
            "reader",
            ("track", place, at),
            lambda: page.client.track(*place, commit_offset=at),
            fresh_s=1.0,
        ),
    )
    return page.show(
        "message.html",
        record=record,
        body=None if page.is_live else shown(record, page.given("as")),
        writer=writer.value,
        indexer=indexer.value,
        tracks=tracks.value or [],
        tracks_problem=tracks.error.message if tracks.error is not None else "",
    )


async def body(page: Page) -> Response:
    """Return a body as a file."""
    record = await _asked_for(page)
    data, _ = record.body_or_stored()
    return Response(
        data,
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f'attachment; filename="message-{record.commit_offset}.bin"',
            "Cache-Control": "no-store",
        },
    )


async def resend(page: Page) -> Response:
    """Store a message again, where it was sent to first or in another topic."""
    record = await _asked_for(page)
    stored = await page.client.resend(record, page.given("topic"))
    return page.done(
        f"Sent again: in topic {stored.topic}, queue {stored.queue_id}, offset {stored.queue_offset}.",
        f"/message?at={stored.commit_offset}",
    )


# Many messages


async def browse(page: Page) -> Response:
    """Show messages of a queue from an offset, a time, or before its end."""
    topic = page.path("topic")
    found = await described(page, topic)
    queue_id = page.number("queue", 0)
    if queue_id not in found.queues:
        raise QueueNotFound(f"topic {topic} has no queue {queue_id}")
    begin, end = found.queues[queue_id]
    place = page.given("from", "latest")
    wanted = page.parsed(parse_place, place)
    if wanted == "latest":
        offset = max(begin, end - ROWS)
    elif wanted == "earliest":
        offset = begin
    elif isinstance(wanted, datetime):
        offset = (await page.client.offset(topic, queue_id, wanted)).queue_offset
    else:
        offset = int(wanted)
    records, next_offset, damaged = await _filtered(page, topic, queue_id, offset)
    return page.show(
        "browse.html",
        topic=topic,
        queues=sorted(found.queues),
        queue_id=queue_id,
        begin=begin,
        end=end,
        offset=offset,
        next_offset=next_offset,
        rows=records,
        damaged=damaged,
        place=place,
    )


async def _filtered(
    page: Page, topic: str, queue_id: int, offset: int
) -> tuple[list[Record], int, list[Any]]:
    """Return records of a queue that the tag and the SQL filter of the address let through, and where to go on."""
    records: list[Record] = []
    damaged: list[Any] = []
    sql = page.given("sql")
    for _ in range(LOOKS_MAX if sql or page.given("tag") else 1):
        pulled = await page.client.pull(
            topic,
            queue_id,
            offset,
            max_messages=PULLED if sql else ROWS - len(records),
            tag=page.given("tag"),
        )
        damaged += pulled.damaged
        chosen = matching(pulled.records, sql)[: ROWS - len(records)]
        records += chosen
        is_full = len(records) >= ROWS
        offset = chosen[-1].queue_offset + 1 if is_full and chosen else pulled.next_offset
        if is_full or offset >= pulled.max_offset:
            break
    return records, offset, damaged


def matching(records: Records | Sequence[Record], sql: str) -> list[Record]:
    """Return the records that an SQL92 filter lets through, all without one. Raises BadInput."""
    if not sql:
        return list(records)
    import numpy as np

    from storage.errors import InvalidMessage
    from storage.view.filters.sql_filter import (
        sql_filter,
    )  # compiled kernels: when the first is asked for

    try:
        chosen = sql_filter(sql)
    except InvalidMessage as error:
        raise BadInput(f"SQL filter: {error}") from None
    found = list(records)
    if not found:
        return []
    raw = b"".join(bytes(record.raw) for record in found)
    sizes = np.array([record.size for record in found], np.int64)
    positions = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)[:-1]))
    mask = chosen.matching(np.frombuffer(raw, np.uint8), positions)
    return [record for record, is_chosen in zip(found, mask, strict=True) if is_chosen]


async def follow(page: Page) -> Response:
    """Show what comes: the page, and with ``cursor`` what came since."""
    topic = page.path("topic")
    matching([], page.given("sql"))  # an expression that is none is said at once
    if not page.given("cursor"):
        found = await described(page, topic)
        ends = {queue: end for queue, (_, end) in list(found.queues.items())[:FOLLOWED_MAX]}
        return page.show(
            "follow.html",
            topic=topic,
            cursor=_cursor(ends),
            problem="",
            rows=[],
            passed_over=0,
            queue_count=len(found.queues),
            followed=len(ends),
        )
    at = _places(page.given("cursor"))
    rows: list[Record] = []
    passed_over, problem = 0, ""
    try:
        rows, passed_over = await _come(page, topic, at)
    except Unauthenticated:
        raise
    except PenstockError as error:  # the page stays where it is, and asks again
        problem = error.message
    return page.show(
        "followed.html",
        topic=topic,
        cursor=_cursor(at),
        problem=problem,
        rows=rows,
        passed_over=passed_over,
    )


async def _come(page: Page, topic: str, at: dict[int, int]) -> tuple[list[Record], int]:
    """Return what came after some places, the newest first, and how many messages were passed over; move the places."""
    queues = await page.ask(
        "reader", ("queues", (topic,)), lambda: page.client.stored_queues((topic,)), fresh_s=0.5
    )
    if queues.error is not None:
        raise queues.error
    if not queues.value:
        await page.client.describe_topic(topic)  # raises if it was deleted
    ends = {each.queue_id: each.max_offset for each in queues.value or ()}
    due = {queue: offset for queue, offset in at.items() if ends.get(queue, 0) > offset}
    share = max(1, FOLLOWED_ROWS // max(1, len(due)))
    passed_over = 0
    for queue, offset in due.items():  # what comes faster than anybody reads is passed over
        if ends[queue] - offset > share:
            passed_over += ends[queue] - offset - share
            due[queue] = ends[queue] - share
    pulled = await asyncio.gather(
        *(_since(page, topic, queue, offset) for queue, offset in due.items())
    )
    records = [
        record for result in pulled for record in matching(result.records, page.given("sql"))
    ]
    for queue, result in zip(due, pulled, strict=True):
        at[queue] = result.next_offset
    records.sort(key=lambda record: record.commit_offset, reverse=True)
    return records, passed_over


async def _since(page: Page, topic: str, queue_id: int, offset: int) -> PullResult:
    return await page.client.pull(
        topic, queue_id, offset, max_messages=FOLLOWED_ROWS, tag=page.given("tag")
    )


def _cursor(places: dict[int, int]) -> str:
    return ".".join(f"{queue}-{offset}" for queue, offset in places.items())


def _places(cursor: str) -> dict[int, int]:
    places = {}
    for part in cursor.split(".")[:FOLLOWED_MAX]:
        queue, _, offset = part.partition("-")
        if not (queue.isdecimal() and offset.isdecimal() and len(queue) < 9 and len(offset) < 18):
            raise BadInput("the address of this page is damaged: open it again from its topic")
        places[int(queue)] = int(offset)
    return places
