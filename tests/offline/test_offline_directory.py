"""Offline tools on directories as users have them: untouched, unwritable, foreign, empty, no store."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from ask.answers import ask
from golden import golden_copy, golden_dump, golden_spec, golden_store
from real_processes import until

from storage import MessageStore, StoreConfig, offline
from storage.errors import NotAStore
from storage.message import Message

SMALL = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=400, index_slot_count=7,
    index_entry_count=50,
)  # fmt: skip


def fingerprint(directory: Path) -> dict[str, tuple[int, int, str]]:
    """Size, time and content of everything below a directory."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.stat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(directory))] = (status.st_size, status.st_mtime_ns, content)
    return found


@pytest.mark.parametrize("name", ["killed", "torn/short-commitlog-file", "torn/no-consumequeue"])
def test_nothing_in_the_directory_changes(tmp_path: Path, name: str) -> None:
    """These stores need repairs, and recovery makes all of them in memory."""
    store = golden_copy(name, tmp_path)
    before = fingerprint(store)
    assert list(offline.dump(store))
    assert list(offline.doctor(store))
    list(ask(store, [{"kind": "maxOffset", "topic": "orders", "queue": 0}]))
    assert fingerprint(store) == before


def test_a_directory_without_write_permission_is_fine(tmp_path: Path) -> None:
    store = golden_copy("killed", tmp_path)
    for path in (store, *store.rglob("*")):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        messages = [line for line in offline.dump(store) if line["type"] == "message"]
    finally:
        for path in (store, *store.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
    assert len(messages) == 3636


def test_what_is_not_a_store_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.txt").write_text("no store")
    (tmp_path / "file").write_text("")
    for directory in ("notes", "file", "missing"):
        with pytest.raises(NotAStore, match=directory):
            list(offline.dump(tmp_path / directory))


def test_an_empty_directory_is_an_empty_store(tmp_path: Path) -> None:
    lines = list(offline.dump(tmp_path))
    assert not [line for line in lines if line["type"] in ("message", "topic", "index")]
    assert next(line for line in lines if line["type"] == "commitlog")["records"] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_spec_beside_the_store_is_used(tmp_path: Path) -> None:
    """``NAME.spec.json`` is where the golden stores keep their sizes."""
    store = golden_copy("slow", tmp_path)
    (tmp_path / "slow.spec.json").write_text(json.dumps(golden_spec("slow")))
    with offline.open_offline(store) as opened:
        assert (opened.sizes.index_slot_count, opened.sizes.index_entry_count) == (3, 6)


def test_index_sizes_are_found_from_the_files() -> None:
    with offline.open_offline(golden_store("basic"), {}) as opened:
        assert (opened.sizes.index_slot_count, opened.sizes.index_entry_count) == (500, 2000)


def test_our_own_store_dumps_what_was_put(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.create_topic("orders", 2)
        puts = store.put_all(
            [
                Message(topic="orders", body=b"%d" % n, keys=(f"k{n}",), tag="t", queue_id=n % 2)
                for n in range(300)
            ]
        )
    lines = list(offline.dump(tmp_path / "store"))
    messages = [line for line in lines if line["type"] == "message"]
    assert sorted(m["commitLogOffset"] for m in messages) == [p.commit_offset for p in puts]
    assert {m["offsetMsgId"] for m in messages} == {p.message_id for p in puts}
    assert [f["severity"] for f in offline.doctor(tmp_path / "store")][-1] == "ok"
    keys = [
        {"kind": "key", "topic": "orders", "key": f"k{n}", "max": 9, "begin": 0, "end": 2**63 - 1}
        for n in range(300)
    ]
    answers = [line["answer"]["commitLogOffsets"] for line in ask(tmp_path / "store", keys)]
    assert answers == [[put.commit_offset] for put in puts]


def test_a_store_that_is_open_can_be_dumped(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.create_topic("orders", 1)
        store.put(Message(topic="orders", body=b"one"))
        until(lambda: store.pull("orders", 0, queue_offset=0).record_count)  # dispatched
        assert [m["bodyLength"] for m in offline.dump(tmp_path) if m["type"] == "message"] == [3]
        store.put(Message(topic="orders", body=b"three"))
        assert store.max_offset("orders", 0) == 2


FINDINGS = {
    "as-left": ("ok", "nothing is wrong"),
    "flip-early-body": ("damage", "the body does not match its CRC"),
    "flip-near-end-body": ("damage", "the body does not match its CRC"),
    "lost-middle-commitlog-file": ("damage", "are in no file"),
    "torn-last-record": ("warning", "not a whole record of this place"),
    "stale-tail": ("warning", "not a whole record of this place"),
    "no-checkpoint": ("warning", "is missing: the whole log is checked"),
    "garbage-checkpoint": ("warning", "do not fit the newest record's"),
    "short-checkpoint": ("warning", "has 24 bytes, not 4096"),
    "future-checkpoint": ("warning", "do not fit the newest record's"),
    "no-consumequeue": ("warning", "is missing, with 415 units of queue offsets 0 to 414"),
    "torn-consumequeue-unit": ("warning", "the unit of queue offset"),
    "short-consumequeue-file": ("warning", "has 1234 bytes, not 6000"),
    "short-commitlog-file": ("warning", "has 257144 bytes, not 262144"),
    "no-config": ("warning", "topics are known by their queues alone"),
    "garbage-offsets": ("warning", "its .bak is used"),
    "no-index": ("note", "on disk it reaches to 0"),
}


@pytest.mark.parametrize("variant", FINDINGS)
def test_doctor_names_what_is_wrong(variant: str) -> None:
    severity, text = FINDINGS[variant]
    findings = list(offline.doctor(golden_store("torn") / variant))
    assert any(f["severity"] == severity and text in f["message"] for f in findings), findings
    worst = {f["severity"] for f in findings} & {"warning", "damage"}
    assert ("damage" in worst) == (severity == "damage")
    assert bool(worst) == (severity in ("warning", "damage"))


@pytest.mark.parametrize("name", ["basic", "features", "cleaned", "ext", "lmq"])
def test_doctor_finds_nothing_in_a_good_store(name: str) -> None:
    findings = list(offline.doctor(golden_store(name)))
    assert findings[-1]["severity"] == "ok", findings
    records = next(line for line in golden_dump(name) if line["type"] == "commitlog")["records"]
    assert any(f["message"].startswith(f"{records} intact records") for f in findings)
