"""The methods of penstock.v1.Settings: they show and change what a process logs, until its next start."""

from __future__ import annotations

from typing import Final

from penstock.v1 import settings_pb2 as pb
from services.rpc.running_settings import Logged, RunningSettings
from services.rpc.server import Contract
from services.rpc.servicer import Context

SETTINGS: Final = pb.DESCRIPTOR.services_by_name["Settings"]


class SettingsServicer:
    """Serves what is in force in its process."""

    def __init__(self, running: RunningSettings) -> None:
        self._running = running

    async def get_settings(
        self, _request: pb.GetSettingsRequest, _context: Context
    ) -> pb.RunningSettings:
        """Return what is in force."""
        return pb.RunningSettings(**self._running.logged._asdict())

    async def update_settings(
        self, request: pb.UpdateSettingsRequest, _context: Context
    ) -> pb.RunningSettings:
        """Change what is given."""
        given = {name: getattr(request, name) for name in Logged._fields if request.HasField(name)}
        self._running.change(self._running.logged._replace(**given))
        return pb.RunningSettings(**self._running.logged._asdict())


def settings_contract(running: RunningSettings) -> Contract:
    """Return the contract for a port."""
    return Contract(SETTINGS, SettingsServicer(running))
