"""A stopped store with a ledger beside it, damaged in one place and judged: by a reader, and by a start.

A damage is undone by writing the bytes back, so that thousands take no copy of the store for a reader; a
start, which changes files, has a copy of its own.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from engine_store import small_config
from fault_ledger import EVERYBODY, Ledger, Place, Verdict, judge, judge_rebuilt

from storage import findings
from storage.errors import StoreError
from storage.findings import DAMAGE, WARNING
from storage.format.consume_entry import TAG_CODE_IN_UNIT, UNIT_SIZE
from storage.message import Message
from storage.offline.doctor import doctor
from storage.reader import StoreReader
from storage.store import MessageStore
from storage.testing import SteppedClock, SteppedWorkers, free_stopped_stores

TAGS = ("paid", "open")
CONFIG = small_config(
    commit_log_file_size=1 << 14, consume_queue_file_size=20 * 20, index_slot_count=40,
    index_entry_count=120, warm_ahead_bytes=0, flush_mode="sync",
)  # fmt: skip
LOG_KINDS = {
    findings.LOG_RECORD.name, findings.LOG_FILE_MISSING.name, findings.LOG_TAIL.name,
}  # fmt: skip
KINDS = {
    "commitlog": "log",
    "consumequeue": "queues",
    "index": "index",
    "index-checksums": "index checksums",
    "config": "tables",
    "journal": "journal",
    "staged": "staged commits",
    "checkpoint": "checkpoint",
}


def kind_of(directory: Path, path: Path) -> str:
    """Return which kind a file of a store is."""
    return KINDS.get(path.relative_to(directory).parts[0], "others")


@dataclass
class Tally:
    """Outcomes of damages, by kind of file and by who looked."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def note(self, kind: str, outcome: str, what: str) -> None:
        self.counts[kind, outcome] += 1
        if outcome not in (NOTHING, NAMED, NOT_COVERED, UNTIL_SCRUB, GONE, RETENTION):
            self.failures.append(f"{outcome}: {what}")

    def lines(self) -> list[str]:
        return [f"{kind}: {outcome}: {n}" for (kind, outcome), n in sorted(self.counts.items())]


NOTHING = "nothing lost"
NAMED = "the record that was hit is named"
NOT_COVERED = "keys not found, their range is named"
UNTIL_SCRUB = "keys or a tag not found until the scrub has come by"
GONE = "records gone with their part of the log; doctor names it"
RETENTION = "records gone with the oldest log file before a start, whose log alone names it"
SILENT = "silent loss"
UNNAMED = "lost or damaged, and no finding of doctor is about that place"
WRONG = "wrong bytes"
FALSE = "intact, and reported as lost or not covered"
REFUSED = "the store does not open"
INDEX_STEPS = 40
DOCTOR_EACH = 25  # damaged records, of flips: to look at all of a store costs much


class FlipBed:
    """The store, its ledger, and its files as they were."""

    def __init__(self, root: Path, *, rounds: int = 12) -> None:
        self.directory = root / "store"
        self.copy = root / "copy"
        self.ledger = Ledger()
        self.tally = Tally()
        self._dice = random.Random(7)
        self._named_count = 0
        self._fill(range(rounds // 2))
        self.old_files = self._contents()  # after an orderly stop, half-way
        self._fill(range(rounds // 2, rounds))
        self.files = self._contents()
        with StoreReader.open(self.directory) as reader:
            found = judge(reader, self.ledger, tags=TAGS)
        assert found == Verdict(), found

    def _contents(self) -> dict[Path, bytes]:
        paths = sorted(path for path in self.directory.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in paths}

    def _fill(self, rounds: range) -> None:
        """Store four messages a queue and round, and move the groups, in one session."""
        ledger, dice = self.ledger, self._dice
        with MessageStore.open(
            self.directory, CONFIG, clock=SteppedClock(), workers=SteppedWorkers()
        ) as store:
            if not ledger.topics:
                ledger.create_topic(store, "bills", 1)
                ledger.create_topic(store, "orders", 2)
            for number in rounds:
                messages = [
                    Message(
                        topic=topic, queue_id=queue_id, tag=TAGS[dice.randrange(2)],
                        body=dice.randbytes(dice.choice((0, 5, 60, 200))),
                        keys=(f"k-{topic}-{queue_id}-{number}-{each}", EVERYBODY),
                    )
                    for topic, queue_id in ledger.queues
                    for each in range(4)
                ]  # fmt: skip
                ledger.put(store, messages)
            store.query_by_key("bills", "k-bills-0-0-0")  # waits until all is indexed
            for group, to in (("billing", rounds.stop), ("printing", 2 * rounds.stop)):
                for topic, queue_id in ledger.queues:
                    ledger.commit(store, group, topic, queue_id, to)
                    ledger.commit(store, group, topic, queue_id, to + 1)
            # The version before of each table says the same: a flip, which costs the last write, costs nothing.
            ledger.commit(store, group, topic, queue_id, to + 1)
            store.writer.update_topic("bills", perm=6)

    # ---- damages

    def flip(self, path: Path, bit: int, *, start: bool) -> None:
        """Flip one bit of a file, judge, and flip it back."""
        before = self.files[path]
        changed = bytearray(before)
        changed[bit // 8] ^= 1 << bit % 8
        self.damage(
            {path: bytes(changed)}, f"bit {bit} of {path.relative_to(self.directory)}",
            hit=(path, bit // 8, bit // 8 + 1), start=start,
        )  # fmt: skip

    def damage(
        self, changes: dict[Path, bytes | None], what: str, *,
        hit: tuple[Path, int, int] | None = None, start: bool,
    ) -> None:  # fmt: skip
        """Give files other bytes, or None for no file, judge, and put them back.

        ``hit`` are the file and the range of its bytes that changed; a record of the log is named in it
        alone. With ``start`` a copy of the store is opened for writing, else the store itself for reading.
        """
        kind = kind_of(self.directory, next(iter(changes)))
        try:
            for path, data in changes.items():
                _put(path, data)
            if start:
                shutil.rmtree(self.copy, ignore_errors=True)
                shutil.copytree(self.directory, self.copy)
        finally:
            if start:
                self._restore(changes)
        try:
            outcome, detail = self._outcome(
                kind, hit, start=start, is_removal=None in changes.values()
            )
        finally:
            self._restore(changes)
        name = f"{kind}, {'a start' if start else 'a reader'}"
        self.tally.note(name, outcome, f"{what}, {'a start' if start else 'a reader'}: {detail}")

    def _restore(self, changes: dict[Path, bytes | None]) -> None:
        for path in changes:
            _put(path, self.files.get(path))

    def _doctor_names(self, places: set[Place], *, start: bool) -> bool:
        """Whether each record is within the commit offsets of something that doctor says is wrong."""
        ranges = [
            (line["begin"], line["end"])
            for line in doctor(self.copy if start else self.directory)
            if line["kind"] in LOG_KINDS
            and line["severity"] in (WARNING, DAMAGE)
            and "begin" in line
        ]
        offsets = [self.ledger.entries[place].commit_offset for place in places]
        return all(any(begin <= offset < end for begin, end in ranges) for offset in offsets)

    def _outcome(
        self, kind: str, hit: tuple[Path, int, int] | None, *, start: bool, is_removal: bool
    ) -> tuple[str, str]:
        free_stopped_stores()
        try:
            verdict = self._started() if start else self._read()
        except StoreError as error:
            return REFUSED, repr(error)
        may_be_named = self._records_at(kind, hit)
        if verdict.is_wrong:
            return WRONG, repr(verdict)
        if verdict.damaged - may_be_named or self._keys_named_in_error(kind, verdict, may_be_named):
            return FALSE, repr(verdict)
        of_a_file = hit is not None and hit[2] - hit[1] > 1
        if of_a_file and kind == "log" and verdict.is_loss_of(may_be_named, self.ledger):
            is_oldest = hit is not None and hit[0] == min(self.of_kind("log"))
            if start and is_oldest and is_removal:
                return RETENTION, ""
            is_named = self._doctor_names(verdict.lost | verdict.damaged, start=start)
            return (GONE, "") if is_named else (UNNAMED, repr(verdict))
        if self._is_found_by_a_scrub(kind, hit, verdict, start=start):
            return UNTIL_SCRUB, ""
        if verdict.is_silent_loss:
            return SILENT, repr(verdict)
        if verdict.damaged:
            self._named_count += 1
            is_looked_at = of_a_file or self._named_count % DOCTOR_EACH == 1
            if is_looked_at and not self._doctor_names(verdict.damaged, start=start):
                return UNNAMED, repr(verdict)
            return NAMED, ""
        return (NOT_COVERED if verdict.named_keys else NOTHING), ""

    def _keys_named_in_error(self, kind: str, verdict: Verdict, hit: set[Place]) -> bool:
        """Whether keys are reported as not covered though neither their index nor their record was hit."""
        if kind.startswith("index") or kind == "checkpoint":
            return False
        return bool(verdict.named_keys - {self.ledger.entries[place].key for place in hit})

    def _is_found_by_a_scrub(
        self, kind: str, hit: tuple[Path, int, int] | None, verdict: Verdict, *, start: bool
    ) -> bool:
        """Whether all that is missed are keys of a damaged index, or the record whose unit was hit, by its tag.

        A start checks the index, and does not look at the tags of units.
        """
        if verdict.is_loss_of_records or hit is None:
            return False
        if kind == "index":
            return not start and bool(verdict.lost_keys) and not verdict.passed_over
        path, begin, end = hit
        if kind != "queues" or end - begin > 1 or verdict.lost_keys:
            return False
        topic, queue_id = path.parent.parent.name, int(path.parent.name)
        place = Place(topic, queue_id, (int(path.name) + begin) // UNIT_SIZE)
        return begin % UNIT_SIZE >= TAG_CODE_IN_UNIT and verdict.passed_over == {place}

    def _read(self) -> Verdict:
        with StoreReader.open(self.directory) as reader:
            return judge(reader, self.ledger, tags=TAGS)

    def _started(self) -> Verdict:
        """Judge what a start makes of it, and that what is stored next is seen in its place."""
        workers = SteppedWorkers()
        with MessageStore.open(self.copy, CONFIG, clock=SteppedClock(), workers=workers) as store:
            assert store._indexer is not None
            store._indexer.check_all()
            for _ in range(INDEX_STEPS):
                workers.step("index")
            verdict = judge_rebuilt(store.reader, self.ledger, workers, tags=TAGS)
            for topic, queue_id in self.ledger.queues:
                end = store.max_offset(topic, queue_id)
                result = store.put(Message(topic=topic, queue_id=queue_id, body=b"next"))
                pulled = store.pull(topic, queue_id, queue_offset=result.queue_offset)
                if result.queue_offset != end or pulled.queue_offsets != (end,):
                    verdict.lost.add(Place(topic, queue_id, result.queue_offset))
        return verdict

    def _records_at(self, kind: str, hit: tuple[Path, int, int] | None) -> set[Place]:
        if kind != "log" or hit is None:
            return set()
        path, begin, end = hit
        first = int(path.name) + begin
        last = int(path.name) + end
        return {
            entry.place
            for entry in self.ledger.entries.values()
            if entry.commit_offset < last and first < entry.commit_offset + len(entry.data)
        }

    # ---- what there is to damage

    def of_kind(self, *kinds: str) -> list[Path]:
        return [path for path in self.files if kind_of(self.directory, path) in kinds]

    def in_last_unit(self, path: Path, bit: int) -> bool:
        """Return whether a bit is of the last unit of a queue."""
        used = -(-len(self.files[path].rstrip(b"\0")) // UNIT_SIZE) * UNIT_SIZE
        later = any(other.parent == path.parent and other > path for other in self.files)
        return not later and bit // 8 >= used - UNIT_SIZE

    def random_bits(self, paths: list[Path], count: int, seed: int) -> list[tuple[Path, int]]:
        """Return places to flip, spread over what is used of the files: few bits are of their holes."""
        dice = random.Random(seed)
        places = []
        for _ in range(count):
            path = dice.choice(paths)
            data = self.files[path]
            used = len(data.rstrip(b"\0")) if dice.random() < 0.9 else len(data)
            places.append((path, dice.randrange(8 * max(used, 1))))
        return places


def _put(path: Path, data: bytes | None) -> None:
    if data is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(data)
