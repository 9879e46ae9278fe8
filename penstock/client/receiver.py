"""Receives messages ahead for a subscription."""

from __future__ import annotations

import logging
from typing import Final

import grpc

from penstock.calls import leases
from penstock.client.connection import ConnectionCore
from penstock.client.lease_keeper import LeaseKeeper
from penstock.consuming.damaged import damage_error
from penstock.consuming.in_flight import Answered
from penstock.consuming.options import SubscribeOptions
from penstock.consuming.prefetched import Prefetched
from penstock.errors import (
    Cancelled,
    ClientClosed,
    DeadlineExceeded,
    ResourceExhausted,
    Unavailable,
)
from penstock.leased import Received

_log = logging.getLogger(__name__)
_RECEIVED_MAX: Final = 1_024  # messages of one receive
_PASSING: Final = (Unavailable, Cancelled, DeadlineExceeded, ResourceExhausted)


class Receiver:
    """Receives one after the other, while few messages are left of the one before.

    The callback that brings an answer stores it, so an interrupt or a cancellation of the iterator loses
    none.
    """

    def __init__(
        self, client: ConnectionCore, options: SubscribeOptions, keeper: LeaseKeeper
    ) -> None:
        self.prefetched = Prefetched(keeper.outcomes, options.on_damaged)
        self._home = client._home()
        self._client = client
        self._options = options
        self._keeper = keeper
        self._calls = client._in_flight(self._take)
        self._is_receiving = False
        self._starting = ""  # the client id of a receive that is just being sent
        self._failed: Exception | None = None  # to be raised once
        self._failures = 0
        self._failed_at: float | None = None
        self._quiet_since = client.clock.monotonic()
        self.is_stopped = False

    async def has_next(self) -> bool:
        """Wait for a message; False once stopped, or after so long without one. Raises what a receive failed with."""
        self._home.check()
        if self._starting:
            self._mend()
        while not self.is_stopped:
            self._receive()
            if self.prefetched.has_next():
                return True
            if self._failed is not None:
                failed, self._failed = self._failed, None
                raise failed
            now = self._client.clock.monotonic()
            if self._options.idle_s is not None and now - self._quiet_since >= self._options.idle_s:
                return False
            await self._calls.wait(self._patience_s(now))
        return False

    def stop(self) -> None:
        """Receive no more; any thread may say so."""
        self.is_stopped = True
        self._calls.cancel()

    def close(self) -> None:
        """Receive no more, and forget what was received."""
        self.is_stopped = True
        self.prefetched.clear()
        self._calls.cancel()

    def _patience_s(self, now: float) -> float | None:
        waits = []
        if self._options.idle_s is not None:
            waits.append(self._quiet_since + self._options.idle_s - now)
        if not self._is_receiving and self._failed_at is not None:
            waits.append(self._failed_at + self._pause_s() - now)
        return max(0.001, min(waits)) if waits else None

    def _pause_s(self) -> float:
        return self._client.retry.backoff_ms(self._failures) / 1000

    def _mend(self) -> None:
        """Go on after an interrupt while a receive was being sent: whether it was is not known."""
        self._keeper.answer_lost(self._starting)
        self._is_receiving = False
        self._starting = ""

    def _receive(self) -> None:
        """Start a receive, unless half is there, or one is under way, or one failed just now."""
        options = self._options
        if (
            self._is_receiving
            or self._failed is not None
            or self.prefetched.message_count > options.prefetch // 2
            or self.prefetched.size_bytes > options.prefetch_bytes // 2
        ):
            return
        now = self._client.clock.monotonic()
        if self._failed_at is not None and now < self._failed_at + self._pause_s():
            return
        wait_ms = options.wait_ms
        if options.idle_s is not None:
            wait_ms = min(wait_ms, int(options.idle_s * 1000))
        client_id = self._keeper.client_id
        receive = leases.receive(
            options.topic,
            group=options.group,
            max_messages=min(options.prefetch, _RECEIVED_MAX),
            max_bytes=max(1, options.prefetch_bytes // 2),
            lease_ms=options.lease_ms,
            wait_ms=wait_ms,
            tag=options.tag,
            sql=options.sql,
        )
        call = leases.renewed_for(client_id, receive)
        timeout_s = options.timeout_s + wait_ms / 1000
        self._starting, self._is_receiving = client_id, True
        self._calls.start(client_id, call, timeout_s)
        self._starting = ""
        if self.is_stopped:  # `stop` came meanwhile
            self._calls.cancel()

    def _take(self, answered: Answered) -> None:
        """Take in what a receive has brought; the next may be made then."""
        try:
            self._take_in(answered)
        except Exception as error:  # noqa: BLE001  `has_next` raises it
            if not (isinstance(error, ClientClosed) and self.is_stopped):
                self._failed = error
        finally:
            self._is_receiving = False

    def _take_in(self, answered: Answered) -> None:
        client_id, call, outcome, _ = answered
        try:
            if isinstance(outcome, grpc.RpcError):
                raise self._client.error_of(call, outcome) from outcome
            if isinstance(outcome, Exception):
                raise outcome
            received: Received = call.interpret(outcome)
        except _PASSING as error:
            if self._failed_at is None:
                _log.warning("receive of %s: %s", self._options.topic, error)
            if not isinstance(error, ResourceExhausted) and not getattr(
                error, "never_taken", False
            ):
                self._keeper.answer_lost(client_id)
            self._failures += 1
            self._failed_at = self._client.clock.monotonic()
            return
        self._failed_at = None
        self._failures = 0
        if received.records or received.damaged:
            self._quiet_since = self._client.clock.monotonic()
        self._keeper.outcomes.received(client_id, len(received.records))
        self.prefetched.add(received, client_id)
        for damage in received.damaged:
            self.prefetched.add_error(
                damage_error(damage, topic=self._options.topic, queue_id=damage.queue_id)
            )
