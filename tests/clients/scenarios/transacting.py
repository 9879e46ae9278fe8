"""Transactions: seen after the commit, never after a rollback, asked about when their producer left them."""

from __future__ import annotations

from lab import Lab

CHECKED_WITHIN_S = 90  # the first check comes 6 s after the send, the reference looks each 30 s


def transaction_commit(lab: Lab) -> None:
    """A message of a transaction is seen after the commit, as it was sent."""
    topic = lab.topic("TRANSACTION")
    producer = lab.producer(topic, checks=True)
    sent = [
        producer.send_transaction(
            "commit", body=f"n{n}", tag="t", keys=[f"k{n}"], properties={"colour": "red"}
        )
        for n in range(3)
    ]
    messages = lab.simple(topic, lab.group()).receive_until(3)

    assert sorted(m.id for m in messages) == sorted(sent)
    for message in messages:
        assert message.fields["tag"] == "t"
        assert message.fields["keys"] == [f"k{message.body[1:]}"]
        assert message.fields["properties"]["colour"] == "red"
        assert message.fields["properties"]["__transactionId__"] == message.id


def transaction_rollback(lab: Lab) -> None:
    """A message of a transaction that was rolled back is never seen."""
    topic = lab.topic("TRANSACTION")
    producer = lab.producer(topic, checks=True)
    producer.send_transaction("rollback", body="never")
    producer.send_transaction("commit", body="seen")
    consumer = lab.simple(topic, lab.group())
    (message,) = consumer.receive_until(1)
    consumer.ack(message)

    assert message.body == "seen"
    consumer.receive_nothing(5)


def transaction_check(lab: Lab) -> str:
    """A producer that has left transactions is asked, and its answer counts."""
    topic = lab.topic("TRANSACTION")
    producer = lab.producer(topic, checks=True)
    producer.send_transaction("", body="kept", properties={"checked": "COMMIT"})
    producer.send_transaction("", body="dropped", properties={"checked": "ROLLBACK"})
    began = producer.driver.do("send", name=producer.name, messages=[])["at"]
    consumer = lab.simple(topic, lab.group())
    (message,) = consumer.receive_until(1, within_s=CHECKED_WITHIN_S)
    consumer.ack(message)

    assert message.body == "kept"
    consumer.receive_nothing(3)
    return f"{message.at - began:.1f} s"
