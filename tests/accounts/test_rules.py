"""Which policy decides, by RocketMQ 5's ACL 2.0 and the stricter rule for ties."""

import ipaddress

import pytest

from storage.accounts.rules import (
    THE_CLUSTER,
    Action,
    Pattern,
    Resource,
    Rules,
    User,
    UserKind,
    checked_policy,
    checked_user_name,
)
from storage.errors import InvalidMessage

HERE = ipaddress.ip_address("10.0.0.7")
ANN = User(name="ann", kind=UserKind.NORMAL, secrets=("s",))


ORDERS = Resource.topic("orders-1")


def allows(policies, resource=ORDERS, action=Action.PUB, source=HERE, user=ANN):
    made = tuple(checked_policy(user="ann", **{"actions": ["Pub"], **each}) for each in policies)
    rules = Rules(generation=1, users={"ann": ANN}, policies={"ann": made})
    return rules.allows(user, resource, action, source)


@pytest.mark.parametrize(
    ("policies", "allowed"),
    [
        ([], False),
        ([{"resource": "Topic:orders-1"}], True),
        ([{"resource": "Topic:orders-2"}], False),
        ([{"resource": "Topic:orders*"}], True),
        ([{"resource": "Topic:orders-1*"}], True),
        ([{"resource": "Topic:order"}], False),
        ([{"resource": "Topic:*"}], True),
        ([{"resource": "*"}], True),
        ([{"resource": "Group:*"}], False),
        ([{"resource": "Topic:*", "actions": ["Sub", "Get"]}], False),
        ([{"resource": "Topic:*", "actions": ["All"]}], True),
        # The most exact one wins, whatever it decides and in which order they came.
        ([{"resource": "Topic:orders*", "decision": "deny"}, {"resource": "Topic:orders-1"}], True),
        ([{"resource": "Topic:orders-1", "decision": "deny"}, {"resource": "Topic:*"}], False),
        ([{"resource": "Topic:orders*"}, {"resource": "Topic:*", "decision": "deny"}], True),
        ([{"resource": "Topic:*"}, {"resource": "*", "decision": "deny"}], True),
        # On a tie a denial wins: a broker sorts it last.
        ([{"resource": "Topic:*"}, {"resource": "Topic:*", "decision": "deny"}], False),
        # What is not default comes first, however exact the default is.
        (
            [
                {"resource": "Topic:orders-1", "decision": "deny", "is_default": True},
                {"resource": "*"},
            ],
            True,
        ),
        ([{"resource": "Topic:orders*", "is_default": True}], True),
        # A policy for other actions or addresses says nothing about these.
        (
            [
                {"resource": "Topic:orders-1", "decision": "deny", "actions": ["Sub"]},
                {"resource": "Topic:*"},
            ],
            True,
        ),
        ([{"resource": "Topic:*", "sources": ["10.0.0.0/8"]}], True),
        ([{"resource": "Topic:*", "sources": ["10.0.0.7"]}], True),
        ([{"resource": "Topic:*", "sources": ["10.0.0.8", "192.168.0.0/16", "::1"]}], False),
    ],
)
def test_the_most_exact_policy_decides(policies, allowed):
    assert allows(policies) is allowed


def test_an_address_that_is_not_known_matches_no_source():
    assert not allows([{"resource": "Topic:*", "sources": ["0.0.0.0/0"]}], source=None)
    assert allows([{"resource": "Topic:*"}], source=None)


def test_super_users_and_services_need_no_policy():
    denied = [{"resource": "*", "decision": "deny", "actions": ["All"]}]
    for kind in (UserKind.SUPER, UserKind.SERVICE):
        assert allows(denied, user=User(name="ann", kind=kind))


def test_only_a_pattern_for_all_of_a_kind_covers_a_name_that_is_left_open():
    any_topic = Resource.topic("*")
    assert allows([{"resource": "Topic:*"}], any_topic)
    assert not allows([{"resource": "Topic:orders*"}], any_topic)
    assert allows([{"resource": "Cluster:*"}], THE_CLUSTER)


def test_retry_topics_and_dead_letters_belong_to_their_group():
    for topic in ("%RETRY%billing", "%DLQ%billing"):
        assert Resource.topic(topic) == Resource.group("billing")
    assert not allows([{"resource": "Topic:*"}], Resource.topic("%DLQ%billing"))


@pytest.mark.parametrize(
    "text", ["", "orders", "Topic:", "topic:x", "Topic:a*b", "User:x", "Topic"]
)
def test_what_is_no_pattern_is_refused(text):
    with pytest.raises(InvalidMessage, match="resource"):
        Pattern.parse(text)


@pytest.mark.parametrize("text", ["Topic:a", "Topic:a*", "Topic:*", "Group:%x", "Cluster:*", "*"])
def test_a_pattern_reads_as_it_is_written(text):
    assert str(Pattern.parse(text)) == text


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("actions", {"actions": ["Publish"]}),
        ("actions", {"actions": []}),
        ("sources", {"sources": ["10.0.0.300"]}),
        ("decision", {"decision": "maybe"}),
    ],
)
def test_what_is_no_policy_is_refused(field, change):
    with pytest.raises(InvalidMessage) as refused:
        checked_policy(**{"user": "ann", "resource": "*", "actions": ["Pub"], **change})
    assert refused.value.field == field


@pytest.mark.parametrize("name", ["", "a b", "ann/x", "änn", "a" * 65])
def test_what_is_no_user_name_is_refused(name):
    with pytest.raises(InvalidMessage, match="user"):
        checked_user_name(name)


@pytest.mark.parametrize(
    ("denied", "allowed"),
    [
        ({"resource": "Topic:secret"}, False),
        ({"resource": "Topic:secret*", "is_default": True}, False),
        ({"resource": "Topic:secret", "actions": ["Sub"]}, True),
        ({"resource": "Topic:secret", "sources": ["192.168.0.0/16"]}, True),
        ({"resource": "Group:secret"}, True),
        ({"resource": "*"}, True),  # which the policy for all topics comes before
    ],
)
def test_a_name_that_is_left_open_is_denied_to_who_is_denied_one_of_its_kind(denied, allowed):
    policies = [{"resource": "Topic:*"}, {"decision": "deny", **denied}]
    assert allows(policies, Resource.topic("*")) is allowed
