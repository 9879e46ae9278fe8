"""Services stopped and killed under clients that go on."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from drivers import ClientFailed, Producer
from lab import Lab

T = TypeVar("T")
BACK_WITHIN_S = 20.0
CALLED_WITHIN_S = 60.0  # Java's client leaves out an address that failed for a while
SETTLED_S = 100.0  # a lease whose answer was lost with the reader runs out first


class Sending:
    """Sends without a pause in a thread, and keeps what was acknowledged."""

    def __init__(self, producer: Producer) -> None:
        self.acknowledged: list[str] = []
        self.times: list[float] = []
        self._producer = producer
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            number += 1
            try:
                self._producer.send_bodies(f"n{number}")
            except ClientFailed:
                continue
            except AssertionError:
                return
            self.acknowledged.append(f"n{number}")
            self.times.append(time.monotonic())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


def restarts(lab: Lab) -> str:
    """Each service is killed in turn: senders and push consumers go on, and nothing acknowledged is lost."""
    topic, group = lab.topic(), lab.group()
    consumer = lab.push(topic, group)
    sending = Sending(lab.producer(topic))
    consumer.wait_calls(20)
    recovered = []
    for service in lab.server.services:
        killed = time.monotonic()
        lab.server.restart(service, killed=True)
        sent, heard = len(sending.times), len(consumer.calls)
        _until(
            lambda sent=sent: len(sending.times) >= sent + 20,
            f"senders after a kill of the {service}",
        )
        back_s = next(at for at in sending.times if at > killed) - killed
        target = len(sending.acknowledged)
        _until(
            lambda heard=heard: len(consumer.calls) > heard + 5,
            f"the consumer after a kill of the {service}",
        )
        heard_s = next(m.at for m in consumer.calls[heard:] if m.at > killed) - killed
        recovered.append(f"{service} {back_s:.1f}/{heard_s:.1f} s")
        _until(
            lambda target=target: len({m.body for m in consumer.calls}) >= target - 50,
            "the backlog",
        )
    sending.stop()
    wanted = set(sending.acknowledged)
    end = time.monotonic() + SETTLED_S
    while wanted - {m.body for m in consumer.calls} and time.monotonic() < end:
        time.sleep(0.1)

    settled_s = time.monotonic() - end + SETTLED_S
    counts = Counter(m.body for m in consumer.calls)
    missing = wanted - counts.keys()
    assert not missing, f"{len(missing)} of {len(wanted)} acknowledged messages were never consumed"
    twice = sum(count > 1 for count in counts.values())
    return f"{', '.join(recovered)}; {len(wanted)} sent, {twice} twice, all after {settled_s:.0f} s"


def stops(lab: Lab) -> str:
    """Each service is stopped in order and killed, its supervisor too: sends and receives go on, nothing is lost."""
    topic, group = lab.topic(), lab.group()
    producer = lab.producer(topic)
    consumer = lab.simple(topic, group, await_s=2)
    producer.send_bodies("before")
    consumer.ack(*consumer.receive_until(1))
    recovered = []
    for killed in (False, True):
        for service in ("writer", "reader", "supervisor"):
            lab.server.restart(service, killed=killed)
            began = time.monotonic()
            body = f"after {service} {killed}"
            _again(lambda body=body: producer.send_bodies(body), f"sends: {body}")
            came: list[str] = []
            while body not in came:  # one whose answer was lost is sent twice
                messages = _again(consumer.receive, f"receives: {body}")
                consumer.ack(*messages)
                came += [message.body for message in messages]
                assert time.monotonic() < began + CALLED_WITHIN_S, f"{body}: did not come"
            recovered.append(f"{time.monotonic() - began:.1f}")
    return f"{', '.join(recovered)} s"


def _again(call: Callable[[], T], what: str) -> T:
    """Call until it does not fail."""
    end = time.monotonic() + CALLED_WITHIN_S
    while True:
        try:
            return call()
        except ClientFailed as error:
            assert time.monotonic() < end, f"{what}: {error}"
            time.sleep(0.2)


def _until(condition, what: str, within_s: float = BACK_WITHIN_S) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not back after {within_s:g} s"
        time.sleep(0.02)
