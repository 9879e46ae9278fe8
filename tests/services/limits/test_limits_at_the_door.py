"""Limits through real ports: a user's are its own, and in force at once; without accounts a connection's are."""

import threading
import time

import grpc
import pytest
from frame_outcomes import outcomes_of
from messaging_bed import message
from users import make_users

from penstock import Limits, Policy, RecordBatch, User
from penstock.credentials import Credentials
from penstock.v1 import reader_pb2, writer_pb2
from services.config.settings import ReaderSettings, WriterSettings
from services.config.values import NotNegative
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.reader.__main__ import serve as serve_reader
from services.testing import FREE_PORT, SMALL_FILES, BackgroundService, running_store
from services.writer.__main__ import serve as serve_writer
from storage.accounts.rules import UserKind

PRODUCE = "/penstock.v1.Writer/Produce"
STREAM = "/penstock.v1.Writer/ProduceStream"
PULL = "/penstock.v1.Reader/Pull"
RECEIVE = "/apache.rocketmq.v2.MessagingService/ReceiveMessage"
SEND = "/apache.rocketmq.v2.MessagingService/SendMessage"
TOO_MANY_REQUESTS = 42_900


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A store with accounts, and the metadata by which each of its users calls."""
    directory = tmp_path_factory.mktemp("limited") / "store"
    keys = make_users(directory, root=UserKind.SUPER, ann=UserKind.NORMAL, bob=UserKind.SUPER)
    with (
        running_store(directory, accounts=True) as store,
        store.client(access_key="root", secret_key=keys["root"]) as root,
    ):
        root.create_topic("orders", queues=1)
        root.put_policy(Policy(user="ann", resource="*", actions=("All",)))
        yield store, root, {name: Credentials(name, key).metadata() for name, key in keys.items()}


@pytest.fixture
def limit(limited):
    """Sets ann's limits, and no others."""
    _, root, _ = limited
    yield lambda **limits: root.update_user("ann", limits=Limits(**limits), reset_limits=True)
    root.update_user("ann", reset_limits=True)


@pytest.fixture
def call(limited):
    """Makes one call by a path as a user; returns the answer's bytes."""
    store, _, metadata = limited
    of_service = {"Writer": store.writer, "Reader": store.reader, "MessagingService": store.gateway}
    channels = {name: grpc.insecure_channel(address) for name, address in of_service.items()}

    def make(path, request, user="ann"):
        service = path.split("/")[1].rpartition(".")[2]
        also = (("x-mq-client-id", "c1"),)
        bytes_call = channels[service].unary_unary(path)
        return bytes_call(
            request.SerializeToString(), metadata=(*metadata[user], *also), timeout=20
        )

    yield make
    for channel in channels.values():
        channel.close()


def one_message(size=10):
    return writer_pb2.ProduceRequest(messages=[{"topic": "orders", "body": bytes(size)}])


def refusal_of(call, *arguments):
    with pytest.raises(grpc.RpcError) as refused:
        call(*arguments)
    return refused.value


def retry_delay_ms(error):
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    info = RetryInfo()
    assert any(each.Unpack(info) for each in Status.FromString(details).details)
    return info.retry_delay.ToMilliseconds()


def test_calls_beyond_a_user_s_rate_are_refused_with_a_delay_and_no_other_user_s(call, limit):
    limit(requests_per_second=2)
    made, error = 0, None
    while error is None:
        try:
            call(PRODUCE, one_message())
            made += 1
        except grpc.RpcError as refused:
            error = refused
    assert 2 <= made <= 10
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "user 'ann'" in error.details()
    assert 0 < retry_delay_ms(error) <= 500
    for _ in range(10):
        call(PRODUCE, one_message(), "bob")
    limit()
    for _ in range(10):
        call(PRODUCE, one_message())


def test_bytes_of_answers_count_too(call, limit):
    call(PRODUCE, one_message(20_000))
    pull = reader_pb2.PullRequest(topic="orders", queue_offset=0, max_messages=32)
    limit(bytes_per_second=5_000)
    call(PULL, pull)
    assert "5000 bytes a second" in refusal_of(call, PULL, pull).details()


def test_calls_that_fail_or_are_denied_count_no_more_once_they_have_ended(limited, call, limit):
    _, root, _ = limited
    limit(calls_max=2)
    missing = reader_pb2.PullRequest(topic="no-such", queue_offset=0)
    status = writer_pb2.GetWriterStatusRequest()
    root.delete_policies("ann")
    for _ in range(5):
        error = refusal_of(call, "/penstock.v1.Writer/GetWriterStatus", status)
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    root.put_policy(Policy(user="ann", resource="*", actions=("All",)))
    for _ in range(5):
        assert refusal_of(call, PULL, missing).code() is grpc.StatusCode.NOT_FOUND


def test_a_message_that_is_denied_counts_nothing_of_its_size(limited, call, limit):
    """Else the next call would tell whether it is there, and how long it is."""
    _, root, _ = limited
    stored = root.produce("orders", bytes(20_000))
    root.delete_policies("ann")
    limit(bytes_per_second=1_000)
    get = reader_pb2.GetMessageRequest(commit_offset=stored.commit_offset)
    for _ in range(2):
        error = refusal_of(call, "/penstock.v1.Reader/GetMessage", get)
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    root.put_policy(Policy(user="ann", resource="*", actions=("All",)))


def test_waiting_calls_count_until_they_end(limited, call, limit):
    limit(calls_max=2)
    _, root, _ = limited
    _, end = root.describe_topic("orders").queues[0]
    waiting = reader_pb2.PullRequest(topic="orders", queue_offset=end, wait_ms=20_000)

    def wait():
        while True:
            try:
                return call(PULL, waiting)
            except grpc.RpcError:  # the call below was there first
                time.sleep(0.01)

    waits = [threading.Thread(target=wait) for _ in range(2)]
    for each in waits:
        each.start()
    at_once = reader_pb2.PullRequest(topic="orders", queue_offset=0)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            call(PULL, at_once)
        except grpc.RpcError as error:
            assert "2 calls under way" in error.details()
            break
        time.sleep(0.02)
    else:
        pytest.fail("the third call was not refused")
    root.produce("orders", b"wakes them")
    for each in waits:
        each.join(20)
    call(PULL, at_once)


def test_frames_of_a_stream_wait_for_their_turn_and_none_is_lost(limited, limit):
    limit(requests_per_second=10)
    store, _, metadata = limited
    batch = RecordBatch("orders")
    batch.add(b"x")
    frame = writer_pb2.ProduceBatchRequest(records=bytes(batch.records())).SerializeToString()
    with grpc.insecure_channel(store.writer) as channel:
        began = time.monotonic()
        answers = list(channel.stream_stream(STREAM)(iter([frame] * 20), metadata=metadata["ann"]))
        took_s = time.monotonic() - began
    parsed = map(writer_pb2.ProduceStreamResponse.FromString, answers)
    assert [each.failure.code for each in outcomes_of(parsed)] == [0] * 20
    assert 0.7 <= took_s < 5


def test_a_rocketmq_client_reads_the_refusal_in_the_answer(call, limit):
    send = service_pb2.SendMessageRequest(messages=[message(v2.Resource(name="orders"))])

    def code():
        return service_pb2.SendMessageResponse.FromString(call(SEND, send)).status.code

    assert code() == v2.OK
    limit(requests_per_second=1)
    assert TOO_MANY_REQUESTS in [code() for _ in range(5)]


class ReaderOfFewCalls(ReaderSettings):
    """A reader whose default is one call of each user; the gateway's own default stays."""

    user_calls_max: NotNegative = 1


def test_the_gateway_s_port_of_a_reader_has_the_limits_of_a_gateway(limited):
    """Beside what waits at the reader's port, where a user may have one call, some wait at the gateway's."""
    store, root, metadata = limited
    settings = ReaderOfFewCalls(
        store=store.directory,
        listen=FREE_PORT,
        accounts=True,
        writer_address=store.writer,
        gateway_listen=FREE_PORT,
    )
    receive = service_pb2.ReceiveMessageRequest(batch_size=1)
    receive.group.name, receive.message_queue.topic.name = "nobody-s", "empty"
    receive.invisible_duration.seconds, receive.long_polling_timeout.seconds = 30, 2
    root.create_topic("empty", queues=1)
    wait = reader_pb2.PullRequest(topic="empty", queue_offset=0, wait_ms=20_000)
    with (
        BackgroundService(serve_reader, settings) as reader,
        grpc.insecure_channel(reader.address) as own,
        grpc.insecure_channel(reader.gateway_address) as gateway,
    ):
        pulls = [
            own.unary_unary(PULL).future(wait.SerializeToString(), metadata=metadata["ann"])
            for _ in range(2)
        ]
        is_refused = threading.Event()
        for each in pulls:
            each.add_done_callback(lambda _: is_refused.set())
        assert is_refused.wait(10)
        (refused,) = (each for each in pulls if each.done())
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        asked = [
            gateway.unary_stream(RECEIVE)(
                receive.SerializeToString(),
                metadata=(*metadata["ann"], ("x-mq-client-id", f"c{number}")),
                timeout=20,
            )
            for number in range(3)
        ]
        for each in asked:
            first, *_ = (service_pb2.ReceiveMessageResponse.FromString(data) for data in each)
            assert first.status.code == v2.MESSAGE_NOT_FOUND
        for each in pulls:
            each.cancel()


def test_a_user_s_limits_are_listed(limited, limit):
    _, root, _ = limited
    limit(requests_per_second=5, connections_max=0)
    ann = next(user for user in root.users() if user.name == "ann")
    assert isinstance(ann, User)
    assert ann.limits == Limits(requests_per_second=5, connections_max=0)
    assert root.update_user("ann", limits=Limits(calls_max=3)).limits == Limits(
        requests_per_second=5, connections_max=0, calls_max=3
    )


def test_without_accounts_each_connection_has_the_limits_of_the_settings(tmp_path):
    settings = WriterSettings(
        store=tmp_path / "store", listen=FREE_PORT, user_requests_per_second=3, **SMALL_FILES
    )
    with (
        BackgroundService(serve_writer, settings) as writer,
        grpc.insecure_channel(writer.address) as first,
        grpc.insecure_channel(writer.address, [("grpc.use_local_subchannel_pool", 1)]) as second,
    ):
        list_topics = "/penstock.v1.Writer/ListTopics"
        error = refusal_of(
            lambda: [first.unary_unary(list_topics)(b"", timeout=20) for _ in range(20)]
        )
        assert "a connection" in error.details()
        second.unary_unary(list_topics)(b"", timeout=20)
