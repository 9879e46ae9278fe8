"""config/subscriptionGroup.json: a broker's shape in, a broker's shape out, nothing dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden import golden_copy

from storage.clock import SystemClock
from storage.errors import GroupExists, GroupNotFound, InvalidMessage, StoreLocked
from storage.files.filesystem import FileSystem
from storage.format.backoff import DEFAULT_STEPS_MS, CustomizedBackoff, ExponentialBackoff
from storage.format.config_json import decode_config
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.groups import GroupConfig, GroupTable


def opened(store: Path) -> tuple[GroupTable, ConsumerOffsets]:
    files, clock = FileSystem(), SystemClock()
    (store / "config").mkdir(parents=True, exist_ok=True)
    offsets = ConsumerOffsets(files, store / "config", clock)
    return GroupTable(files, store / "config", clock, offsets.own), offsets


def document(store: Path, ending: str = "") -> dict[str, object]:
    data = (store / "config" / f"subscriptionGroup.json{ending}").read_bytes()
    return decode_config(data)  # type: ignore[no-any-return]


def test_a_brokers_table_is_read_whole_and_kept_when_one_group_is_added(tmp_path: Path) -> None:
    store = golden_copy("features", tmp_path)
    before = document(store)
    table, offsets = opened(store)
    assert [group.name for group in table.all()] == sorted(before["subscriptionGroupTable"])

    table.create(GroupConfig(name="audit"))
    offsets.close()

    after = document(store)
    added = after["subscriptionGroupTable"].pop("audit")
    assert after["subscriptionGroupTable"] == before["subscriptionGroupTable"]
    assert after["forbiddenTable"] == before["forbiddenTable"]
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    a_brokers = before["subscriptionGroupTable"]["TOOLS_CONSUMER"]
    assert added == {**a_brokers, "groupName": "audit"}
    assert list(added) == list(a_brokers)
    assert document(store, ".bak") == before


def test_the_bytes_of_a_group_are_a_brokers(tmp_path: Path) -> None:
    """An entry's text, as a broker wrote it in a golden store and as we write it."""
    store = golden_copy("features", tmp_path)
    path = store / "config" / "subscriptionGroup.json"
    a_brokers = path.read_text()
    table, offsets = opened(store)
    table.create(GroupConfig(name="audit"))
    offsets.close()
    ours = path.read_text()
    begin = a_brokers.index('\t\t"TOOLS_CONSUMER":{')
    entry = a_brokers[begin : a_brokers.index("\n\t\t}", begin)]
    assert entry in ours
    assert entry.replace("TOOLS_CONSUMER", "audit") in ours


def test_unknown_fields_stay_when_a_group_changes(tmp_path: Path) -> None:
    table, offsets = opened(tmp_path)
    path = tmp_path / "config" / "subscriptionGroup.json"
    path.write_text(
        json.dumps(
            {
                "dataVersion": {"counter": 4, "stateVersion": 2, "timestamp": 1},
                "forbiddenTable": {"g": {"t": 2}},
                "later": [1],
                "subscriptionGroupTable": {
                    "g": {"groupName": "g", "attributes": {"a": "b"}, "subscriptionDataSet": [7]}
                },
            }
        )
    )
    changed = table.update("g", lambda group: group.changed(orderly=True, begin="latest"))
    assert (changed.orderly, changed.begin, changed.retry_max_times) == (True, "latest", 16)
    offsets.close()
    found = document(tmp_path)
    assert found["later"] == [1]
    assert found["forbiddenTable"] == {"g": {"t": 2}}
    assert found["dataVersion"]["counter"] == 5
    assert found["dataVersion"]["stateVersion"] == 2
    group = found["subscriptionGroupTable"]["g"]
    assert group["subscriptionDataSet"] == [7]
    assert group["attributes"] == {"a": "b", "penstock.begin": "latest"}
    again, _ = opened(tmp_path)
    assert again.get("g") == changed
    assert again.get("g").changed(begin="earliest").attributes == {"a": "b"}


def test_backoffs_are_read_and_written(tmp_path: Path) -> None:
    table, offsets = opened(tmp_path)
    assert table.create(GroupConfig(name="plain")).backoff == CustomizedBackoff(DEFAULT_STEPS_MS)
    steps, growing = CustomizedBackoff((1_000, 5_000)), ExponentialBackoff(10, 1_000, 3)
    table.create(GroupConfig(name="steps").changed(backoff=steps))
    table.create(GroupConfig(name="growing").changed(backoff=growing))
    offsets.close()
    again, _ = opened(tmp_path)
    assert again.get("steps").backoff == steps
    assert [steps.delay_ms(attempt) for attempt in (1, 2, 3, 17)] == [1_000, 5_000, 5_000, 5_000]
    assert again.get("growing").backoff == growing
    assert [growing.delay_ms(attempt) for attempt in (1, 2, 3, 99)] == [10, 30, 90, 1_000]
    policy = document(tmp_path)["subscriptionGroupTable"]["growing"]["groupRetryPolicy"]
    assert policy["exponentialRetryPolicy"] == {"initial": 10, "max": 1_000, "multiplier": 3}
    assert len(DEFAULT_STEPS_MS) == 18


@pytest.mark.parametrize(
    "policy", [{}, {"type": 7}, {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"max": "x"}}]
)
def test_a_policy_that_says_nothing_is_a_brokers_default(policy: dict[str, object]) -> None:
    assert GroupConfig(name="g", retry_policy=policy).backoff == CustomizedBackoff(DEFAULT_STEPS_MS)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    table, offsets = opened(tmp_path)
    table.create(GroupConfig(name="g"))
    with pytest.raises(GroupExists):
        table.create(GroupConfig(name="g"))
    with pytest.raises(GroupNotFound):
        table.update("other", lambda group: group)
    with pytest.raises(GroupNotFound):
        table.delete("other")
    for name in ("", "a/b", "x" * 256):
        with pytest.raises(InvalidMessage, match="group"):
            table.create(GroupConfig(name=name))
    for change in (
        {"retry_max_times": -1},
        {"backoff": CustomizedBackoff(())},
        {"backoff": CustomizedBackoff((-1,))},
        {"backoff": ExponentialBackoff(1, 2, 0)},
    ):
        with pytest.raises(InvalidMessage):
            table.get("g").changed(**change)  # type: ignore[arg-type]
    table.delete("g")
    assert table.find("g") is None
    offsets.close()


def test_one_reader_changes_groups_and_others_see_it(tmp_path: Path) -> None:
    first, offsets = opened(tmp_path)
    second, _ = opened(tmp_path)
    first.create(GroupConfig(name="g"))
    assert second.get("g").name == "g"
    with pytest.raises(StoreLocked):
        second.create(GroupConfig(name="h"))
    offsets.close()
