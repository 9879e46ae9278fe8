"""What happens to running services: several are killed at once, calls below one fail, their file system fills up."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from failing_calls import FailingCall, FailingCalls
from fault_ledger import Ledger, require
from loop_mount import LoopMount
from real_processes import until
from service_checks import finish, require_documented, require_kept
from service_load import ServiceLoad
from service_trio import SERVICES, Defects, Flags, ServiceTrio

from penstock import Client

TOGETHER = (("writer", "reader"), ("writer", "indexer"), SERVICES)
POOL: Flags = {
    "transient-pool": None, "transient-pool-size": "3", "transient-pool-directory": "",
    "commit-interval-ms": "1000",  # so that a kill meets records that only the pool holds
}  # fmt: skip
MODES: Mapping[str, Flags] = {
    "async": {"flush-mode": "async"},
    "sync": {"flush-mode": "sync"},
    "async, pool": {"flush-mode": "async", **POOL},
    "sync, pool": {"flush-mode": "sync", **POOL},
}
FAIL_FOR_S = 2.0
AGAIN_S = 60.0  # until producing works again on a disk that has space; machines are busy


def flags_of(mode: str, root: Path) -> dict[str, str | None]:
    """Return the writer's flags in a mode; its pool lies below a directory."""
    flags = dict(MODES[mode])
    if "transient-pool" in flags:
        pool = root / "pool"
        pool.mkdir(parents=True, exist_ok=True)
        flags["transient-pool-directory"] = str(pool)
    return flags


def kill_together(
    root: Path, mode: str, kills: int, dice: random.Random, *, defects: Defects | None = None
) -> tuple[Counter[str], int]:
    """Kill two or three services at once, so often; return which, and how many records were acknowledged."""
    killed: Counter[str] = Counter()
    with ServiceTrio(root / "store", flags_of(mode, root), defects=defects) as trio:
        load = ServiceLoad(trio.addresses, Ledger()).start()
        load.goes_on()
        for _ in range(kills):
            time.sleep(dice.random() * 0.5)
            names = dice.choice(TOGETHER)
            trio.kill(names)
            trio.launch(names)
            if dice.random() < 0.3:  # once more, while they recover
                time.sleep(dice.random() * 2)
                trio.kill(names)
                trio.launch(names)
            trio.wait_serving(names)
            load.goes_on()
            killed[" and ".join(names)] += 1
        finish(trio, load)
    assert load.consumed
    return killed, load.acknowledged


def fail_under_load(
    root: Path, service: str, mode: str, failing: FailingCall, *, at_start: bool = False,
    defects: Defects | None = None,
) -> tuple[Counter[str], list[str]]:  # fmt: skip
    """Have calls of a service fail for a while; return the statuses that callers got, and the calls."""
    store, calls = root / "store", FailingCalls(root)
    flags = flags_of(mode, root) | {"flush-interval-ms": "50"}
    with ServiceTrio(store, flags, defects=defects) as trio:
        load = ServiceLoad(trio.addresses, Ledger(), body_bytes=4000).start()
        load.goes_on()
        trio.kill([service])
        trio.environments[service] = calls.environment_of(store, failing)
        if at_start:
            calls.switch_on()
            trio.launch([service])
        else:
            trio.start([service])
            load.goes_on()
            calls.switch_on()
        time.sleep(FAIL_FOR_S)
        calls.switch_off()
        has_ended = trio.reap()
        require_no_answer_after_a_failed_sync(load, calls.failed(), has_ended)
        if failing.goes_by and not at_start:
            require(not has_ended, f"a service ends for want of room: {trio.output()[-2000:]}")
            load.goes_on(seconds=AGAIN_S)
        trio.environments.clear()
        trio.kill(trio.running.keys() & {service})
        trio.start([service])
        load.goes_on()
        finish(trio, load)
    return Counter(code.name for _, code in load.codes.elements()), calls.failed()


def require_no_answer_after_a_failed_sync(
    load: ServiceLoad, failed: list[str], has_ended: list[str]
) -> None:
    """Raise FaultFound if a writer goes on after a sync of its log has failed."""
    if not any(line.startswith("fdatasync") and "/commitlog/" in line for line in failed):
        return
    stored = load.acknowledged
    time.sleep(0.5)
    refused = {code.name for _, code in load.codes}
    require(
        has_ended or "FAILED_PRECONDITION" in refused or load.acknowledged == stored,
        f"a writer goes on after a failed sync: {failed[:3]}, {refused}",
    )


def cut_under_services(mount: LoopMount, root: Path, mode: str) -> tuple[int, int]:
    """Cut the power of all services in a sync mode; return how many answers came before, and how many later."""
    trio = ServiceTrio(mount.path / "store", flags_of(mode, root))
    with trio:
        load = ServiceLoad(trio.addresses, Ledger()).start()
        load.goes_on(50)
        before = load.ledger.as_of_now()
        mount.cut()
        time.sleep(0.05)
        trio.kill(SERVICES)
        load.stop()
        require_documented(trio, load)
        before.admit(load.ledger)
        mount.unmount()
        mount.mount()
        for buffer in (root / "pool").glob("*"):
            buffer.unlink()  # it was in memory
        trio.start()
        with Client(**trio.addresses, timeout_s=60) as client:
            client.wait_indexed(client.writer_status().appended_offset, timeout_s=60)
        trio.stop()
    require_kept(trio.store, before)
    return len(before.entries), load.acknowledged - len(before.entries)


def fill_up(load: ServiceLoad, ballast: Path, dice: random.Random) -> float:
    """Fill a disk until producers are refused, see a consumer go on, make space; return how long that is not used."""
    until(lambda: bool(load.consumed))  # a queue without its first file has nothing for a consumer
    take_all_space(ballast)
    _wait_until_refused(load)
    if dice.random() < 0.5:
        take_all_space(ballast)
    consumed = load.consumed
    load.read_again()
    until(lambda: load.consumed > consumed)
    time.sleep(dice.random())
    ballast.unlink()
    return load.goes_on(seconds=AGAIN_S)


def take_all_space(ballast: Path) -> None:
    """Fill the file system, to its last block but for what others write meanwhile."""
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def _wait_until_refused(load: ServiceLoad) -> None:
    """Wait until nothing is stored any more: small messages still fit into a file after large ones do not."""
    stored, before = -1, load.full
    until_s = time.monotonic() + 60
    while load.full == before or load.acknowledged > stored:
        stored = load.acknowledged
        time.sleep(1)
        assert time.monotonic() < until_s, "it is never full"
