"""Tools for a store directory that nobody has to be running: dump it, examine it.

They show the directory as it is and never write to it; reading it needs no more than permission to read. It
may be a broker's.
"""

from __future__ import annotations

from storage.offline.doctor import doctor
from storage.offline.dump import dump
from storage.offline.opened import OfflineStore, open_offline

__all__ = ["OfflineStore", "doctor", "dump", "open_offline"]
