"""How far a store may be read: a reader and a view of one directory answer alike, whichever wrote last."""

from __future__ import annotations

import itertools
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_store import PASSING, small_config

from storage.checkpoint.durable_slots import DurableSlots
from storage.checkpoint.positions import CheckpointFile
from storage.files.filesystem import FileSystem
from storage.format import checkpoint as layout
from storage.message import Message
from storage.reader import StoreReader
from storage.store import MessageStore
from storage.view.bounds import CheckpointPage
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

BEFORE, SINCE = 20, 5


def put(store: MessageStore, count: int) -> None:
    for _ in range(count):
        store.put(Message(topic="t", queue_id=0, body=b"x" * 100))
    assert store.writer.wait_dispatched(store.writer.appended_offset, 10)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One store at three moments: when it was killed, after an orderly stop, and with more in it."""
    root = tmp_path_factory.mktemp("stores")
    with MessageStore.open(root / "first", small_config()) as store:
        store.create_topic("t", 1)
        put(store, BEFORE)
        shutil.copytree(root / "first", root / "killed", ignore=PASSING)
    shutil.copytree(root / "first", root / "stopped")
    with MessageStore.open(root / "first", small_config()) as store:
        put(store, SINCE)
    return {"killed": root / "killed", "stopped": root / "stopped", "longer": root / "first"}


def change_page(store: Path, position: int, data: bytes) -> None:
    """Change bytes where they are, for who has the page mapped, too."""
    with (store / "checkpoint").open("r+b") as file:
        file.seek(position)
        file.write(data)


def reboot(store: Path) -> None:
    change_page(store, layout.WRITER_LIVE_POSITION + 8, bytes(16))


def run_a_broker(store: Path, longer: Path) -> None:
    """Leave what a broker would: more in log and queue, and its time of the last flush in the page."""
    for directory in ("commitlog", "consumequeue/t/0"):
        for path in (longer / directory).iterdir():
            content = path.read_bytes()
            with (store / directory / path.name).open("r+b") as file:
                file.write(content)
    change_page(store, 0, struct.pack(">q", 1_900_000_000_000))


@pytest.mark.parametrize("reader_is_open", [False, True], ids=["opened after", "open meanwhile"])
@pytest.mark.parametrize("rebooted", [False, True], ids=["same boot", "rebooted"])
@pytest.mark.parametrize("broker_ran", [False, True], ids=["ours", "a broker ran since"])
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_reader_and_view_end_at_the_same_record(
    stores: dict[str, Path],
    tmp_path: Path,
    end: str,
    broker_ran: bool,
    rebooted: bool,
    reader_is_open: bool,
) -> None:
    """A reader that believed the stopped writer's last word would hide the broker's messages."""
    store = tmp_path / "s"
    shutil.copytree(stores[end], store)
    if rebooted:
        reboot(store)
    early = StoreReader.open(store) if reader_is_open else None
    if early is not None:
        early.max_offset("t", 0)
    if broker_ran:
        run_a_broker(store, stores["longer"])
    with early or StoreReader.open(store) as reader:
        view = StoreView.open(store)
        queue = StorePlan(view).queues["t", 0]
        count = reader.max_offset("t", 0)
        assert (reader.min_offset("t", 0), count) == (queue.begin, queue.end)
        pulled = reader.pull("t", 0, queue_offset=0, max_messages=100)
        assert pulled.record_count == count
        if broker_ran:
            assert count == BEFORE + SINCE
            assert view.stated_bounds() is None
            assert reader.positions is None
            assert view.bounds.queued_offset == StoreView.open(stores["longer"]).bounds.end_offset
        else:
            if not (rebooted and end == "killed"):  # then what was durable counts
                assert count == BEFORE
            assert reader.visible_offset == view.bounds.queued_offset
            assert reader.min_commit_offset == view.bounds.min_offset


def test_a_reader_follows_our_writer_again_after_a_broker(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    store = tmp_path / "s"
    shutil.copytree(stores["stopped"], store)
    run_a_broker(store, stores["longer"])
    with StoreReader.open(store) as reader:
        assert reader.positions is None
        with MessageStore.open(store, small_config()) as ours:
            assert reader.positions is not None
            put(ours, 1)
            assert reader.max_offset("t", 0) == BEFORE + SINCE + 1
            assert reader.visible_offset == ours.writer.appended_offset


class StoresOfWords:
    """The words of a mapped page; calls ``look`` after each store to one."""

    def __init__(self, words: memoryview, look: Callable[[], None]) -> None:
        self._words = words
        self._look = look

    def __getitem__(self, index: int) -> int:
        return self._words[index]

    def __setitem__(self, index: int, value: int) -> None:
        self._words[index] = value
        self._look()


def test_our_checkpoint_is_never_taken_for_a_broker_s_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look, or kill -9, between two of the broker's fields: the slot vouches for each by itself."""
    looks: Iterator[int] = itertools.count()
    boot_id = FileSystem().boot_id()
    with MessageStore.open(tmp_path, small_config(queue_flush_interval_ms=3_600_000)) as store:
        store.create_topic("t", 1)
        put(store, 3)
        durable = store.writer._engine.positions.durable
        with StoreReader.open(tmp_path) as reader:
            end = reader.visible_offset

            def look() -> None:
                next(looks)
                page = (tmp_path / "checkpoint").read_bytes()
                assert CheckpointPage(page, name="s", boot_id=boot_id).durable.trusted
                assert reader.visible_offset == end

            monkeypatch.setattr(durable, "_words", StoresOfWords(durable._words, look))
            for number in range(2):
                slot = durable.load()
                durable.store(
                    store_id=slot.store_id,
                    flushed_offset=end,
                    dispatched_offset=end,
                    unit_count=3,
                    physic_timestamp_ms=1_700_000_000_000 + number,
                    logics_timestamp_ms=1_700_000_000_000 + number,
                )
            monkeypatch.undo()
    assert next(looks) == 4


def test_a_broker_s_messages_stay_in_view_while_our_writer_starts(
    stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first checkpoint vouches for the page again, which still had what the writer before it published."""
    store = tmp_path / "s"
    shutil.copytree(stores["stopped"], store)
    run_a_broker(store, stores["longer"])
    seen: list[int] = []
    with StoreReader.open(store) as reader:

        def looking(change: Callable[..., None]) -> Callable[..., None]:
            def look(*arguments: object, **options: object) -> None:
                seen.append(reader.max_offset("t", 0))
                change(*arguments, **options)
                seen.append(reader.max_offset("t", 0))

            return look

        monkeypatch.setattr(DurableSlots, "store", looking(DurableSlots.store))
        monkeypatch.setattr(CheckpointFile, "start_writer", looking(CheckpointFile.start_writer))
        with MessageStore.open(store, small_config()):
            pass
    assert len(seen) > 4
    assert set(seen) == {BEFORE + SINCE}
