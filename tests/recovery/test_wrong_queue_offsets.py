"""Records without a property CRC, as a broker writes them, whose queue offset a bit flip changed."""

import shutil

import pytest
from engine_store import pull_rebuilt
from flips import flip

from storage import Message, MessageStore, StoreConfig

CONFIG = StoreConfig(
    commit_log_file_size=1 << 16,
    consume_queue_file_size=2_000,
    index_slot_count=20,
    index_entry_count=100,
    append_property_crc=False,
)
COUNT = 20
QUEUE_OFFSET_POSITION = 20


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store, and where its records are."""
    directory = tmp_path_factory.mktemp("plain")
    with MessageStore.open(directory, CONFIG) as store:
        store.create_topic("t", 1)
        results = store.put_all(
            [Message(topic="t", body=b"%d" % n, queue_id=0) for n in range(COUNT)]
        )
    return directory, [result.commit_offset for result in results]


@pytest.mark.parametrize("queues_lost", [False, True])
@pytest.mark.parametrize("victim", [0, COUNT - 1])
@pytest.mark.parametrize("bit", [0, 62])
def test_a_wrong_queue_offset_moves_no_record(tmp_path, stored, queues_lost, victim, bit):
    source, commit_offsets = stored
    directory = tmp_path / "store"
    shutil.copytree(source, directory)
    (directory / "checkpoint").unlink()
    if queues_lost:
        shutil.rmtree(directory / "consumequeue")
    log = directory / "commitlog" / f"{0:020d}"
    flip(log, commit_offsets[victim] + QUEUE_OFFSET_POSITION + 7 - bit // 8, 1 << bit % 8)
    with MessageStore.open(directory, CONFIG) as store:
        assert (store.min_offset("t", 0), store.max_offset("t", 0)) == (0, COUNT)
        result = pull_rebuilt(store, "t", 0, queue_offset=0, max_messages=COUNT)
        assert result.queue_offsets == tuple(range(COUNT))
        assert store.put(Message(topic="t", body=b"", queue_id=0)).queue_offset == COUNT
