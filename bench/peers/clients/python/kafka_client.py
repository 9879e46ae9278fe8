"""Load on Kafka by confluent-kafka, whose work is done in C."""

from __future__ import annotations

import confluent_kafka

from bench.peers.clients.python.meter import ARGUMENTS, BODIES, Passes, Window, number, payloads

MESSAGES_A_CALL = 1000


def produce(size_bytes: int, batch: int, in_flight: int) -> None:
    """Produce with a delivery report for every message; batches pinned to ``batch``."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": ARGUMENTS["address"],
            "acks": "all",
            "compression.type": "none",
            "batch.num.messages": batch,
            "linger.ms": 5,
            "max.in.flight.requests.per.connection": in_flight,
        }
    )
    bodies, window, unanswered, sent = payloads(size_bytes), Window(), 0, 0

    def report(error: object, _message: object) -> None:
        nonlocal unanswered
        unanswered -= 1
        if error:
            window.fail(error)
        else:
            window.acknowledged(1)

    while window.going():
        while unanswered > batch * (in_flight - 1):
            producer.poll(0.01)
        for _ in range(batch):
            producer.produce("bench-0", bodies[sent % BODIES], partition=0, on_delivery=report)
            sent += 1
        unanswered += batch
        producer.poll(0)


def consume() -> None:
    """Read the partition from its beginning, up to 1,000 messages a call."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": ARGUMENTS["address"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 << 20,
        }
    )
    passes, more = Passes(), True
    while more:
        consumer.assign([confluent_kafka.TopicPartition("bench-0", 0, 0)])
        count = 0
        while count < passes.backlog:
            for message in consumer.consume(MESSAGES_A_CALL, 1.0):
                count += len(message.value()) > 0
        more = passes.end(count)
    consumer.close()


if __name__ == "__main__":
    if ARGUMENTS["operation"] == "consume":
        consume()
    else:
        produce(number("size_bytes", 1024), number("batch", 64), number("in_flight", 64))
