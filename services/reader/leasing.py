"""What serves leases and groups, put together: the leases, their thread, receives that wait, dead letters."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from services.arrivals import Arrivals
from services.config.settings import ReaderSettings
from services.reader.calls_in_turn import CallsInTurn
from services.reader.catch_up import CatchUp
from services.reader.dead_letters import DeadLetterCalls
from services.reader.group_servicer import GroupServicer
from services.reader.lease_servicer import LeaseServicer
from services.reader.leases import ReaderLeases
from services.reader.message_tracks import MessageTracks
from services.reader.receives import Receives
from services.reader.traffic import Traffic
from services.upstream import ServiceAddress
from storage.leases.upkeep import LeaseUpkeep
from storage.reader import StoreReader


class Leasing:
    """``servicer`` and ``groups`` are the servicers of both contracts; used on the event loop."""

    def __init__(
        self,
        reader: StoreReader,
        settings: ReaderSettings,
        writer: ServiceAddress,
        arrivals: Arrivals,
        catch_up: CatchUp,
        reads: Executor,
        draining: asyncio.Event,
        traffic: Traffic,
    ) -> None:
        leases = self.leases = ReaderLeases(
            reader, config=settings.lease_config(), auto_create_groups=settings.auto_create_groups
        )
        self._upkeep = LeaseUpkeep(leases)
        self._calls = CallsInTurn(
            "leasing",
            always_in_thread=settings.lease_sync_interval_ms == 0,  # each call waits for the disk
            may_wait=lambda: leases.may_wait,
        )
        self._dead_letters = DeadLetterCalls(writer, leases, self._calls)
        self._receives = Receives(leases, self._calls, arrivals, self._dead_letters.send)
        self._loop = asyncio.get_running_loop()
        leases.add_listener(self._due_earlier)
        self._upkeep.start()
        self.servicer = LeaseServicer(
            leases,
            self._calls,
            self._receives,
            self._dead_letters,
            catch_up,
            MessageTracks(reader, leases),
            reads,
            draining,
            bytes_max=settings.pull_bytes_max,
            wait_ms_max=settings.wait_ms_max,
            traffic=traffic,
        )
        self.groups = GroupServicer(reader, leases, catch_up, self._receives.wake, reads)

    @property
    def waiting_count(self) -> int:
        """How many receives wait; from any thread."""
        return self._receives.waiting_count

    def _due_earlier(self, group: str, topic: str) -> None:
        self._loop.call_soon_threadsafe(self._receives.wake, group, topic)

    def end_waits(self) -> None:
        """Answer all receives that wait."""
        self._receives.close()

    async def close(self) -> None:
        """Save groups' offsets and leases, after what is under way."""
        self._receives.close()
        await self._dead_letters.close()
        await asyncio.to_thread(self._calls.close)
        await asyncio.to_thread(self._upkeep.stop)
        await asyncio.to_thread(self.leases.close)
