"""Tools for a store directory that nobody has to be running: dump it, examine it.

The directory is recovered in memory first, as the writer would at its next start, and never written
to; reading it needs no more than permission to read. It may be a broker's.
"""

from __future__ import annotations

from storage.offline.doctor import doctor
from storage.offline.dump import dump
from storage.offline.opened import OfflineStore, open_offline

__all__ = ["OfflineStore", "doctor", "dump", "open_offline"]
