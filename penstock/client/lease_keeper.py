"""Keeps the leases of a subscription, and sends what became of its messages."""

from __future__ import annotations

import contextlib
import logging
from typing import Final

from penstock.calls import leases
from penstock.calls.call import Call
from penstock.client.connection import ConnectionCore
from penstock.client_ids import new_client_id
from penstock.consuming.options import SubscribeOptions
from penstock.consuming.outcomes import Outcomes, SettledHandles, Settlement
from penstock.errors import (
    Cancelled,
    ClientClosed,
    DeadlineExceeded,
    PenstockError,
    ResourceExhausted,
    Unavailable,
)

_log = logging.getLogger(__name__)
_LINGER_S: Final = 0.005
_PASSING: Final = (Unavailable, Cancelled, DeadlineExceeded, ResourceExhausted)


class LeaseKeeper:
    """Renews leases three times as often as they end, and sends outcomes as they come.

    It outlives its subscription for a moment: it then sends the outcomes of settled messages and ends all
    other leases. The leases of a receive whose answer was lost must end too, so later receives use another
    client id; the former one is renewed until its messages are settled.
    """

    def __init__(self, client: ConnectionCore, options: SubscribeOptions) -> None:
        self.client_id = new_client_id()
        self.background = client.form.background("penstock-leases")
        self.outcomes = Outcomes(self.background.wake)
        self._client = client
        self._options = options
        self._renew_at = 0.0
        # How many outcomes have to be sent before each is released; None: some of its messages are not settled.
        self._former_ids: dict[str, int | None] = {}

    def answer_lost(self, client_id: str) -> None:
        """Note that a receive for a client id may have leased messages that did not arrive."""
        if client_id == self.client_id:
            self._former_ids[client_id] = None
            self.client_id = new_client_id()
            self.background.wake()

    def start(self) -> None:
        """Start keeping, unless it has started."""
        self.background.start(self._keep)

    async def _keep(self) -> None:
        with contextlib.suppress(ClientClosed):  # leases then end by themselves
            await self._keep_until_stopped()
            await self._send_outcomes()
            ids = [self.client_id, *self._former_ids]
            await self._try(leases.release(ids, self._options.group))

    async def _keep_until_stopped(self) -> None:
        monotonic = self._client.clock.monotonic
        self._renew_at = monotonic() + self._renews_every_s
        while not self.background.is_stopping:
            await self.background.pause(max(0.001, self._renew_at - monotonic()))
            if self.outcomes and not self.background.is_stopping:
                await self._client.channels.pause(_LINGER_S)
            if not await self._send_outcomes():
                await self._client.channels.pause(self._client.retry.first_delay_ms / 1000)
            await self._renew_when_due()
            await self._release_former()

    @property
    def _renews_every_s(self) -> float:
        return self._options.lease_ms / 3000

    async def _renew_when_due(self) -> None:
        now = self._client.clock.monotonic()
        if now >= self._renew_at:
            self._renew_at = now + self._renews_every_s
            await self._try(leases.renew([self.client_id, *self._former_ids]))

    async def _release_former(self) -> None:
        """End the leases of former client ids whose messages did not arrive."""
        done = []
        for each, sent_count in list(self._former_ids.items()):  # another thread may add one
            if sent_count is None and not self.outcomes.unsettled(each):
                sent_count = self._former_ids[each] = self.outcomes.added_count
            if sent_count is not None and self.outcomes.sent_count >= sent_count:
                done.append(each)
        if done and await self._try(leases.release(done, self._options.group)):
            for each in done:
                del self._former_ids[each]

    async def _send_outcomes(self) -> bool:
        """Send all that wait; False if some could not be sent and wait again.

        They may come as fast as they are sent: leases are kept between.
        """
        while self.outcomes:
            unsent = []
            for settlement, settled in self.outcomes.take().items():
                if await self._send(settlement, settled):
                    self.outcomes.sent_count += settled.message_count
                else:
                    unsent.append((settlement, settled))
                await self._renew_when_due()
            for settlement, settled in unsent:
                self.outcomes.put_back(settlement, settled)
            if unsent:
                self.background.wake()
                return False
            await self._release_former()
        return True

    async def _send(self, settlement: Settlement, settled: SettledHandles) -> bool:
        """Return whether nothing is left to send of it."""
        action, delay_ms = settlement
        options = self._options
        call = leases.settle(action, options.group, options.topic, settled.handles, delay_ms)
        try:
            refused = await self._client._send(call)
        except _PASSING as error:
            _log.warning("%s %d messages: %s", action, settled.message_count, error)
            return False
        except ClientClosed:
            raise
        except PenstockError as error:
            _log.warning("%s %d messages: %s", action, settled.message_count, error)
            return True
        if refused:
            _log.warning(
                "%s: %d of %d leases had ended before; %s",
                action,
                len(refused),
                settled.message_count,
                refused[0].problem,
            )
        return True

    async def _try(self, call: Call[int]) -> bool:
        try:
            await self._client._send(call)
        except ClientClosed:
            raise
        except PenstockError as error:
            _log.warning("leases of %s: %s", self._options.topic, error)
            return False
        return True
