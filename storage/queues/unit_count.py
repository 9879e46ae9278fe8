"""How many units the files of all queues hold, held against how many the checkpoint says were durable."""

from __future__ import annotations

from typing import NamedTuple


class UnitCount(NamedTuple):
    """How many units queue files hold.

    ``expired`` of them are in files that retention deletes, each with ``file_units``.
    """

    units: int
    expired: int = 0
    file_units: int = 1

    def agrees(self, durable_count: int) -> bool:
        """Return whether files hold what was durable: all of it, or all but some whole files being deleted.

        Units leave the durable count some queues at a time, before their files go. So the files may hold more
        than the count, by whole expired files; never less, and never more by anything else: a file
        that lost its end or is missing makes them hold less.
        """
        more = self.units - durable_count
        return 0 <= more <= self.expired and more % self.file_units == 0
