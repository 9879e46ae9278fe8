"""The demo's step with a consumer group: orders, a handler that fails, retries, dead letters sent again."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cli.failures import CommandFailed
from storage.format.names import DLQ_PREFIX

if TYPE_CHECKING:
    from cli.demo.demo import Demo
    from penstock import Client, LeasedRecord

TOPIC: Final = "orders"
GROUP: Final = "shop"
ORDER_COUNT: Final = 500
UNPAID_EVERY: Final = 10  # their payment fails once
UNADDRESSED_EVERY: Final = 100  # the handler fails for them until it is mended
RETRIES: Final = 2
BACKOFF_MS: Final = (200, 500)  # before the second attempt, and before the third
PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.05
_CONCURRENCY: Final = {"concurrency": 4}


class PaymentFailed(Exception):
    """The bank has no time."""


class Shop:
    """Handles orders, and counts what it was handed; its handler is called by several threads."""

    def __init__(self) -> None:
        self.attempts: Counter[int] = Counter()
        self.handled: Counter[int] = Counter()
        self.is_mended = (
            False  # then it takes orders without an address: somebody will call for them
        )
        self._guard = threading.Lock()

    def handle(self, message: LeasedRecord) -> None:
        """Handle one order. Raises PaymentFailed, and KeyError for an order without an address."""
        order = json.loads(message.body)
        number = order["order"]
        with self._guard:
            self.attempts[number] += 1
            if is_unpaid(number) and self.attempts[number] == 1:
                raise PaymentFailed
            if not self.is_mended:
                order["address"]
            self.handled[number] += 1


def is_unaddressed(number: int) -> bool:
    """Return whether an order has no address."""
    return number % UNADDRESSED_EVERY == UNADDRESSED_EVERY // 2 + 1


def is_unpaid(number: int) -> bool:
    """Return whether the first payment of an order fails."""
    return number % UNPAID_EVERY == 0


def show_orders(demo: Demo, client: Client, addresses: Mapping[str, str]) -> None:
    """Have orders handled by a handler that fails for some, until each is handled once."""
    logging.getLogger("penstock").addHandler(logging.NullHandler())  # it logs each failure
    numbers = range(ORDER_COUNT)
    unaddressed = {number for number in numbers if is_unaddressed(number)}
    unpaid = {number for number in numbers if is_unpaid(number)}
    demo.step(
        f"Orders: {ORDER_COUNT} for group {GROUP}; the handler fails for some;"
        f" retries after {' and '.join(f'{ms} ms' for ms in BACKOFF_MS)}"
    )
    client.create_topic(TOPIC, queues=4)
    client.create_group(GROUP, retry_max_times=RETRIES, backoff=BACKOFF_MS)
    send(client, unaddressed)

    shop = Shop()
    left = work(client, shop)
    demo.check(
        f"{len(shop.handled)} of {ORDER_COUNT} orders are handled,"
        f" {len(unpaid)} of them at the second attempt",
        shop.handled == Counter(set(numbers) - unaddressed),
    )
    demo.check(
        f"the {len(unaddressed)} without an address have failed {RETRIES + 1} times each",
        all(shop.attempts[number] == RETRIES + 1 for number in unaddressed),
    )
    dead = dead_letters(client)
    demo.check(
        f"{len(dead)} orders are dead letters, {left} are left for the group",
        dead == sorted(unaddressed) and not left,
    )

    shop.is_mended = True
    said = resend(addresses)
    demo.console.print(f"  the handler is mended; penstock dlq resend {GROUP}: {said}")
    left = work(client, shop)
    attempts = Counter(numbers)
    attempts.update(unpaid)
    attempts.update([*unaddressed] * (RETRIES + 1))
    demo.check(
        f"{shop.handled.total()} of {ORDER_COUNT} orders are handled, each once;"
        f" {shop.attempts.total() - ORDER_COUNT - len(unaddressed)} retries, nothing else twice",
        shop.handled == Counter(numbers) and shop.attempts == attempts,
    )
    demo.check(f"{left} are left for the group", not left)


def send(client: Client, unaddressed: set[int]) -> None:
    """Store the orders."""
    with client.producer() as producer:
        for number in range(ORDER_COUNT):
            order = {"order": number, "pens": number % 7 + 1}
            if number not in unaddressed:
                order["address"] = number + 1
            producer.send(TOPIC, json.dumps(order).encode(), keys=[f"order-{number}"])


def work(client: Client, shop: Shop) -> int:
    """Be a member of the group until all is done, or too much time has passed; return how many orders are left."""
    subscription = client.subscribe(TOPIC, group=GROUP)
    member = threading.Thread(target=subscription.run, args=(shop.handle,), kwargs=_CONCURRENCY)
    member.start()
    deadline = time.monotonic() + PATIENCE_S
    while (left := count_left(client)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    subscription.stop()
    member.join()
    return left


def count_left(client: Client) -> int:
    """Return how many orders are neither acknowledged nor dead letters."""
    return sum(queue.lag for queue in client.describe_group(GROUP, TOPIC).queues)


def dead_letters(client: Client) -> list[int]:
    """Return the numbers of the orders that are dead letters."""
    from penstock.errors import TopicNotFound

    try:
        records = client.consume(f"{DLQ_PREFIX}{GROUP}", follow=False)
    except TopicNotFound:  # it is made for the first of them
        return []
    return sorted(json.loads(record.body)["order"] for record in records)


def resend(addresses: Mapping[str, str]) -> str:
    """Run ``penstock dlq resend``; return what it says."""
    options = [f"--{name}={address}" for name, address in addresses.items()]
    command = [sys.executable, "-m", "cli.main", *options, "dlq", "resend", GROUP]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own program
    if done.returncode:
        raise CommandFailed(f"penstock dlq resend: {done.stderr.strip()}")
    return done.stdout.strip()
