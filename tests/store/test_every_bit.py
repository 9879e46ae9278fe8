"""No bit of a record that we wrote flips without a pull, a look-up and the doctor telling it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from steps_to_try import steps_to_try

from storage import MessageStore, StoreConfig
from storage.errors import DamagedRecord, RecordNotFound
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.message import Message
from storage.offline.doctor import doctor
from storage.reader import StoreReader

CONFIG: Final = StoreConfig(
    commit_log_file_size=1 << 14, consume_queue_file_size=200, index_slot_count=20,
    index_entry_count=100,
)  # fmt: skip


class Victim(NamedTuple):
    """A record between two others, and the log file it is in."""

    file: Path
    commit_offset: int
    size: int


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    directory = tmp_path_factory.mktemp("bits")
    with MessageStore.open(directory, CONFIG) as store:
        store.create_topic("t", 1)
        first, middle, _ = (
            store.put(Message(topic="t", body=b"body %d" % n, keys=("k",), tag="a"))
            for n in range(3)
        )
        size = len(store.message(middle.commit_offset))
    assert first.commit_offset == 0
    return Victim(directory / "commitlog" / f"{0:020d}", middle.commit_offset, size)


@contextmanager
def flipped(victim: Victim, position: int, bit: int) -> Iterator[None]:
    """Flip one bit of the record in its file, and back."""
    with victim.file.open("r+b", buffering=0) as file:
        file.seek(victim.commit_offset + position)
        (old,) = file.read(1)
        try:
            file.seek(victim.commit_offset + position)
            file.write(bytes([old ^ (1 << bit)]))
            yield
        finally:
            file.seek(victim.commit_offset + position)
            file.write(bytes([old]))


def test_a_pull_and_a_look_up_report_every_flipped_bit(victim: Victim) -> None:
    with StoreReader.open(victim.file.parent.parent) as reader:
        assert reader.pull("t", 0, queue_offset=0).record_count == 3
        for position in range(victim.size):
            for bit in range(8):
                with flipped(victim, position, bit):
                    result = reader.pull("t", 0, queue_offset=0)
                    with pytest.raises((DamagedRecord, RecordNotFound)):
                        reader.message(victim.commit_offset)

                assert [damage.queue_offset for damage in result.damaged] == [1], (position, bit)
                assert result.queue_offsets == (0, 2)


def test_the_doctor_reports_a_flipped_bit_of_every_byte_and_all_of_the_trailer(
    victim: Victim,
) -> None:
    directory = victim.file.parent.parent
    assert {line["severity"] for line in doctor(directory)} == {"note", "ok"}
    trailer = range(victim.size - PROPERTY_CRC_SIZE, victim.size)
    for position in (*steps_to_try(range(trailer.start), 9), *trailer):
        for bit in range(8) if position in trailer else (position % 8,):
            with flipped(victim, position, bit):
                found = [line for line in doctor(directory) if line["severity"] == "damage"]

            assert found, (position, bit)
            assert str(victim.commit_offset) in found[0]["message"]
