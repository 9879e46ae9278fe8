"""For tests: a disk whose power can be cut at any step, and clocks and background work that a test drives.

=====================  ====================================================================================
``SimulatedDisk``      the ``filesystem`` of a store: counts steps, fails them, is killed or cut off at one
``ProcessStopped``     what each step raises from there on
``every_stop``         runs work again and again, stopped at its first step, its second, ...
``SteppedWorkers``     the ``workers`` of a store: no threads, a step where a test makes one
``SteppedClock``       the ``clock`` of a store: time passes by looking at it
``free_stopped_stores``  for tests that stop hundreds of stores
=====================  ====================================================================================

``docs/testing.md`` has an example. What is simulated of a disk, ``storage.testing.disk`` says.
"""

from storage.testing.clock import SteppedClock
from storage.testing.disk import ProcessStopped, SimulatedDisk, free_stopped_stores
from storage.testing.stops import StoppedRun, every_stop
from storage.testing.workers import SteppedWorkers

__all__ = [
    "ProcessStopped",
    "SimulatedDisk",
    "SteppedClock",
    "SteppedWorkers",
    "StoppedRun",
    "every_stop",
    "free_stopped_stores",
]
