"""Topics: the list, and one topic with its queues and what changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from penstock import FailedPrecondition, StoredQueue, Topic, TopicDescription
from services.console.answers import LastAnswer
from services.console.page import PATIENCE_S, BadInput, Page, Sheet
from services.console.templates import in_address

QUEUE_ROWS: Final = 32
ALL_FRESH_S: Final = 5.0
SYSTEM_PREFIXES: Final = ("%", "RMQ_SYS_", "rmq_sys_", "TRANS_CHECK_")


class TopicRow(NamedTuple):
    """A topic in the list: messages that are kept, messages a second, and its largest queue over the mean.

    None is what nobody knows yet.
    """

    topic: Topic
    messages: int | None
    rate: float | None
    skew: float | None


ORDERS: Final[Mapping[str, Callable[[TopicRow], float]]] = {
    "messages": lambda row: row.messages or 0,
    "rate": lambda row: row.rate or 0,
    "skew": lambda row: row.skew or 0,
}


async def all_topics(page: Page) -> list[Topic]:
    """Return all topics that the user may see."""
    answer = await page.ask("writer", "topics", page.client.topics, fresh_s=5)
    return answer.needed()


def is_system(topic: str) -> bool:
    """Whether a topic is the store's or a broker's own."""
    return topic.startswith(SYSTEM_PREFIXES)


async def show(page: Page) -> Response:
    """List topics."""
    wanted = page.given("q").lower()
    with_system = page.given("system") == "yes"
    topics = [
        each
        for each in await all_topics(page)
        if wanted in each.name.lower() and (with_system or not is_system(each.name))
    ]
    order = page.given("sort")
    if order in ORDERS:  # the queues of all topics, now and then
        queues = await page.ask(
            "reader", ("queues", "all"), page.client.stored_queues, fresh_s=ALL_FRESH_S
        )
        sheet = page.sheet(sorted(_rows(page, topics, queues), key=ORDERS[order], reverse=True))
    else:
        of_topics = page.sheet(topics)
        names = tuple(each.name for each in of_topics.rows)
        queues = await page.ask(
            "reader", ("queues", names), lambda: page.client.stored_queues(names),
            patience_s=PATIENCE_S,
        )  # fmt: skip
        rows = _rows(page, of_topics.rows, queues)
        sheet = Sheet(rows, of_topics.number, of_topics.count, len(topics))
    return page.show(
        "topics.html", sheet=sheet, wanted=wanted, with_system=with_system, order=order
    )


def _rows(
    page: Page, topics: Sequence[Topic], queues: LastAnswer[list[StoredQueue]]
) -> list[TopicRow]:
    if queues.value is None:
        return [TopicRow(topic, None, None, None) for topic in topics]
    by_topic: dict[str, list[StoredQueue]] = {}
    time_ms = queues.answered_ms
    for queue in queues.value:
        by_topic.setdefault(queue.topic, []).append(queue)
    rates = page.session.caller.rates
    rows = []
    for topic in topics:
        found = by_topic.get(topic.name, [])
        rates.add(
            ("topic", topic.name), time_ms, {"messages": sum(each.max_offset for each in found)}
        )
        kept = [each.max_offset - each.min_offset for each in found]
        total = sum(kept)
        mean = total / max(1, topic.write_queue_count)
        rows.append(
            TopicRow(
                topic,
                total,
                rates.rate(("topic", topic.name), "messages"),
                max(kept) / mean if total else None,
            )
        )
    return rows


async def create(page: Page) -> Response:
    """Create a topic."""
    name = page.given("name")
    await page.client.create_topic(name, queues=page.number("queues", 8, least=1))
    return page.done(f"Topic {name} is made.", f"/topics/{in_address(name)}")


class QueueRow(NamedTuple):
    """A queue: its offsets, when its first and last messages were stored (0: unknown), messages a second."""

    queue_id: int
    min_offset: int
    max_offset: int
    first_ms: int
    last_ms: int
    rate: float | None


async def described(page: Page, name: str) -> TopicDescription:
    """Return a topic and its queues."""
    return (await _description(page, name)).needed()


async def _description(page: Page, name: str) -> LastAnswer[TopicDescription]:
    return await page.ask("writer", ("topic", name), lambda: page.client.describe_topic(name))


async def show_one(page: Page) -> Response:
    """Show a topic: settings, queues, and forms that change it."""
    name = page.path("topic")
    answer = await _description(page, name)
    found = answer.needed()
    rates = page.session.caller.rates
    sheet = page.sheet(sorted(found.queues.items()), rows_max=QUEUE_ROWS)
    times = await asyncio.gather(*(_times(page, name, q, *ends) for q, ends in sheet.rows))
    rows = []
    for (queue_id, (begin, end)), (first_ms, last_ms) in zip(sheet.rows, times, strict=True):
        key = ("queue", name, queue_id)
        if not answer.is_away:
            rates.add(key, answer.answered_ms, {"messages": end})
        rows.append(QueueRow(queue_id, begin, end, first_ms, last_ms, rates.rate(key, "messages")))
    return page.show("topic.html", found=found, topic=found.topic, sheet=sheet, rows=rows)


async def _times(page: Page, topic: str, queue_id: int, begin: int, end: int) -> tuple[int, int]:
    """Return when the first and the last message of a queue were stored, 0 where that cannot be read."""

    if begin >= end:
        return 0, 0
    first, last = await asyncio.gather(
        *(stored_ms(page, topic, queue_id, offset) for offset in (begin, end - 1))
    )
    return first, last


async def stored_ms(page: Page, topic: str, queue_id: int, queue_offset: int) -> int:
    """Return when a message was stored, 0 where that cannot be read. It does not change: it is asked for rarely."""

    async def ask() -> int:
        pulled = await page.client.pull(topic, queue_id, queue_offset, max_messages=1)
        return pulled.records[0].store_timestamp_ms if pulled.records else 0

    answer = await page.answers.get(
        "reader", ("time", topic, queue_id, queue_offset), ask, fresh_s=600
    )
    return answer.value or 0


async def update(page: Page) -> Response:
    """Change queues or permission; where that would leave messages unread the page says so and asks again."""
    name = page.path("topic")
    try:
        topic = await page.client.update_topic(
            name,
            read_queues=page.optional_number("read_queues"),
            write_queues=page.optional_number("write_queues"),
            perm=page.optional_number("perm"),
            force=page.given("force") == "yes",
        )
    except FailedPrecondition as refused:
        if refused.reason != "QUEUES_IN_USE":
            raise
        return page.show("shrink.html", status=409, topic=name, refused=refused.message)
    return page.done(
        f"Topic {name}: {topic.write_queue_count} queues to write, {topic.read_queue_count} to read.",
        f"/topics/{in_address(name)}",
    )


async def delete(page: Page) -> Response:
    """Delete a topic whose name was typed."""
    name = page.path("topic")
    if page.given("typed") != name:
        raise BadInput(f"Type the topic's name, {name}, to delete it. Nothing was deleted.")
    await page.client.delete_topic(name)
    return page.done(f"Topic {name} is deleted.", "/topics")


async def send(page: Page) -> Response:
    """Store a message."""
    name = page.path("topic")
    body = page.form.get("body", "")
    delay_s = page.number("delay_s", 0)
    stored = await page.client.produce(
        name,
        (body if isinstance(body, str) else "").replace("\r\n", "\n").encode(),
        keys=page.given("keys").split(),
        tag=page.given("tag"),
        properties=properties_of(page.given("properties")),
        queue_id=page.optional_number("queue"),
        delay=delay_s or None,
    )
    if stored.queue_offset < 0:
        handle = f" Its recall handle: {stored.recall_handle}" if stored.recall_handle else ""
        return page.done(
            f"Stored; it is delivered in {delay_s} s.{handle}", f"/topics/{in_address(name)}"
        )
    return page.done(
        f"Stored in queue {stored.queue_id} at offset {stored.queue_offset}, id {stored.message_id}.",
        f"/topics/{in_address(name)}",
    )


def properties_of(text: str) -> dict[str, str]:
    """Return NAME=VALUE lines as properties. Raises BadInput."""
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise BadInput(
                f"properties: write each as NAME=VALUE on a line of its own, not {line[:40]!r}"
            )
        found[name.strip()] = value.strip()
    return found
