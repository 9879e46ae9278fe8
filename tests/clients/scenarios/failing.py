"""Push consumers whose listeners fail or take long: retries, dead letters, renewed leases."""

from __future__ import annotations

import time

from drivers import Received
from lab import Lab

NEVER = "1000"
LATE_S = 0.5
STEPS = (1, 2)  # seconds after the first failure, and after the second
TRIES = 3  # a machine that stands still for a moment is not late each time


def push_retry(lab: Lab) -> str:
    """A message whose handler fails comes again after the group's steps, with the attempt counted."""
    for _ in range(TRIES):
        gaps = _retried(lab)
        late = [gap - step for gap, step in zip(gaps, STEPS, strict=True)]
        if max(late) <= LATE_S:
            break
    assert max(late) <= LATE_S, f"came {gaps} s after failing, not {STEPS}"
    return " and ".join(f"{gap:.2f} s" for gap in gaps)


def _retried(lab: Lab) -> list[float]:
    """Let a handler fail twice; return how many seconds after each failure the message came again."""
    topic, group = lab.topic(), lab.group(backoff_ms=(1000, 2000, 3000))
    consumer = lab.push(topic, group)
    lab.producer(topic).send({"body": "twice", "properties": {"fail_times": "2"}}, {"body": "fine"})
    consumer.wait_calls(4, within_s=60)
    consumer.wait_returns(4)
    ends = [at for id_, ok, at in consumer.returns]
    calls = [m for m in consumer.calls if m.body == "twice"]
    gaps = _gaps(consumer.returns, calls)

    assert [m.attempt for m in calls] == [1, 2, 3]
    assert len(ends) == 4
    for gap, step in zip(gaps, STEPS, strict=True):
        least = 0 if lab.language.name == "node" else step - 0.1  # its client asks for no delay
        assert gap >= least, f"came {gap:.2f} s after failing, not {step}"
    return gaps


def _gaps(returns: list[tuple[str, bool, float]], calls: list[Received]) -> list[float]:
    failed = [at for id_, ok, at in returns if id_ == calls[0].id and not ok]
    return [call.at - at for call, at in zip(calls[1:], failed, strict=True)]


def _dead_letters(lab: Lab, group: str, count: int) -> list[Received]:
    """Read a group's dead letters as any topic, as soon as there are some."""
    end = time.monotonic() + 30
    while True:
        try:
            return lab.simple(f"%DLQ%{group}", lab.group()).receive_until(count, within_s=5)
        except Exception:  # the topic is made with the first dead letter
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def dead_letter_after_attempts(lab: Lab) -> None:
    """A message that failed as often as the group allows is a dead letter, and comes no more."""
    topic, group = lab.topic(), lab.group(retries=1, backoff_ms=(1000,))
    consumer = lab.push(topic, group)
    lab.producer(topic).send(
        {"body": "bad", "tag": "t", "keys": ["k"], "properties": {"fail_times": NEVER}}
    )
    consumer.wait_calls(2, within_s=60)
    (letter,) = _dead_letters(lab, group, 1)

    assert [m.attempt for m in consumer.calls] == [1, 2]
    assert letter.body == "bad"
    assert letter.id == consumer.calls[0].id
    assert letter.fields["tag"] == "t"
    assert letter.fields["keys"] == ["k"]


def dead_letter_by_forward(lab: Lab) -> None:
    """A client that gives an orderly message up forwards it; its successors go on, in order."""
    topic, group = (
        lab.topic("FIFO", queues=1),
        lab.group(orderly=True, retries=1, backoff_ms=(1000,)),
    )
    producer = lab.producer(topic)
    consumer = lab.push(topic, group)
    producer.send(
        {"body": "bad", "message_group": "a", "properties": {"fail_times": NEVER}},
        *({"body": f"good{n}", "message_group": "a"} for n in range(3)),
        {"body": "other", "message_group": "b"},
    )
    end = time.monotonic() + 60
    while len({m.body for m in consumer.calls}) < 5 and time.monotonic() < end:
        time.sleep(0.05)
    (letter,) = _dead_letters(lab, group, 1)

    mine = [m.body for m in consumer.calls if m.message_group == "a"]
    assert [body for body in mine if body != "bad"] == ["good0", "good1", "good2"]
    assert letter.body == "bad"
    assert sum(m.body == "other" for m in consumer.calls) == 1
    goes_on = {"node"}  # it makes one attempt
    if lab.server.name == "rocketmq":
        goes_on.add("go")  # with what came in the same answer
    if lab.language.name not in goes_on:
        assert mine == ["bad", "bad", "good0", "good1", "good2"]


def slow_handler(lab: Lab) -> None:
    """A listener that takes longer than the lease keeps its messages: the server renews for it."""
    _slow(lab, 8 if lab.server.name == "penstock" else 75)


def slow_handler_75s(lab: Lab) -> None:
    """The same with the default lease of 60 s."""
    _slow(lab, 75)


def _slow(lab: Lab, seconds: int) -> None:
    topic, group = lab.topic(), lab.group()
    consumer = lab.push(topic, group)
    lab.producer(topic).send(
        *({"body": f"n{n}", "properties": {"sleep_ms": str(seconds * 1000)}} for n in range(8))
    )
    consumer.wait_calls(8)
    consumer.wait_returns(8, within_s=seconds + 30)
    time.sleep(5 if lab.server.name == "penstock" else 25)  # its next poll shows what comes again

    assert sorted(m.body for m in consumer.calls) == [f"n{n}" for n in range(8)]
