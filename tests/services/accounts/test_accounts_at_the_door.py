"""Accounts through real ports: who is let in, what a right covers, and how soon a change is in force."""

import threading
import time

import grpc
import pytest
from frame_outcomes import outcomes_of
from messaging_bed import message
from real_processes import until
from users import make_users

from penstock import Client, PermissionDenied, Policy, RecordBatch, Unauthenticated
from penstock.credentials import Credentials
from penstock.errors import InvalidArgument, MessageNotFound
from penstock.v1 import (
    transactions_pb2,
    transactions_pb2_grpc,
    writer_pb2,
)
from services.config.settings import (
    GatewaySettings,
    WriterSettings,
)
from services.gateway.__main__ import serve as serve_gateway
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.testing import FREE_PORT, SMALL_FILES, BackgroundService, running_store
from services.writer.__main__ import serve as serve_writer
from storage.accounts.rules import UserKind
from storage.errors import BrokenAccounts

TOPICS = ("orders", "bills")
SOON_S = 1.0  # a change of the rules ends open calls by then, with the time that a slow machine takes on top


class GuardedStore:
    """A running store with accounts, and the keys of its users."""

    def __init__(self, store, keys):
        self.store, self.keys = store, keys

    def __getattr__(self, name):
        return getattr(self.store, name)

    def as_user(self, name, **options):
        return self.store.client(access_key=name, secret_key=self.keys[name], **options)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guarded") / "store"
    keys = make_users(directory, root=UserKind.SUPER)
    with running_store(directory, accounts=True) as store:
        guarded = GuardedStore(store, keys)
        with guarded.as_user("root") as root:
            for topic in TOPICS:
                root.create_topic(topic, queues=1)
                root.produce(topic, b"first", keys=["k"])
        yield guarded


@pytest.fixture
def root(guarded):
    with guarded.as_user("root") as client:
        yield client


@pytest.fixture
def ann(guarded, root):
    """A user without any policy."""
    guarded.keys["ann"] = root.create_user("ann").secret_key
    with guarded.as_user("ann") as client:
        yield client
    root.delete_user("ann")


def allow(root, resource, *actions, **changes):
    return root.put_policy(Policy(user="ann", resource=resource, actions=actions, **changes))


CALLS = {
    "produce": lambda client, topic: client.produce(topic, b"x"),
    "produce_batch": lambda client, topic: client.produce_batch(encoded(topic)),
    "pull": lambda client, topic: client.pull(topic, 0, 0),
    "query": lambda client, topic: list(client.query_by_key(topic, "k")),
    "receive": lambda client, topic: client.receive(topic, group="group"),
    "create": lambda client, topic: client.create_topic(f"{topic}-new", queues=1),
    "update": lambda client, topic: client.update_topic(topic, queues=1),
    "delete": lambda client, topic: client.delete_topic(f"{topic}-new"),
    "commit": lambda client, topic: client.commit_offset("group", topic, 0, 0),
    "status": lambda client, _: client.writer_status(),
    "create group": lambda client, _: client.create_group("group-new"),
    "users": lambda client, _: client.users(),
}
RIGHTS_OF = {
    "produce": [("Topic:orders", "Pub")],
    "produce_batch": [("Topic:orders", "Pub")],
    "pull": [("Topic:orders", "Sub")],
    "query": [("Topic:orders", "Sub")],
    "receive": [("Topic:orders", "Sub"), ("Group:group", "Sub")],
    "create": [("Topic:orders*", "Create")],
    "update": [("Topic:orders", "Update")],
    "delete": [("Topic:orders*", "Delete")],
    "commit": [("Topic:orders", "Sub"), ("Group:group", "Sub")],
    "status": [("Cluster:*", "Get")],
    "create group": [("Group:group-new", "Create")],
}


def encoded(topic):
    batch = RecordBatch(topic)
    batch.add(b"x")
    return batch


def staged_records(staged, attempt, topic):
    batch = RecordBatch(topic)
    batch.add(b"x", unique_key=staged.unique_key(attempt, 0))
    return batch.records()


@pytest.mark.parametrize("name", RIGHTS_OF)
def test_a_call_needs_its_rights_and_no_others(ann, root, name):
    call = CALLS[name]
    with pytest.raises(PermissionDenied):
        call(ann, "orders")
    *others, last = RIGHTS_OF[name]
    for resource, action in others:
        allow(root, resource, action)
        with pytest.raises(PermissionDenied):
            call(ann, "orders")
    allow(root, *last)
    call(ann, "orders")
    if name not in ("status", "create group"):
        with pytest.raises(PermissionDenied):
            call(ann, "bills")


def test_nobody_but_a_super_user_changes_accounts(ann, root):
    allow(root, "*", "All")
    with pytest.raises(PermissionDenied):
        CALLS["users"](ann, "")
    assert "ann" in {user.name for user in root.users()}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_says_of_nobody_credibly_is_unauthenticated(guarded, ann, name):
    for options in (
        {},
        {"access_key": "ann", "secret_key": "wrong"},
        {"access_key": "eve", "secret_key": "x"},
    ):
        with guarded.client(**options) as client, pytest.raises(Unauthenticated) as refused:
            CALLS[name](client, "orders")
        assert "eve" not in refused.value.message


def test_a_disabled_user_and_an_old_key_are_refused_at_once_by_every_service(guarded, ann, root):
    for resource in ("Topic:*", "Cluster:*"):
        allow(root, resource, "All")
    looks = (ann.writer_status, ann.reader_status, ann.indexer_status)
    for look in looks:
        look()
    root.update_user("ann", enabled=False)
    for look in looks:
        with pytest.raises(Unauthenticated):
            look()
    root.update_user("ann", enabled=True)
    new = root.add_secret("ann").secret_key
    for look in looks:
        look()
    root.update_user("ann", drop_old_secrets=True)
    with guarded.client(access_key="ann", secret_key=new) as rotated:
        for look, again in zip(
            looks,
            (rotated.writer_status, rotated.reader_status, rotated.indexer_status),
            strict=True,
        ):
            with pytest.raises(Unauthenticated):
                look()
            again()


def test_a_source_address_limits_a_policy(ann, root):
    allow(root, "Topic:orders", "Pub", sources=("10.0.0.0/8",))
    with pytest.raises(PermissionDenied):
        ann.produce("orders", b"x")
    allow(root, "Topic:orders", "Pub", sources=("127.0.0.0/8", "::1"))
    ann.produce("orders", b"x")


def test_lists_show_what_one_may_see(ann, root):
    assert ann.topics() == []
    allow(root, "Topic:orders", "Get")
    assert [topic.name for topic in ann.topics()] == ["orders"]
    assert {topic.name for topic in root.topics()} >= set(TOPICS)
    root.create_group("group-a")
    root.create_group("group-b")
    allow(root, "Group:group-a", "List")
    assert [group.name for group in ann.group_settings()] == ["group-a"]
    root.delete_group("group-a")
    root.delete_group("group-b")


def test_a_message_by_its_id_is_shown_to_who_may_consume_its_topic(ann, root):
    (record,) = root.pull("orders", 0, 0, max_messages=1).records
    problems = set()
    for commit_offset in (record.commit_offset, record.commit_offset + 1, 1 << 40):
        with pytest.raises(PermissionDenied) as refused:
            ann.message(commit_offset)
        problems.add(refused.value.message)
    assert len(problems) == 1
    assert "orders" not in problems.pop()
    allow(root, "Topic:orders", "Sub")
    assert ann.message(record.commit_offset).body == b"first"
    allow(root, "Topic:*", "Sub")
    with pytest.raises(MessageNotFound):
        ann.message(1 << 40)


def test_a_group_in_a_topic_is_shown_to_who_may_see_both(ann, root):
    root.create_group("group-c")
    allow(root, "Group:group-c", "Sub")
    looks = (ann.describe_group, ann.offsets)
    for look in looks:
        look("group-c")
        with pytest.raises(PermissionDenied, match="Topic:orders"):
            look("group-c", topic="orders")
    allow(root, "Topic:orders", "Sub")
    for look in looks:
        look("group-c", topic="orders")
    root.delete_group("group-c")


def test_a_message_s_way_shows_the_groups_one_may_see(ann, root):
    for group in ("group-d", "group-e"):
        root.receive("orders", group=group, max_messages=1)
    allow(root, "Group:group-d", "Get")
    with pytest.raises(PermissionDenied, match="Topic:orders"):
        ann.track("orders", 0, 0)
    allow(root, "Topic:orders", "Get")
    assert [track.group for track in ann.track("orders", 0, 0)] == ["group-d"]
    assert {"group-d", "group-e"} <= {track.group for track in root.track("orders", 0, 0)}


def test_traffic_shows_the_topics_and_groups_one_may_see(ann, root):
    for group in ("group-f", "group-g"):
        root.receive("orders", group=group, max_messages=1)
    allow(root, "Group:group-f", "Get")
    assert ann.traffic_in() == []
    assert [lag.group for lag in ann.traffic_out().lags] == ["group-f"]
    assert ann.traffic_out().sent == ()
    allow(root, "Topic:orders", "Get")
    assert [each.topic for each in ann.traffic_in()] == ["orders"]
    assert {each.group for each in ann.traffic_out().sent} == {"group-f"}
    assert {"group-f", "group-g"} <= {each.group for each in root.traffic_out().sent}


def test_a_topic_that_is_left_open_is_denied_to_who_is_denied_one(guarded, ann, root):
    metadata = Credentials("ann", guarded.keys["ann"]).metadata()
    about = {"resolution": transactions_pb2.RESOLUTION_ROLLBACK}
    allow(root, "Topic:*", "Pub")
    with grpc.insecure_channel(guarded.writer) as channel:
        stub = transactions_pb2_grpc.TransactionsStub(channel)
        stub.EndTransactions(transactions_pb2.EndTransactionsRequest(**about), metadata=metadata)
        allow(root, "Topic:secret", "Pub", deny=True)
        with pytest.raises(grpc.RpcError) as refused:
            stub.EndTransactions(
                transactions_pb2.EndTransactionsRequest(**about), metadata=metadata
            )
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_denial_says_nothing_about_what_exists(ann):
    problems = []
    for topic in ("orders", "no-such"):
        with pytest.raises(PermissionDenied) as refused:
            ann.pull(topic, 0, 0)
        problems.append(refused.value.message.replace(topic, "TOPIC"))
    assert problems[0] == problems[1]


def test_one_batch_with_a_topic_too_many_is_refused_whole_and_the_stream_goes_on(
    guarded, ann, root
):
    allow(root, "Topic:orders", "Pub")
    before = root.describe_topic("orders").queues[0][1]
    metadata = Credentials("ann", guarded.keys["ann"]).metadata()
    frames = [encoded("orders"), encoded("bills"), encoded("orders")]
    mixed = bytes(encoded("orders").records()) + bytes(encoded("bills").records())
    with grpc.insecure_channel(guarded.writer) as channel:
        stream = channel.stream_stream(
            "/penstock.v1.Writer/ProduceStream",
            request_serializer=writer_pb2.ProduceBatchRequest.SerializeToString,
            response_deserializer=writer_pb2.ProduceStreamResponse.FromString,
        )
        records = [*(bytes(each.records()) for each in frames), mixed]
        requests = [writer_pb2.ProduceBatchRequest(records=each) for each in records]
        answers = list(stream(iter(requests), metadata=metadata))
    codes = [each.failure.code for each in outcomes_of(answers)]
    assert codes == [
        0,
        grpc.StatusCode.PERMISSION_DENIED.value[0],
        0,
        grpc.StatusCode.PERMISSION_DENIED.value[0],
    ]
    assert root.describe_topic("orders").queues[0][1] == before + 2


@pytest.mark.parametrize("body_bytes", [10, 400_000])
@pytest.mark.parametrize("topics", [["orders"], ["nope"], ["orders", "nope"]], ids="+".join)
@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_a_produce_in_any_form_is_checked_before_its_topics_are_looked_up(
    guarded, ann, root, topics, body_bytes, delay_ms
):
    """Small plain requests, several messages, large ones in a thread, and delayed ones take ways of their own."""
    before = root.describe_topic("orders").queues[0][1]
    metadata = Credentials("ann", guarded.keys["ann"]).metadata()
    messages = [
        {"topic": topic, "body": bytes(body_bytes), "delay_ms": delay_ms} for topic in topics
    ]
    with grpc.insecure_channel(guarded.writer) as channel:
        produce = channel.unary_unary(
            "/penstock.v1.Writer/Produce",
            request_serializer=writer_pb2.ProduceRequest.SerializeToString,
        )
        with pytest.raises(grpc.RpcError) as refused:
            produce(writer_pb2.ProduceRequest(messages=messages), metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert root.describe_topic("orders").queues[0][1] == before


def test_a_right_that_goes_is_asked_for_by_the_next_produce(ann, root):
    allow(root, "Topic:orders", "Pub")
    ann.produce("orders", b"x")
    root.delete_policies("ann")
    with pytest.raises(PermissionDenied):
        ann.produce("orders", b"x")


def test_a_pull_that_waits_ends_when_its_right_goes(ann, root):
    allow(root, "Topic:orders", "Sub")
    end = root.describe_topic("orders").queues[0][1]
    raised = []

    def wait():
        with pytest.raises(PermissionDenied) as refused:
            ann.pull("orders", 0, end, wait_ms=20_000, timeout_s=30)
        raised.append(refused.value)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    time.sleep(0.3)
    root.delete_policies("ann")
    waiting.join(SOON_S + 5)
    assert raised


def test_half_messages_and_staged_records_are_checked_by_their_topics(guarded, ann, root):
    metadata = Credentials("ann", guarded.keys["ann"]).metadata()
    records = bytes(encoded("bills").records())
    with grpc.insecure_channel(guarded.writer) as channel:
        prepare = channel.unary_unary(
            "/penstock.v1.Transactions/Prepare",
            request_serializer=transactions_pb2.PrepareRequest.SerializeToString,
        )
        with pytest.raises(grpc.RpcError) as refused:
            prepare(transactions_pb2.PrepareRequest(records=records), metadata=metadata)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    allow(root, "Topic:orders", "Pub")
    allow(root, "Cluster:*", "Pub")
    staged = ann.staged_commit("app", 1)
    staged.stage("attempt", [staged_records(staged, "attempt", "orders")])
    with pytest.raises(PermissionDenied):
        staged.stage("another", [staged_records(staged, "another", "bills")])


def test_a_stream_ends_when_its_right_goes(ann, root):
    allow(root, "Topic:orders", "Sub")
    stream = ann.pull_stream("orders", 0, 0, follow=True)
    assert next(iter(stream)).records
    ended = threading.Event()
    raised = []

    def follow():
        try:
            for _ in stream:
                pass
        except PermissionDenied as error:
            raised.append(error)
        ended.set()

    threading.Thread(target=follow, daemon=True).start()
    began = time.monotonic()
    root.delete_policies("ann")
    assert ended.wait(SOON_S + 5)
    assert time.monotonic() - began < SOON_S + 2
    assert isinstance(raised[0], PermissionDenied)


def test_what_is_stored_is_found_by_a_gateway_that_calls_for_its_users(guarded, ann, root):
    """A message goes in and comes out through the gateway's port; a topic too many is FORBIDDEN in the answer."""
    allow(root, "Topic:orders", "Pub", "Sub", "Get")
    allow(root, "Group:mq", "Sub")
    metadata = (*Credentials("ann", guarded.keys["ann"]).metadata(), ("x-mq-client-id", "c1"))
    service = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]

    def call(method, request, metadata=metadata):
        kinds = service.methods_by_name[method]
        with grpc.insecure_channel(guarded.gateway) as channel:
            make = channel.unary_stream if kinds.server_streaming else channel.unary_unary
            answer = make(
                f"/{service.full_name}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=getattr(service_pb2, f"{method}Response").FromString,
            )(request, metadata=metadata, timeout=20)
            return list(answer) if kinds.server_streaming else answer

    def send(topic):
        request = service_pb2.SendMessageRequest(
            messages=[message(v2.Resource(name=topic), b"by the gateway")]
        )
        return call("SendMessage", request).status.code

    assert send("orders") == 20_000
    assert send("bills") == 40_300
    asked = service_pb2.ReceiveMessageRequest(batch_size=32)
    asked.group.name, asked.message_queue.topic.name = "mq", "orders"
    asked.invisible_duration.seconds, asked.long_polling_timeout.seconds = 30, 5
    bodies = [
        each.message.body for each in call("ReceiveMessage", asked) if each.HasField("message")
    ]
    assert b"by the gateway" in bodies
    asked.group.name = "other"
    (refused,) = call("ReceiveMessage", asked)
    assert refused.status.code == 40_300
    nobody = (
        ("x-mq-client-id", "c1"),
        ("authorization", "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature=00"),
    )
    route = service_pb2.QueryRouteRequest(topic={"name": "orders"})
    route.endpoints.scheme = v2.IPv4
    route.endpoints.addresses.add(host="127.0.0.1", port=1)
    assert call("QueryRoute", route).status.code == 20_000
    assert call("QueryRoute", route, nobody).status.code == 40_100
    assert call("Heartbeat", service_pb2.HeartbeatRequest(), ()).status.code == 20_000


def test_health_is_open_and_reflection_is_for_users(guarded, ann):
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
    with grpc.insecure_channel(guarded.reader) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            list(reflection.ServerReflectionInfo(iter(asked)))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        metadata = Credentials("ann", guarded.keys["ann"]).metadata()
        assert list(reflection.ServerReflectionInfo(iter(asked), metadata=metadata))


@pytest.mark.parametrize(
    ("service", "method"),
    [
        ("writer", "Transactions/ReturnChecks"),
        ("writer", "DeadLetters/AppendDeadLetters"),
        ("reader", "Authentication/GetRules"),
    ],
)
def test_methods_of_the_store_s_own_services_are_nobody_else_s(guarded, root, service, method):
    metadata = Credentials("root", guarded.keys["root"]).metadata()
    address = getattr(guarded, service)
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(f"/penstock.v1.{method}")(b"", metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_an_account_that_breaks_a_rule_is_refused_with_its_field(root):
    with pytest.raises(InvalidArgument) as refused:
        root.put_policy(Policy(user="root", resource="orders", actions=("Pub",)))
    assert refused.value.field == "resource"


def test_without_a_user_accounts_refuse_to_start(tmp_path):
    settings = WriterSettings(
        store=tmp_path / "store", listen=FREE_PORT, accounts=True, **SMALL_FILES
    )
    with (
        pytest.raises(BrokenAccounts, match="penstock user create"),
        BackgroundService(serve_writer, settings),
    ):
        pass


def test_a_gateway_on_another_machine_asks_the_reader(guarded, ann, root, monkeypatch):
    guarded.keys["gate"] = root.create_user("gate", "service").secret_key
    monkeypatch.setenv("PENSTOCK_ACCESS_KEY", "gate")
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", guarded.keys["gate"])
    settings = GatewaySettings(
        listen=FREE_PORT,
        accounts=True,
        writer_address=guarded.writer,
        reader_address=guarded.reader,
    )
    allow(root, "Topic:orders", "Pub")
    metadata = (*Credentials("ann", guarded.keys["ann"]).metadata(), ("x-mq-client-id", "c2"))
    path = "/apache.rocketmq.v2.MessagingService/SendMessage"
    request = service_pb2.SendMessageRequest(messages=[message(v2.Resource(name="orders"))])
    with (
        BackgroundService(serve_gateway, settings) as gateway,
        grpc.insecure_channel(gateway.address) as channel,
    ):
        send = channel.unary_unary(
            path,
            request_serializer=service_pb2.SendMessageRequest.SerializeToString,
            response_deserializer=service_pb2.SendMessageResponse.FromString,
        )

        def code(metadata):
            return send(request, metadata=metadata, timeout=20).status.code

        assert code(metadata) == 20_000
        wrong = Credentials("ann", "wrong").metadata()
        assert code((*wrong, ("x-mq-client-id", "c2"))) == 40_100
        root.delete_policies("ann")
        until(lambda: code(metadata) == 40_300, seconds=SOON_S + 5)
        root.update_user("ann", enabled=False)
        until(lambda: code(metadata) == 40_100, seconds=SOON_S + 5)
    root.delete_user("gate")


def test_accounts_on_a_network_need_tls(tmp_path):
    with pytest.raises(ValueError, match="--accounts it needs --tls-cert"):
        WriterSettings(store=tmp_path, listen="0.0.0.0:0", accounts=True, plaintext=True)


def test_a_gateway_with_keys_and_without_accounts_does_not_start(guarded, root, monkeypatch):
    """It would call as that user for everybody."""
    monkeypatch.setenv("PENSTOCK_ACCESS_KEY", "gate")
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", root.create_user("gate", "service").secret_key)
    settings = GatewaySettings(
        listen=FREE_PORT, writer_address=guarded.writer, reader_address=guarded.reader
    )
    try:
        with (
            pytest.raises(BrokenAccounts, match="without --accounts"),
            BackgroundService(serve_gateway, settings),
        ):
            pass
    finally:
        root.delete_user("gate")


def test_a_store_with_accounts_does_not_forget_them(tmp_path):
    store = tmp_path / "store"
    make_users(store, root=UserKind.SUPER)
    settings = WriterSettings(store=store, listen=FREE_PORT, **SMALL_FILES)
    with (
        pytest.raises(BrokenAccounts, match="has accounts"),
        BackgroundService(serve_writer, settings),
    ):
        pass
    open_to_all = WriterSettings(store=store, listen=FREE_PORT, accounts=False, **SMALL_FILES)
    with (
        BackgroundService(serve_writer, open_to_all) as writer,
        Client(writer=writer.address) as client,
    ):
        assert client.topics() == []
