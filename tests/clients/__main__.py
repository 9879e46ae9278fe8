"""``make clients-test``: RocketMQ 5's official clients, as their registries have them, against Penstock.

``REFERENCE=1`` runs the same scenarios beside a real RocketMQ 5.3.3 with its proxy.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [
    str(HERE.parent / "support"),
    str(HERE.parent / "support" / "service_support"),
    str(HERE.parents[1]),
]

from catalogue import ACCOUNTS, SCENARIOS, SPLIT, TLS  # noqa: E402
from languages import LANGUAGES  # noqa: E402
from matrix import RED, Servers, print_matrix, run_cells  # noqa: E402
from rates import compare  # noqa: E402
from servers import MakeServer, PenstockServer, ReferenceServer  # noqa: E402


def parsed() -> argparse.Namespace:
    """Return what the command line asks for."""
    options = argparse.ArgumentParser(prog="clients-test", description=__doc__)
    options.add_argument(
        "--clients", default="", help="names with spaces between; default: all whose tools are here"
    )
    options.add_argument(
        "--scenarios", default="", help="names with spaces between; default: all that are not slow"
    )
    options.add_argument("--slow", action="store_true", help="also the slow ones")
    options.add_argument(
        "--reference", action="store_true", help="also against a real RocketMQ 5.3.3"
    )
    options.add_argument("--only-reference", action="store_true", help="against that alone")
    options.add_argument(
        "--split",
        action="store_true",
        help="with split routes: clients that honour them call the writer and the reader",
    )
    options.add_argument(
        "--secure", action="store_true", help="all of it over TLS, with accounts and credentials"
    )
    options.add_argument("--at-once", type=int, default=6, help="cells that run at once")
    options.add_argument(
        "--bench",
        type=int,
        default=0,
        metavar="ROUNDS",
        help="measure rates in so many rounds instead",
    )
    options.add_argument("--seconds", type=float, default=10, help="of a measured window")
    options.add_argument("--keep", action="store_true", help="keep stores and logs")
    return options.parse_args()


def main() -> int:
    """Install, run, print; 1 if a cell that has to be green is not."""
    options = parsed()
    names = options.clients.split() or [
        name for name, language in LANGUAGES.items() if language.available()
    ]
    languages = [LANGUAGES[name] for name in names]
    wanted = options.scenarios.split()
    scenarios = [
        s
        for s in SCENARIOS.values()
        if s.name in wanted or (not wanted and (options.slow or not s.slow))
    ]
    for language in languages:
        began = time.monotonic()
        language.install()
        if time.monotonic() - began > 1:
            print(
                f"installed {language.name} {language.version} in {time.monotonic() - began:.0f} s",
                flush=True,
            )
    folder = Path(tempfile.mkdtemp(prefix="clients-test-"))

    def penstock(name: str, flags: dict[str, str]) -> PenstockServer:
        home = fresh(folder / "penstock" / name)
        real = {flag: value for flag, value in flags.items() if flag not in (SPLIT, TLS, ACCOUNTS)}
        return PenstockServer(
            home,
            real,
            split=options.split or SPLIT in flags,
            tls=options.secure or TLS in flags,
            accounts=options.secure or ACCOUNTS in flags,
        )

    def reference(name: str, _flags: dict[str, str]) -> ReferenceServer:
        return ReferenceServer(fresh(folder / "rocketmq" / name))

    makers: dict[str, MakeServer] = {}
    if not options.only_reference:
        makers["penstock"] = penstock
    if options.reference or options.only_reference:
        ReferenceServer.install()
        makers["rocketmq"] = reference
    if options.bench:
        compare(makers, names, options.bench, options.seconds, folder)
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    cells = []
    for name, make in makers.items():
        with Servers(make) as servers:
            cells += run_cells(
                servers, languages, scenarios, fresh(folder / name / "cells"), options.at_once
            )
    print_matrix(cells, scenarios)
    failed = [cell for cell in cells if cell.result == RED]
    if failed or options.keep:
        print(f"stores and logs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


def fresh(folder: Path) -> Path:
    """Make a directory and return it."""
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    raise SystemExit(main())
