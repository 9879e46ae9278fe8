"""What TLS and accounts cost: the same load on a secured store and on a plain one, in turn.

``python -m bench.secure``. Streams are bursts, where no device is waited for; the unary call is a Produce of
one message. Each service is a process of its own, and the client shares the two cores with them.
"""

from __future__ import annotations

import ipaddress
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
from cryptography import x509

from bench import drivers, produce
from bench.controls import echo
from bench.figures import Figure, command
from cli.trial_authority import TrialAuthority
from penstock.credentials import Credentials
from penstock.tls import TLS
from penstock.v1 import reader_pb2, writer_pb2
from services import loops
from storage.accounts.account_table import AccountTable
from storage.accounts.rules import UserKind, checked_policy
from storage.files.filesystem import FileSystem

PULLED_FRAMES: Final = 4_000
CALLS: Final = 5_000
PULLED_BYTES: Final = 64 << 20


class SignedChannel:
    """A channel whose calls carry credentials."""

    def __init__(self, channel: grpc.aio.Channel, credentials: Credentials) -> None:
        self._channel = channel
        self._metadata = credentials.metadata()

    def __getattr__(self, kind: str) -> Any:
        make = getattr(self._channel, kind)
        return lambda method, *_, **__: partial(make(method), metadata=self._metadata)


class ServedStore(NamedTuple):
    """Where a store is served, and how it is called."""

    writer: str
    reader: str
    tls: TLS | None
    credentials: Credentials | None

    def channel(self, address: str) -> AbstractAsyncContextManager[grpc.aio.Channel]:
        """Return a channel, without credentials."""
        if self.tls is None:
            return grpc.aio.insecure_channel(address, drivers.CLIENT_OPTIONS)
        return grpc.aio.secure_channel(address, self.tls.credentials(), drivers.CLIENT_OPTIONS)

    def signing(self, channel: grpc.aio.Channel) -> Any:
        """Return the channel as it is called."""
        return channel if self.credentials is None else SignedChannel(channel, self.credentials)


@contextmanager
def stores(
    *, tls: bool = False, accounts: bool = False
) -> Iterator[tuple[ServedStore, ServedStore]]:
    """Run a writer and a reader over a secured store, and others over a plain one."""
    with ExitStack() as stack:
        yield store(stack, tls=tls, accounts=accounts), store(stack)


def store(stack: ExitStack, *, tls: bool = False, accounts: bool = False) -> ServedStore:
    """Run a writer and a reader over a store of their own until ``stack`` closes."""
    home = stack.enter_context(drivers.scratch_store())
    flags: list[str] = []
    authority, credentials = None, None
    if tls:
        files = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        TrialAuthority.of(files).certify("server", "server", names=here, days=1)
        flags += [f"--tls-cert={files}/server.pem", f"--tls-key={files}/server.key"]
        flags += [f"--tls-ca={files}/ca.pem"]
        authority = TLS(ca=files / "ca.pem")
    if accounts:
        credentials = _user(home)
        flags += ["--accounts"]
    writer, _ = stack.enter_context(
        drivers.service("writer", home, *produce.BURSTS, *produce.COLD, *flags)
    )
    reader, _ = stack.enter_context(drivers.service("reader", home, *flags))
    return ServedStore(writer, reader, authority, credentials)


def _user(home: Path) -> Credentials:
    """Make a user with what the load needs, by policies: a super user is asked for none."""
    table = AccountTable(FileSystem(), home / "config")
    secret = table.create_user("load", UserKind.NORMAL).secrets[0]
    table.put_policy(
        checked_policy(user="load", resource="Topic:*", actions=["Pub", "Sub", "Create"])
    )
    return Credentials("load", secret)


async def measure(
    secured: ServedStore, plain: ServedStore, what: str, wanted: float, rounds: int
) -> Figure:
    """Time one kind of load on both: ``produce``, ``pull`` or ``call``."""
    name = "reader" if what == "pull" else "writer"
    async with (
        secured.channel(secured.writer) as to_secured,
        plain.channel(plain.writer) as to_plain,
        secured.channel(getattr(secured, name)) as ours,
        plain.channel(getattr(plain, name)) as theirs,
    ):
        for store, channel in ((secured, to_secured), (plain, to_plain)):
            await _fill(store.signing(channel), PULLED_FRAMES if what == "pull" else 0)
        return await drivers.alternate(
            f"{_TITLES[what]}, {_what(secured)}",
            "MiB/s" if what == "pull" else "msg/s",
            wanted,
            partial(_LOADS[what], secured.signing(ours)),
            partial(_LOADS[what], plain.signing(theirs)),
            rounds=rounds,
            limit_name="plaintext without accounts",
        )


async def _fill(channel: Any, frames: int) -> None:
    create = channel.unary_unary("/penstock.v1.Writer/CreateTopic")
    request = writer_pb2.CreateTopicRequest(name=produce.TOPIC, queue_count=produce.QUEUES)
    try:
        await create(request.SerializeToString())
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise
    if frames:
        requests = islice(cycle(produce.batches(produce.BODY_BYTES)), frames)
        await drivers.time_sink(channel, produce.STREAM, requests, in_flight=produce.IN_FLIGHT)


async def _produce(channel: Any) -> drivers.Rate:
    burst = islice(cycle(produce.batches()), produce.FRAMES)
    return await drivers.time_sink(channel, produce.STREAM, burst, in_flight=produce.IN_FLIGHT)


async def _pull(channel: Any) -> drivers.Rate:
    request = reader_pb2.PullStreamRequest(topic=produce.TOPIC, max_bytes=echo.RESPONSE_BYTES)
    return await drivers.time_source(
        channel,
        "/penstock.v1.Reader/PullStream",
        request.SerializeToString(),
        at_least=PULLED_BYTES >> 2,
    )


async def _call(channel: Any) -> drivers.Rate:
    requests = islice(cycle([produce.message()]), CALLS)
    return await drivers.time_unary(channel, produce.UNARY, requests, in_flight=produce.IN_FLIGHT)


_LOADS: Final = {"produce": _produce, "pull": _pull, "call": _call}
_TITLES: Final = {
    "produce": "produce stream, burst",
    "pull": "pull stream, 1 MiB responses",
    "call": "produce, one message a call, 64 in flight",
}


def _what(store: ServedStore) -> str:
    return " and ".join(
        word for word, is_there in (("TLS", store.tls), ("accounts", store.credentials)) if is_there
    )


def run(*, rounds: int = 5) -> list[Figure]:
    """Measure TLS alone, and accounts alone."""
    figures = []
    with stores(tls=True) as (secured, plain):
        for what, wanted in (("produce", 0.6), ("pull", 0.7)):
            figures.append(loops.run(measure(secured, plain, what, wanted, rounds)))
    with stores(accounts=True) as (secured, plain):
        for what, wanted in (("produce", 0.9), ("call", 0.9)):
            figures.append(loops.run(measure(secured, plain, what, wanted, rounds)))
    return figures


if __name__ == "__main__":
    command(run)
