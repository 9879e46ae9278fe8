"""Routes that send a client to the writer and the reader."""

from __future__ import annotations

from lab import Lab

SPLITTING = frozenset({"python", "node", "java"})  # the others stay at the gateway


def split_routes(lab: Lab) -> str:
    """Clients that honour permissions send to the writer and receive from the reader; the others still work."""
    topic, group = lab.topic(), lab.group()
    producer = lab.producer(topic)
    producer.send_bodies(*(f"n{n}" for n in range(20)))
    consumer = lab.simple(topic, group)
    messages = consumer.receive_until(20)
    consumer.ack(*messages)
    assert sorted(m.body for m in messages) == sorted(f"n{n}" for n in range(20))
    assert {m.attempt for m in messages} == {1}

    at = {service: len(lab.server.clients_of(service)) for service in ("writer", "reader")}
    splits = lab.language.name in SPLITTING
    if splits:
        assert at["writer"] and at["reader"], at
        # And the gateway with it: who sends needs neither between two looks at the route.
        lab.server.restart("reader", killed=True)
        producer.send_bodies("one more")
    else:
        assert not at["writer"] and not at["reader"], at
    return "at the writer and the reader" if splits else "at the gateway"


def split_routes_tls(lab: Lab) -> str:
    """The same with TLS at all three addresses."""
    return split_routes(lab)
