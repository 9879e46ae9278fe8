"""What the official clients are asked to do, once for all languages."""

from __future__ import annotations

from lab import Scenario
from scenarios.delaying import delay, delay_passed, recall
from scenarios.documented import readme_example
from scenarios.failing import (
    dead_letter_after_attempts,
    dead_letter_by_forward,
    push_retry,
    slow_handler,
    slow_handler_75s,
)
from scenarios.leasing import change_extend, change_nack, lease_end, simple_ack
from scenarios.pushing import push_concurrent, push_orderly, tag_filter, two_members
from scenarios.restarting import restarts, stops
from scenarios.routing import split_routes, split_routes_tls
from scenarios.sending import (
    body_4mib,
    send_fifo,
    send_normal,
    send_together,
    sql_filter,
    tls,
    unknown_topic,
)
from scenarios.transacting import transaction_check, transaction_commit, transaction_rollback

PUSH = frozenset({"push"})
TRANSACTIONS = frozenset({"transactions"})
# Among the flags of a server of its own, and no flags: its routes are split, it serves TLS, it has accounts.
SPLIT, TLS, ACCOUNTS = "split", "tls", "accounts"
CHANGE = frozenset({"change"})
RECALL = frozenset({"recall"})

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(send_normal),
        Scenario(send_fifo),
        Scenario(send_together, frozenset({"together"})),
        Scenario(body_4mib),
        Scenario(unknown_topic),
        Scenario(readme_example, frozenset({"readme"}), plaintext_only=True),
        Scenario(tls, own_server={TLS: "", ACCOUNTS: ""}, tls=True),
        Scenario(transaction_commit, TRANSACTIONS),
        Scenario(transaction_rollback, TRANSACTIONS),
        Scenario(transaction_check, TRANSACTIONS),
        Scenario(delay),
        Scenario(delay_passed),
        Scenario(recall, RECALL),
        Scenario(simple_ack),
        Scenario(lease_end),
        Scenario(change_nack, CHANGE),
        Scenario(change_extend, CHANGE),
        Scenario(tag_filter),
        Scenario(sql_filter),
        Scenario(push_concurrent, PUSH),
        Scenario(push_orderly, PUSH),
        Scenario(two_members, PUSH),
        Scenario(push_retry, PUSH),
        Scenario(dead_letter_after_attempts, PUSH),
        Scenario(dead_letter_by_forward, PUSH),
        Scenario(slow_handler, PUSH, own_server={"push-lease-ms": "3000"}),
        Scenario(slow_handler_75s, PUSH, slow=True),
        Scenario(restarts, PUSH, own_server={}),
        Scenario(stops, own_server={}, penstock_only=True),
        Scenario(split_routes, own_server={SPLIT: ""}, penstock_only=True),
        Scenario(split_routes_tls, own_server={SPLIT: "", TLS: ""}, tls=True, penstock_only=True),
    )
}
