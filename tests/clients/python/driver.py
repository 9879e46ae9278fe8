"""Runs the official Python client by commands: one JSON object a line in, one a line out.

Every language has such a driver, and all know the same commands: README.md of this directory's parent lists them.
"""

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

import bench

ADDRESS, TLS = sys.argv[1], sys.argv[2] == "tls"
PATTERN = bytes(i % 251 for i in range(251))
out_lock = threading.Lock()
clients: dict = {}
taken: dict = {}


def say(value: dict) -> None:
    with out_lock:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


def pattern(size: int) -> bytes:
    return (PATTERN * (size // 251 + 1))[:size]


def configuration() -> ClientConfiguration:
    keys = os.environ["DRIVER_ACCESS_KEY"], os.environ["DRIVER_SECRET_KEY"]
    return ClientConfiguration(ADDRESS, Credentials(*keys))


def described(message: Message) -> dict:
    body = bytes(message.body)
    found = {
        "id": message.message_id,
        "topic": message.topic,
        "size": len(body),
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "message_group": message.message_group,
        "attempt": message.delivery_attempt,
        "born_ms": message.born_timestamp and int(message.born_timestamp),
    }
    if len(body) <= 1000:
        found["body"] = body.decode()
    else:
        found["pattern"] = body == pattern(len(body))
    return found


def subscription(command: dict) -> dict:
    wanted = command.get("filter", {})
    if "sql" in wanted:
        return {command["topic"]: FilterExpression(wanted["sql"], FilterType.SQL)}
    return {command["topic"]: FilterExpression(wanted.get("tag", "*"))}


class Listener(MessageListener):
    """Fails and sleeps as the message's own properties ask for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: dict = {}
        self.lock = threading.Lock()

    def consume(self, message: Message) -> ConsumeResult:
        with self.lock:
            call = self.calls[message.message_id] = self.calls.get(message.message_id, 0) + 1
        say({"event": "call", "name": self.name, "call": call, "message": described(message)})
        time.sleep(int(message.properties.get("sleep_ms", 0)) / 1000)
        good = call > int(message.properties.get("fail_times", 0))
        say(
            {
                "event": "return",
                "name": self.name,
                "call": call,
                "id": message.message_id,
                "ok": good,
            }
        )
        return ConsumeResult.SUCCESS if good else ConsumeResult.FAILURE


class Checker(TransactionChecker):
    """Decides about an orphaned transaction as the message's own property says."""

    def check(self, message: Message) -> TransactionResolution:
        return TransactionResolution.Value(message.properties.get("checked", "ROLLBACK"))


def start(command: dict) -> dict:
    kind, name = command["kind"], command["name"]
    if kind == "producer":
        checker = Checker() if command.get("checks") else None
        client = Producer(configuration(), (command["topic"],), checker, tls_enable=TLS)
    elif kind == "simple":
        client = SimpleConsumer(
            configuration(),
            command["group"],
            subscription(command),
            await_duration=command.get("await_ms", 5000) // 1000,
            tls_enable=TLS,
        )
    else:
        client = PushConsumer(
            configuration(),
            command["group"],
            Listener(name),
            subscription(command),
            consumption_thread_count=command.get("threads", 20),
            tls_enable=TLS,
        )
    client.startup()
    clients[name] = client
    return {}


def outgoing(wanted: dict) -> Message:
    message = Message()
    message.topic = wanted["topic"]
    message.body = pattern(wanted["size"]) if "size" in wanted else wanted["body"].encode()
    if "tag" in wanted:
        message.tag = wanted["tag"]
    for key in wanted.get("keys", []):
        message.keys = key
    if "message_group" in wanted:
        message.message_group = wanted["message_group"]
    if "deliver_ms" in wanted:
        message.delivery_timestamp = -(-wanted["deliver_ms"] // 1000)  # whole seconds
    for key, value in wanted.get("properties", {}).items():
        message.add_property(key, value)
    return message


def send(command: dict) -> dict:
    producer = clients[command["name"]]
    receipts = [producer.send(outgoing(wanted)) for wanted in command["messages"]]
    return {
        "ids": [receipt.message_id for receipt in receipts],
        "recall_handles": [receipt.recall_handle for receipt in receipts],
    }


def recall(command: dict) -> dict:
    producer = clients[command["name"]]
    return {"message_id": producer.recall_message(command["topic"], command["recall_handle"])}


def send_transaction(command: dict) -> dict:
    producer = clients[command["name"]]
    transaction = producer.begin_transaction()
    sent = producer.send(outgoing(command["message"]), transaction)
    if command["end"] == "commit":
        transaction.commit()
    elif command["end"] == "rollback":
        transaction.rollback()
    return {"ids": [sent.message_id]}


def receive(command: dict) -> dict:
    messages = clients[command["name"]].receive(command["max"], command["invisible_ms"] // 1000)
    found = []
    for message in messages:
        ref = len(taken)
        taken[ref] = message
        found.append({**described(message), "ref": ref})
    return {"messages": found}


def ack(command: dict) -> dict:
    clients[command["name"]].ack(taken[command["ref"]])
    return {}


def change(command: dict) -> dict:
    seconds = command["invisible_ms"] // 1000
    clients[command["name"]].change_invisible_duration(taken[command["ref"]], seconds)
    return {}


def stop(command: dict) -> dict:
    clients.pop(command["name"]).shutdown()
    return {}


def bench_send(command: dict) -> dict:
    return bench.send(configuration(), TLS, command)


def bench_receive(command: dict) -> dict:
    return bench.receive(configuration(), TLS, command)


COMMANDS = {
    "start": start,
    "send": send,
    "send_transaction": send_transaction,
    "recall": recall,
    "receive": receive,
    "ack": ack,
    "change": change,
    "stop": stop,
    "bench_send": bench_send,
    "bench_receive": bench_receive,
}


def answer(command: dict) -> None:
    try:
        say({"id": command["id"], **COMMANDS[command["do"]](command)})
    except Exception as error:  # noqa: BLE001  the harness judges it
        code = getattr(error, "code", None)
        say(
            {
                "id": command["id"],
                "error": f"{type(error).__name__}: {error}",
                "code": code if isinstance(code, int) else None,
            }
        )


def main() -> None:
    with ThreadPoolExecutor(32) as pool:
        for line in sys.stdin:
            pool.submit(answer, json.loads(line))
        os._exit(0)


main()
