"""Index files made from a broker's commit log are the broker's, and so is what is kept of old ones."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from ask.keys import offsets_by_key
from golden import golden_answers, golden_copy, golden_dump, golden_spec, golden_store
from index_support import index_files
from recovered_copy import catch_up

from storage.files.filesystem import FileSystem
from storage.format.checkpoint import BrokerFields
from storage.format.index import IndexHeader
from storage.index.directory import IndexDirectory
from storage.view.index.index_file import IndexShape
from storage.view.index.key_index import KeyIndex
from storage.view.layout import StorePaths

FILESYSTEM = FileSystem()
FROM_THE_START = ("basic", "slow", "features", "pool", "syncflush", "propcrc", "ext", "lmq")
TAKEN_OVER = (*FROM_THE_START, "cleaned", "killed", "poolkilled", "syncflushkilled")


def shape_of(name: str) -> IndexShape:
    store = golden_spec(name)["store"]
    return IndexShape(store["maxHashSlotNum"], store["maxIndexNum"])


def end_of_log(name: str) -> int:
    return next(line["end"] for line in golden_dump(name) if line["type"] == "commitlog")


def headers(directory: Path) -> list[tuple[int, ...]]:
    decoded = [IndexHeader.decode(data) for data in index_files(directory).values()]
    return [
        (
            h.begin_timestamp_ms, h.end_timestamp_ms, h.begin_commit_offset, h.end_commit_offset,
            h.used_slot_count, h.next_entry,
        )
        for h in decoded
    ]  # fmt: skip


def dumped_headers(dump: list[dict]) -> list[tuple[int, ...]]:
    return [
        (
            line["beginTimestamp"], line["endTimestamp"], line["beginPhyOffset"],
            line["endPhyOffset"], line["hashSlotCount"], line["indexCount"],
        )
        for line in dump
        if line["type"] == "index"
    ]  # fmt: skip


def index_all(
    name: str, directory: Path, *, unclean: bool = False, index_timestamp_ms: int = -1
) -> None:
    checkpoint = directory / "checkpoint"
    if index_timestamp_ms < 0 and checkpoint.exists():
        index_timestamp_ms = BrokerFields.decode(checkpoint.read_bytes()).index_timestamp_ms
    catch_up(
        FILESYSTEM,
        StorePaths(directory),
        shape_of(name),
        end_commit_offset=end_of_log(name),
        index_timestamp_ms=max(index_timestamp_ms, 0),
        unclean=unclean,
        now_ms=lambda: 1_795_300_000_000,
    )


@pytest.mark.parametrize("name", FROM_THE_START)
def test_from_the_commit_log_alone_come_the_brokers_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = index_files(golden_store(name))
    directory = tmp_path / name
    (directory / "commitlog").mkdir(parents=True)
    for path in (golden_store(name) / "commitlog").iterdir():
        (directory / "commitlog" / path.name).symlink_to(path)
    spare = (f"9{n:016d}" for n in range(99))

    names = itertools.chain(wanted, spare)
    monkeypatch.setattr(IndexDirectory, "_next_name", lambda _: next(names))
    index_all(name, directory)

    assert index_files(directory) == wanted


@pytest.mark.parametrize("name", TAKEN_OVER)
def test_files_of_a_broker_are_taken_over_as_it_would_itself(name: str, tmp_path: Path) -> None:
    directory = golden_copy(name, tmp_path)

    index_all(name, directory, unclean=(directory / "abort").exists())

    assert headers(directory) == dumped_headers(golden_dump(name))


@pytest.mark.parametrize("name", ["basic", "slow", "features"])
def test_questions_by_key_are_answered_as_the_broker_answered(name: str) -> None:
    files = KeyIndex(FILESYSTEM, StorePaths(golden_store(name)), shape_of(name)).look()
    asked = [
        (each["question"], each["answer"])
        for each in golden_answers(name)
        if each["question"]["kind"] == "key"
    ]

    assert len(asked) > 20
    for question, answer in asked:
        found = offsets_by_key(
            files, question["topic"], question["key"], count_max=question["max"], begin_ms=question["begin"],
            end_ms=question["end"],
        )  # fmt: skip

        assert (
            sorted(found.commit_offsets), found.last_update_timestamp_ms, found.last_update_commit_offset,
        ) == (
            answer["commitLogOffsets"], answer["lastUpdateTimestamp"], answer["lastUpdatePhyOffset"],
        )  # fmt: skip


class TestKeysThatABrokerWouldLose:
    """A kept file is only worth keeping if nothing before it is missing."""

    def test_a_lost_directory_is_made_again_from_the_start_of_the_log(self, tmp_path: Path) -> None:
        directory = golden_copy("killed", tmp_path)
        for path in (directory / "index").iterdir():
            path.unlink()

        index_all("killed", directory, unclean=True)

        assert headers(directory)[0][2] == 0
        assert headers(directory)[-1][3] == dumped_headers(golden_dump("killed"))[-1][3]

    @pytest.mark.parametrize("lost", [0, 1])
    def test_a_hole_makes_all_files_new(self, tmp_path: Path, lost: int) -> None:
        directory = golden_copy("basic", tmp_path)
        wanted = list(index_files(directory).values())
        sorted((directory / "index").iterdir())[lost].unlink()

        index_all("basic", directory)

        assert list(index_files(directory).values()) == wanted

    def test_a_file_that_is_not_known_durable_makes_all_files_new(self, tmp_path: Path) -> None:
        """One that stands before others that are: a broker keeps those, and leaves a hole."""
        directory = golden_copy("basic", tmp_path)
        wanted = list(index_files(directory).values())
        first = min((directory / "index").iterdir())
        with first.open("r+b") as file:
            file.seek(8)
            file.write((1 << 60).to_bytes(8, "big"))

        index_all("basic", directory, unclean=True, index_timestamp_ms=1 << 59)

        assert list(index_files(directory).values()) == wanted
