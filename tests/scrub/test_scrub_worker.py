"""A running store reads itself: what it finds is said once, a pass goes on where it was."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from full_filesystem import full

from storage import MessageStore, StoreConfig, StoreReader
from storage.format.consume_entry import UNIT_SIZE
from storage.message import Message
from storage.scrub.worker import STATE, ScrubStatus
from storage.testing import SteppedClock, SteppedWorkers

DAY_S = 86_400
CONFIG = StoreConfig(
    commit_log_file_size=8 << 20, consume_queue_file_size=400, index_slot_count=7,
    index_entry_count=500, scrub_interval_ms=DAY_S * 1000, scrub_bytes_per_s=1 << 20,
)  # fmt: skip
BODY = 1 << 20
MESSAGES = 30
QUEUE_FILE = Path("consumequeue/t/0") / f"{400:020d}"


class Scrubbed:
    """A store of some files whose scrub makes a step on request."""

    def __init__(self, directory: Path, config: StoreConfig = CONFIG) -> None:
        self.directory = directory
        self.clock = SteppedClock()
        self.workers = SteppedWorkers()
        self.store = MessageStore.open(directory, config, clock=self.clock, workers=self.workers)

    @property
    def status(self) -> ScrubStatus:
        return self.store.status().scrub

    def fill(self, count: int = MESSAGES) -> None:
        self.store.create_topic("t", 1)
        for number in range(count):
            self.store.put(Message(topic="t", body=bytes([number]) * BODY))
        self.workers.settle()

    def step(self) -> float | None:
        return self.store.writer._engine.scrub.step()

    def next_pass(self) -> int:
        """Let a day pass, and make one pass; return how many steps it took."""
        self.clock.advance(DAY_S)
        self.step()
        count = 1
        while self.status.end:
            self.step()
            count += 1
        return count


@pytest.fixture
def scrubbed(tmp_path: Path) -> Iterator[Scrubbed]:
    opened = Scrubbed(tmp_path)
    opened.fill()
    with opened.store:
        yield opened


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.startswith("storage.scrub")]


def log_byte(directory: Path, position: int) -> None:
    path = min((directory / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_a_sound_store_is_read_in_windows_and_nothing_is_said(
    scrubbed: Scrubbed, caplog: pytest.LogCaptureFixture
) -> None:
    assert scrubbed.next_pass() > MESSAGES * BODY / (4 << 20)
    assert scrubbed.status.finding_count == 0
    assert scrubbed.status.completed_ms > 0
    assert events(caplog) == []


def test_no_pass_is_made_before_its_time(scrubbed: Scrubbed) -> None:
    scrubbed.step()
    assert scrubbed.status.end == 0
    scrubbed.next_pass()
    completed_ms = scrubbed.status.completed_ms
    scrubbed.step()
    assert (scrubbed.status.end, scrubbed.status.completed_ms) == (0, completed_ms)


def test_by_default_there_is_a_pass_a_week(tmp_path: Path) -> None:
    interval_ms = StoreConfig().scrub_interval_ms
    opened = Scrubbed(tmp_path, replace(CONFIG, scrub_interval_ms=interval_ms))
    with opened.store:
        opened.fill(2)
        for _ in range(6):
            opened.next_pass()
        assert opened.status.completed_ms == 0
        opened.next_pass()
        assert opened.status.completed_ms > 0


def test_without_an_interval_there_is_no_pass(tmp_path: Path) -> None:
    opened = Scrubbed(tmp_path, replace(CONFIG, scrub_interval_ms=0))
    with opened.store:
        opened.fill(2)
        opened.next_pass()
        assert opened.status.completed_ms == 0


def test_a_step_rests_for_as_long_as_its_bytes_may_take(scrubbed: Scrubbed) -> None:
    scrubbed.clock.advance(DAY_S)
    rest_s = scrubbed.step()

    assert rest_s is not None
    assert 3.0 < rest_s <= 4.1  # four mebibytes at one a second


def test_a_damaged_record_is_said_once_with_its_place(
    scrubbed: Scrubbed, caplog: pytest.LogCaptureFixture
) -> None:
    second = scrubbed.store.pull("t", 0, queue_offset=1, max_messages=1)
    assert second.record_count == 1
    log_byte(scrubbed.directory, BODY + 10_000)  # within the second record

    scrubbed.next_pass()
    scrubbed.next_pass()

    [event] = events(caplog)
    assert "log-record: commitlog/00000000000000000000" in event
    assert "the body does not match its CRC" in event
    assert scrubbed.status.finding_count == 1


def test_a_wrong_unit_is_said_and_rebuilt_at_once(
    scrubbed: Scrubbed, caplog: pytest.LogCaptureFixture
) -> None:
    path = scrubbed.directory / QUEUE_FILE
    good = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(3 * UNIT_SIZE + 1)
        file.write(b"\x55")

    scrubbed.next_pass()

    [event] = events(caplog)
    assert "queue-unit: consumequeue/t/0: units from queue offset 23 on" in event
    assert "; 1 rebuilt" in event
    assert scrubbed.status.repaired_count == 1
    assert path.read_bytes() == good
    scrubbed.next_pass()
    assert scrubbed.status.finding_count == 1


def test_a_file_that_was_removed_is_made_again_and_goes_on(
    scrubbed: Scrubbed, caplog: pytest.LogCaptureFixture
) -> None:
    path = scrubbed.directory / QUEUE_FILE
    good = path.read_bytes()
    path.unlink()
    scrubbed.store.put(Message(topic="t", body=b"to the removed file"))
    scrubbed.workers.settle()

    scrubbed.next_pass()

    assert path.read_bytes()[: len(good) // UNIT_SIZE * UNIT_SIZE].startswith(good.rstrip(b"\0"))
    put = scrubbed.store.put(Message(topic="t", body=b"to the new one"))
    scrubbed.workers.settle()
    with StoreReader.open(scrubbed.directory) as reader:
        assert put.queue_offset == MESSAGES + 1
        assert reader.max_offset("t", 0) == MESSAGES + 2
        assert not reader.pull("t", 0, queue_offset=20, max_messages=50).damaged


def test_records_of_a_deleted_topic_lack_no_units(
    scrubbed: Scrubbed, caplog: pytest.LogCaptureFixture
) -> None:
    scrubbed.store.delete_topic("t")
    scrubbed.fill(2)

    scrubbed.next_pass()

    assert events(caplog) == []
    assert scrubbed.status.completed_ms > 0


def test_a_pass_goes_on_after_a_restart(scrubbed: Scrubbed) -> None:
    scrubbed.clock.advance(DAY_S)
    scrubbed.step()
    scrubbed.step()
    position, end = scrubbed.status.position, scrubbed.status.end
    scrubbed.store.close()

    again = Scrubbed(scrubbed.directory)
    with again.store:
        again.step()
        assert (again.status.end, position < again.status.position) == (end, True)


def test_a_damaged_table_is_said(scrubbed: Scrubbed, caplog: pytest.LogCaptureFixture) -> None:
    path = scrubbed.directory / "config" / "topics.json"
    path.write_bytes(path.read_bytes().replace(b'"t"', b'"u"'))

    scrubbed.next_pass()

    [event] = events(caplog)
    assert "table: config/topics.json: is damaged; its .bak is used" in event


def test_what_cannot_be_rebuilt_or_read_is_said_and_the_pass_goes_on(
    scrubbed: Scrubbed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scrub = scrubbed.store.writer._engine.scrub
    monkeypatch.setattr(scrub, "_rebuild", full)
    with (scrubbed.directory / QUEUE_FILE).open("r+b") as file:
        file.seek(3 * UNIT_SIZE + 1)
        file.write(b"\x55")

    scrubbed.next_pass()
    assert "they cannot be rebuilt: no space left" in events(caplog)[0]

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(scrub, "_wrong_units", broken)
    scrubbed.next_pass()
    assert "queue-unit: consumequeue: cannot be read" in events(caplog)[1]
    assert scrubbed.status.finding_count == 2
    assert scrub.failure is None


def test_a_position_is_noted_while_a_pass_is_long(
    scrubbed: Scrubbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.scrub.worker.SAVE_BYTES", 5 << 20)
    scrubbed.clock.advance(DAY_S)
    for _ in range(4):
        scrubbed.step()

    noted = scrubbed.store.writer._engine.states.document(STATE)
    assert 0 < noted["position"] < noted["end"]
