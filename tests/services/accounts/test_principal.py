"""What a caller may do, by rules that change while threads ask."""

import pytest

from services.accounts.principal import Principal
from services.rpc.status import PermissionDenied, status_of
from storage.accounts.rules import Action, Resource, Rules, User, UserKind, checked_policy

ORDERS = Resource.topic("orders")
ANN = User(name="ann", kind=UserKind.NORMAL)


def rules_of(*resources):
    policies = tuple(
        checked_policy(user="ann", resource=each, actions=["Pub"]) for each in resources
    )
    return Rules(generation=len(resources), users={"ann": ANN}, policies={"ann": policies})


def test_a_name_longer_than_any_is_denied_in_few_words_and_not_kept():
    caller = Principal(lambda: rules, "ann", None, None)
    rules = rules_of("Topic:*")
    long = Resource.topic("x" * (1 << 20))
    with pytest.raises(PermissionDenied) as refused:
        caller.check(long, Action.PUB)
    assert len(status_of(refused.value).SerializeToString()) < 1_000
    assert not caller._seen.decisions
    assert caller.allows(Action.PUB, ORDERS)
    assert caller._seen.decisions


def test_names_of_any_length_are_not_kept_of_who_may_send_to_all():
    root = User(name="root", kind=UserKind.SUPER)
    rules = Rules(generation=1, users={"root": root}, policies={})
    caller = Principal(lambda: rules, "root", None, None)
    caller.check_sends({"x" * (1 << 20)})
    assert not caller._seen.sent
