"""Queue files that went missing while the writer ran are noticed at the next start and rebuilt."""

import shutil

import pytest
from engine_store import bodies_in, pull_rebuilt
from flips import cut, overwrite

from storage import Message, MessageStore, StoreConfig
from storage.view.log.recovery_cases import Start

CONFIG = StoreConfig(
    commit_log_file_size=1 << 16,
    consume_queue_file_size=400,  # 20 units a file
    index_slot_count=50,
    index_entry_count=500,
)
COUNT = 130


def fill(directory):
    with MessageStore.open(directory, CONFIG) as store:
        store.create_topic("t", 2)
        store.put_all([Message(topic="t", body=b"%d" % n, queue_id=n % 2) for n in range(COUNT)])


def bodies(store, queue_id):
    found, offset = [], 0
    while offset < store.max_offset("t", queue_id):
        result = store.pull("t", queue_id, queue_offset=offset, max_messages=COUNT)
        found += bodies_in(result.slices)
        offset = result.next_offset
    return found


def files_of(directory, queue_id):
    return sorted((directory / "consumequeue" / "t" / str(queue_id)).iterdir())


HARM = {
    "all queues gone": lambda store: shutil.rmtree(store / "consumequeue"),
    "one queue gone": lambda store: shutil.rmtree(store / "consumequeue" / "t" / "1"),
    "first file gone": lambda store: files_of(store, 0)[0].unlink(),
    "middle file gone": lambda store: files_of(store, 0)[1].unlink(),
    "last file gone": lambda store: files_of(store, 0)[-1].unlink(),
    "last file short": lambda store: cut(files_of(store, 0)[-1], 50),
    "last file zeroed": lambda store: overwrite(files_of(store, 0)[-1], 0, bytes(400)),
}


@pytest.mark.parametrize("orderly", [True, False], ids=["clean stop", "killed"])
@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_every_message_is_served_again(harm, orderly, tmp_path, caplog):
    fill(tmp_path)
    if not orderly:
        (tmp_path / "abort").write_text("1")
    harm(tmp_path)

    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.writer.recovered.start is Start.FULL
        written = store.writer.recovered.units_written
        assert written > 0
        assert [each.getMessage() for each in caplog.records] == [
            f"files of consume queues were missing or short: {written} units were rebuilt from the log"
        ]
        for queue_id in (0, 1):
            expected = [b"%d" % n for n in range(queue_id, COUNT, 2)]
            assert bodies(store, queue_id) == expected
        stored = store.put(Message(topic="t", body=b"next", queue_id=0))
        assert stored.queue_offset == COUNT // 2


@pytest.mark.parametrize("orderly", [True, False], ids=["clean stop", "killed"])
def test_an_unharmed_store_is_not_scanned(orderly, tmp_path, caplog):
    fill(tmp_path)
    if not orderly:
        (tmp_path / "abort").write_text("1")

    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.writer.recovered.start is (Start.CLEAN if orderly else Start.BOUNDED)
        assert store.writer.recovered.record_count == 0
    assert not caplog.records


LOST_ENDS = {
    "middle file short": lambda store: cut(files_of(store, 0)[1], 50),
    "middle file empty": lambda store: cut(files_of(store, 0)[1], 0),
    "first file short": lambda store: cut(files_of(store, 1)[0], 399),
    "middle file zeroed": lambda store: overwrite(files_of(store, 0)[1], 0, bytes(400)),
    "end of a middle file zeroed": lambda store: overwrite(files_of(store, 0)[2], 200, bytes(200)),
}


@pytest.mark.parametrize("orderly", [True, False], ids=["clean stop", "killed"])
@pytest.mark.parametrize("harm", LOST_ENDS.values(), ids=LOST_ENDS)
def test_a_file_that_lost_its_end_is_rebuilt_when_it_is_read(harm, orderly, tmp_path):
    fill(tmp_path)
    before = {path: path.read_bytes() for queue in (0, 1) for path in files_of(tmp_path, queue)}
    if not orderly:
        (tmp_path / "abort").write_text("1")
    harm(tmp_path)

    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.writer.recovered.start is (Start.CLEAN if orderly else Start.BOUNDED)
        for queue_id in (0, 1):
            result = pull_rebuilt(store, "t", queue_id, queue_offset=0, max_messages=COUNT)
            assert result.queue_offsets == tuple(range(COUNT // 2)) and not result.damaged
        assert {path: path.read_bytes() for path in before} == before
        stored = store.put(Message(topic="t", body=b"next", queue_id=0))
        assert stored.queue_offset == COUNT // 2
