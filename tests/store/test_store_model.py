"""MessageStore against a dictionary, over any sequence of appends, reads, closes and kills."""

import shutil
import tempfile
from pathlib import Path

import pytest
from engine_store import PASSING, check_queues_match_log, record, records_in, small_config
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from steps_to_try import examples_to_try

from storage import Message, MessageStore, PullStatus
from storage.errors import InvalidBatch, QueueNotFound, TopicExists, TopicNotFound

TOPICS = ("orders", "%RETRY%group-1")
QUEUES = 3
topics = st.sampled_from(TOPICS)
queue_ids = st.integers(0, QUEUES - 1)
bodies = st.binary(max_size=3_000)
tags = st.sampled_from(("", "a", "b", "ü😀"))
keys = st.lists(st.sampled_from(("k1", "k2", "k3")), max_size=2, unique=True)
items = st.tuples(topics, queue_ids, bodies, tags, keys)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.lives = 0
        self.directory = self.root / "0"
        self.config = small_config(flush_interval_ms=20)
        self.model = {}  # (topic, queue id) -> [(body, tag, keys)]

    @initialize(flush_mode=st.sampled_from(("async", "sync")))
    def open_store(self, flush_mode):
        self.config = small_config(flush_interval_ms=20, flush_mode=flush_mode)
        self.store = MessageStore.open(self.directory, self.config)
        self.known = set()

    @rule(topic=topics)
    def create_topic(self, topic):
        if topic in self.known:
            with pytest.raises(TopicExists):
                self.store.create_topic(topic, QUEUES)
        else:
            self.store.create_topic(topic, QUEUES)
            self.known.add(topic)

    @rule(messages=st.lists(items, min_size=1, max_size=5))
    def put(self, messages):
        request = [
            Message(topic=topic, queue_id=queue_id, body=body, tag=tag, keys=tuple(names))
            for topic, queue_id, body, tag, names in messages
        ]
        if not {topic for topic, *_ in messages} <= self.known:
            with pytest.raises(TopicNotFound):
                self.store.put_all(request)
            return
        for result, (topic, queue_id, *rest) in zip(
            self.store.put_all(request), messages, strict=True
        ):
            queue = self.model.setdefault((topic, queue_id), [])
            assert result.queue_offset == len(queue)
            queue.append(tuple(rest))

    @precondition(lambda self: self.known)
    @rule(messages=st.lists(items, min_size=1, max_size=40), spoil=st.sampled_from("nnnnbq"))
    def put_batch(self, messages, spoil):
        messages = [message for message in messages if message[0] in self.known]
        if not messages:
            return
        batch = b"".join(
            record(topic, queue_id, body, tag=tag, keys=" ".join(names))
            for topic, queue_id, body, tag, names in messages
        )
        if spoil == "b":
            with pytest.raises(InvalidBatch) as refused:
                self.store.put_batch(batch + b"rubbish!" * 20)
            assert refused.value.record_index == len(messages)
        elif spoil == "q":
            with pytest.raises(QueueNotFound):
                self.store.put_batch(batch + record(messages[0][0], QUEUES))
        else:
            result = self.store.put_batch(batch)
            assert result.record_count == len(messages)
            for each in result.ranges:
                held = self.model.setdefault((each.topic, each.queue_id), [])
                assert each.first_queue_offset == len(held)
            for topic, queue_id, *rest in messages:
                self.model[topic, queue_id].append(tuple(rest))

    @rule(topic=topics, key=st.sampled_from(("k1", "k2", "k3")))
    def query(self, topic, key):
        if topic not in self.known:
            return
        expected = [
            body
            for (name, _), held in self.model.items()
            for body, _, names in held
            if name == topic and key in names
        ]
        found = []
        token = ""
        while True:
            page = self.store.query_by_key(topic, key, max_messages=50, page_token=token)
            found += [each.body for each in records_in(page.slices)]
            token = page.next_page_token
            if not token:
                break
        assert sorted(found) == sorted(expected)

    @rule(topic=topics, queue_id=queue_ids, tag=tags.filter(bool))
    def pull_by_tag(self, topic, queue_id, tag):
        if topic not in self.known:
            return
        expected = [body for body, held, _ in self.model.get((topic, queue_id), ()) if held == tag]
        found = []
        offset = 0
        while True:
            result = self.store.pull(topic, queue_id, queue_offset=offset, tag_expression=tag)
            found += [each.body for each in records_in(result.slices)]
            if result.next_offset == offset:
                break
            offset = result.next_offset
        assert found == expected

    @rule()
    def close_and_open(self):
        self.store.close()
        self.store = MessageStore.open(self.directory, self.config)

    @rule()
    def kill_and_open(self):
        self.lives += 1
        copy = self.root / str(self.lives)
        shutil.copytree(self.directory, copy, ignore=PASSING)
        self.store.close()
        self.directory = copy
        self.store = MessageStore.open(self.directory, self.config)

    @invariant()
    def every_queue_reads_back(self):
        for (topic, queue_id), held in self.model.items():
            found = []
            offset = 0
            while offset < len(held):
                result = self.store.pull(topic, queue_id, queue_offset=offset, max_messages=100)
                assert result.status is PullStatus.FOUND
                assert result.max_offset == len(held)
                found += records_in(result.slices)
                offset = result.next_offset
            assert [(each.body, each.queue_offset) for each in found] == [
                (body, place) for place, (body, _, _) in enumerate(held)
            ]
            end = self.store.pull(topic, queue_id, queue_offset=len(held))
            assert end.status is PullStatus.OFFSET_OVERFLOW_ONE or not held

    def teardown(self):
        self.store.close()
        assert check_queues_match_log(self.directory) == sum(map(len, self.model.values()))
        shutil.rmtree(self.root)


StoreMachine.TestCase.settings = settings(
    max_examples=examples_to_try(15, 2),
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestStoreModel = StoreMachine.TestCase
