"""The services on this machine for as long as somebody needs them, as one child process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAMES: Final = ("writer", "reader", "indexer")
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0
_POLL_SECONDS: Final = 0.02
# Linux signals this process when the one that started it ends, however that is (PR_SET_PDEATHSIG).
_WITH_PARENT: Final = (
    "import ctypes, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM); "
    "from services.supervisor import main; sys.exit(main(sys.argv[1:]))"
)
_SERVING: Final = re.compile(
    r"^penstock: (writer|reader|indexer|gateway|metrics) serves on (\S+)", re.MULTILINE
)


class ServicesNotStarted(OSError):
    """`penstock serve` ended, or did not serve in time; the text has its last line."""


@dataclass(slots=True)
class LocalServices:
    """``penstock serve`` in a session of its own, so that Ctrl-C reaches only who started it."""

    process: subprocess.Popen[bytes]
    addresses: Mapping[str, str]
    log: Path

    @classmethod
    def start(
        cls,
        store: Path,
        log: Path,
        *,
        options: Sequence[str] = (),
        addresses: Mapping[str, str],
        stay: bool = False,
    ) -> LocalServices:
        """Start the services and return once they serve; their output goes to ``log``.

        ``addresses`` are those to listen on, by service; without one for it there is no gateway, and there are no metrics. The services stop
        when this thread ends, also if its process is killed, unless they are to ``stay``. Raises ServicesNotStarted.
        """
        listens = [
            f"--{name}-listen={address}"
            for name, address in {"gateway": "none", "metrics": "none", **addresses}.items()
        ]
        program = ("-m", "services.supervisor") if stay else ("-c", _WITH_PARENT)
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  our own program
                [sys.executable, *program, f"--store={store}", *listens, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        services = cls(process, addresses, log)
        try:
            services._wait_until_serving()
        except BaseException:
            services.stop()
            raise
        return services

    def _wait_until_serving(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            text = self.log.read_text(errors="replace")
            found = dict(_SERVING.findall(text))
            if found.keys() >= self.addresses.keys():
                self.addresses = found
                return
            if self.process.poll() is not None:
                last = text.strip().splitlines()[-1:] or ["no output"]
                raise ServicesNotStarted(f"the services did not start: {last[0]}")
            time.sleep(_POLL_SECONDS)
        last = self.log.read_text(errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise ServicesNotStarted(
            f"the services did not start in {START_SECONDS_MAX:.0f} s: {last[0]}"
        )

    def stop(self) -> None:
        """Drain and stop; kill what does not stop by itself."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
