"""Rates of the official Python client, measured beside it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rocketmq import ClientConfiguration, FilterExpression, Message, Producer, SimpleConsumer


def send(configuration: ClientConfiguration, tls: bool, command: dict) -> dict:
    """Keep ``in_flight`` sends open for ``run_ms``."""
    producer = Producer(configuration, (command["topic"],), tls_enable=tls)
    producer.startup()
    window, body = threading.Semaphore(command["in_flight"]), bytes(command["size"])
    warm = time.perf_counter() + command["warm_ms"] / 1000
    end = warm + command["run_ms"] / 1000
    counts = {"sent": 0, "errors": 0}

    def settle(future) -> None:
        window.release()
        if future.exception():
            counts["errors"] += 1
        elif warm <= time.perf_counter() < end:
            counts["sent"] += 1

    while time.perf_counter() < end:
        window.acquire()
        message = Message()
        message.topic, message.body = command["topic"], body
        producer.send_async(message).add_done_callback(settle)
    for _ in range(command["in_flight"]):
        window.acquire()
    producer.shutdown()
    return {"count": counts["sent"], "seconds": end - warm, "errors": counts["errors"]}


def receive(configuration: ClientConfiguration, tls: bool, command: dict) -> dict:
    """Receive 32 at a time and acknowledge each, with at most ``in_flight`` acknowledgements open."""
    consumer = SimpleConsumer(
        configuration,
        command["group"],
        {command["topic"]: FilterExpression()},
        await_duration=5,
        tls_enable=tls,
    )
    consumer.startup()
    time.sleep(2)  # a proxy of 5.3.3 fails receives that come before the settings
    times: list[float] = []
    errors: list[Exception] = []

    def ack(
        message: Message,
    ) -> None:  # ack_async of this client returns nothing that could be waited for
        try:
            consumer.ack(message)
        except Exception as error:  # noqa: BLE001  counted
            errors.append(error)
        times.append(time.perf_counter())
        window.release()

    window, taken = threading.Semaphore(command["in_flight"]), 0
    with ThreadPoolExecutor(command["in_flight"]) as pool:
        while taken < command["count"]:
            for message in consumer.receive(32, 60):
                window.acquire()
                pool.submit(ack, message)
                taken += 1
    consumer.shutdown()
    measured = times[len(times) // 5 :]
    return {
        "count": len(measured) - 1,
        "seconds": measured[-1] - measured[0],
        "errors": len(errors),
    }
