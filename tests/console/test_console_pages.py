"""What the console's pages show and do, over a running store."""

from __future__ import annotations

import html
import json
import re
import time
from datetime import datetime
from typing import Any

import pytest
from real_processes import until

from penstock import Client, StoredQueue
from services.bodies import hex_dump
from services.console.pages.log import topic_mix
from services.console.rates import KEPT, RATE_KEPT, Rates
from services.testing import RunningStore

BAD_BODIES = {
    b"<script>alert(1)</script>": "<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>': '"><img src=x onerror=alert(1)>',
    b"\xff\xfe\x00\x01 not utf-8": "\\xff\\xfe\\x00\\x01 not utf-8",
    b"\x1b[31m red \xe2\x80\xae turned": "\\x1b[31m red \\u202e turned",
    b"": "",
}


def shown_body(page: str) -> str:
    found = re.search(r'<pre tabindex="0" aria-label="Body">(.*?)</pre>', page, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


@pytest.mark.parametrize("body", BAD_BODIES)
@pytest.mark.parametrize("form", ["", "text", "json", "hex"])
def test_a_body_is_shown_and_never_run(
    browser: Any, client: Client, topic: str, body: bytes, form: str
) -> None:
    hidden = "turn\u202eed"
    stored = client.produce(
        topic, body, tag="<b>", keys=[hidden], properties={"a": "<i>x</i>", "b": hidden}
    )
    page = browser.get(f"/message?at={stored.commit_offset}&as={form}").text
    table = browser.get(f"/topics/{topic}/browse").text

    assert "<script>alert" not in page + table and "<img src=x" not in page + table
    assert "<i>x" not in page and "<b>" not in page + table
    assert "\x1b" not in page + table and "\u202e" not in page + table
    is_hex = form == "hex" or (form != "text" and body.startswith(b"\xff"))
    assert shown_body(page) == (hex_dump(body) if is_hex else BAD_BODIES[body])


def test_what_a_page_asks_for_anew_has_no_body(browser: Any, client: Client, topic: str) -> None:
    stored = client.produce(topic, b"large")
    live = browser.get(f"/message?at={stored.commit_offset}", headers={"hx-request": "true"}).text

    assert "Its way" in live and "large" not in live


def test_a_body_is_downloaded_as_it_is(browser: Any, client: Client, topic: str) -> None:
    stored = client.produce(topic, b"<script>alert(1)</script>")
    answer = browser.get(f"/message/body?at={stored.commit_offset}")

    assert answer.content == b"<script>alert(1)</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


def test_json_is_shown_with_indents_and_a_long_body_in_part(
    browser: Any, client: Client, topic: str
) -> None:
    at = client.produce(topic, b'{"id": 1, "of": ["a"]}').commit_offset
    long_one = client.produce(topic, "ä".encode() * 60_000).commit_offset

    assert json.loads(shown_body(browser.get(f"/message?at={at}").text)) == {"id": 1, "of": ["a"]}
    page = browser.get(f"/message?at={long_one}").text
    assert "The first 64 KiB are shown" in page
    assert set(shown_body(page)) == {"ä"}


@pytest.mark.parametrize(
    ("address", "status", "says"),
    [
        ("/topics/none", 404, "There is no such thing"),
        ("/topics/none/browse", 404, "There is no such thing"),
        ("/topics/none/follow", 404, "There is no such thing"),
        ("/groups/none", 404, "There is no such thing"),
        ("/message?at=999999999", 404, "There is no such thing"),
        ("/message?at=x", 400, "give a whole number"),
        ("/message?at=99999999999999999999999", 400, "give a whole number"),
        ("/message", 400, "give a whole number"),
        ("/messages?id=zz", 400, "not understood"),
        ("/topics?page=minus", 400, "give a whole number"),
        ("/nothing", 404, "There is no such page"),
        ("/topics/{topic}/browse?sql=((", 400, "SQL filter"),
        ("/topics/{topic}/browse?from=yesterday", 400, "is not a time"),
        ("/topics/{topic}/browse?queue=7", 400, "has no queue 7"),
        ("/topics/{topic}/follow?cursor=x", 400, "damaged"),
        ("/messages?topic={topic}&key=a&since=never", 400, "is not a time"),
        ("/groups/none/reset?topic={topic}&to=5", 400, "give its number"),
    ],
)
def test_what_is_not_there_or_not_understood_is_a_clear_page(
    browser: Any, topic: str, address: str, status: int, says: str
) -> None:
    answer = browser.get(address.format(topic=topic))

    assert answer.status_code == status
    assert says in html.unescape(answer.text)


def test_a_topic_is_made_changed_and_deleted_with_its_name_typed(
    browser: Any, client: Client
) -> None:
    made = browser.post("/topics", name="shop", queues="4")
    assert "Topic shop is made." in made.text
    assert client.describe_topic("shop").topic.write_queue_count == 4
    assert "exists" in browser.post("/topics", name="shop", queues="4").text
    assert browser.post("/topics", name="shop 2", queues="4").status_code == 400

    browser.post("/topics/shop/update", write_queues="2", read_queues="4", perm="6")
    assert client.describe_topic("shop").topic.write_queue_count == 2
    refused = browser.post("/topics/shop/delete", typed="shpo")
    assert refused.status_code == 400
    assert 'data-live="0"' in refused.text  # it does not ask for itself anew
    assert browser.get("/topics/shop").status_code == 200
    assert "Topic shop is deleted." in browser.post("/topics/shop/delete", typed="shop").text
    assert browser.get("/topics/shop").status_code == 404


def test_a_page_of_dead_letters_asks_for_itself_anew(browser: Any, client: Client) -> None:
    client.create_topic("%DLQ%accounts", queues=1)

    shown = browser.get("/topics/%2525DLQ%2525accounts?page=1").text  # its client decodes twice
    assert 'hx-get="/topics/%25DLQ%25accounts?page=1"' in shown


def test_read_queues_in_use_go_only_by_force(
    browser: Any, client: Client, store: RunningStore
) -> None:
    client.create_topic("narrow", queues=2)
    client.create_group("reads-narrow")
    client.receive("narrow", group="reads-narrow")
    client.produce("narrow", b"left", queue_id=1)
    saved = store.directory / "config" / "consumerOffset.json"
    until(
        lambda: saved.exists() and b"reads-narrow" in saved.read_bytes()
    )  # the writer looks there
    refused = browser.post("/topics/narrow/update", write_queues="1", read_queues="1")

    assert refused.status_code == 409
    assert "With force it is not read" in refused.text
    assert client.describe_topic("narrow").topic.read_queue_count == 2
    browser.post("/topics/narrow/update", write_queues="1", read_queues="1", force="yes")
    assert client.describe_topic("narrow").topic.read_queue_count == 1


def test_a_message_is_sent_with_all_it_may_have_and_found_by_key(
    browser: Any, client: Client, topic: str
) -> None:
    sent = browser.post(
        f"/topics/{topic}/send",
        body="two pens",
        keys="order-7 order-8",
        tag="paid",
        properties="region=north\nlevel=3",
    )
    assert "Stored in queue 0 at offset 0" in sent.text
    [record] = client.query_by_key(topic, "order-7")
    assert (record.body, record.tag, record.keys) == (b"two pens", "paid", ("order-7", "order-8"))
    assert record.properties["region"] == "north"
    page = browser.get(f"/messages?topic={topic}&key=order-8").text
    assert shown_body(page) == "two pens"
    assert browser.post(f"/topics/{topic}/send", body="x", properties="no").status_code == 400


def test_a_delayed_message_is_recalled(browser: Any, client: Client, topic: str) -> None:
    sent = browser.post(f"/topics/{topic}/send", body="later", delay_s="3600")
    found = re.search(r"Its recall handle: (\S+)</p>", sent.text)
    assert found is not None
    recalled = browser.post("/later/recall", handle=html.unescape(found[1]))

    assert "Recalled: message" in recalled.text
    assert browser.post("/later/recall", handle="nonsense").status_code == 400


def test_a_queue_is_browsed_from_places_through_filters(
    browser: Any, client: Client, topic: str
) -> None:
    for number in range(120):
        client.produce(
            topic, b"n%03d" % number, tag="even" if number % 2 == 0 else "odd",
            properties={"n": str(number)},
        )  # fmt: skip

    def bodies(query: str) -> list[str]:
        page = browser.get(f"/topics/{topic}/browse?{query}").text
        return re.findall(r"<code>(n\d\d\d)</code>", page)

    assert bodies("from=latest")[-1] == "n119" and len(bodies("from=latest")) == 50
    assert bodies("from=earliest")[0] == "n000"
    assert bodies("from=100") == [f"n{n:03d}" for n in range(100, 120)]
    assert bodies("from=1h")[0] == "n000"
    assert bodies("from=earliest&tag=odd")[:2] == ["n001", "n003"]
    assert bodies("from=earliest&sql=n > 115") == ["n116", "n117", "n118", "n119"]
    page = browser.get(f"/topics/{topic}/browse?from=earliest&tag=odd").text
    assert "from=100" in page  # where the next page goes on: after the 50th odd one


def test_what_comes_is_followed_through_filters(browser: Any, client: Client, topic: str) -> None:
    def cursor(page: str) -> str:
        found = re.search(r'hx-get="([^"]+)"', page[page.index('id="cursor"') :])
        assert found is not None
        return html.unescape(found[1])

    client.produce(topic, b"before")
    address = cursor(browser.get(f"/topics/{topic}/follow?sql=n > 1").text)
    for number in range(4):
        client.produce(topic, b"n%d" % number, properties={"n": str(number)})
    page = browser.get(address).text
    assert re.findall(r"<code>(\w+)</code>", page) == ["n3", "n2"]
    assert "<code>" not in browser.get(cursor(page)).text
    client.delete_topic(topic)  # as in another tab
    until(lambda: "there is no topic" in browser.get(cursor(page)).text)


def test_a_group_is_made_paused_reset_with_preview_and_deleted(
    browser: Any, client: Client, topic: str
) -> None:
    assert "is made" in browser.post("/groups", name="readers", retries="3").text
    for number in range(5):
        client.produce(topic, b"%d" % number)
    client.acknowledge(client.receive(topic, group="readers", max_messages=2))

    preview = browser.get(f"/groups/readers/reset?topic={topic}&to=latest").text
    assert "3 messages would be skipped, 0 would come again" in " ".join(preview.split())
    assert sum(queue.lag for queue in client.describe_group("readers").queues) == 3
    preview = browser.get(f"/groups/readers/reset?topic={topic}&to=earliest").text
    assert "0 messages would be skipped, 2 would come again" in " ".join(preview.split())
    preview = browser.get(f"/groups/readers/reset?topic={topic}&to=1h").text
    [moment] = re.findall(r'name="to" value="([^"]+)"', preview)
    assert abs(datetime.fromisoformat(html.unescape(moment)).timestamp() - time.time() + 3_600) < 60
    done = browser.post("/groups/readers/reset", topic=topic, to="latest")
    assert "0 messages to go" in done.text

    assert "paused" in browser.post("/groups/readers/pause", paused="yes").text
    assert client.describe_group("readers").group.paused
    browser.post("/groups/readers/pause", paused="no")
    assert not client.describe_group("readers").group.paused
    assert browser.post("/groups/readers/delete", typed="x").status_code == 400
    browser.post("/groups/readers/delete", typed="readers")
    assert browser.get("/groups/readers").status_code == 404


def test_dead_letters_are_sent_again_together_and_one_by_one(
    browser: Any, client: Client, topic: str
) -> None:
    client.create_group("fails", retry_max_times=0)
    for number in range(3):
        client.produce(topic, b"bill %d" % number, keys=[f"bill-{number}"])
    for _ in range(3):
        client.dead_letter(client.receive(topic, group="fails", max_messages=1, wait_ms=10_000))
    until(lambda: "3 are kept" in browser.get("/groups/fails").text)

    letter = client.pull("%DLQ%fails", 0, 0).records[0]
    again = browser.post("/message/resend", at=str(letter.commit_offset))
    assert f"Sent again: in topic {topic}" in again.text
    assert "2 dead letters were sent again" in browser.post("/groups/fails/resend", most="2").text
    assert "1 dead letters were sent again" in browser.post("/groups/fails/resend").text
    assert client.describe_topic(topic).queues[0][1] == 7


def test_transactions_are_ended(browser: Any, client: Client, topic: str) -> None:
    for name in ("order-1", "order-2"):
        open_one = client.transaction(topic, transaction_id=name, immunity_s=600)
        open_one.send(name.encode())
    page = browser.get("/later").text
    assert "order-1" in page and "order-2" in page
    committed = browser.post("/later/end", transaction_id="order-1", end="commit")
    assert "Transaction order-1: committed" in committed.text
    rolled = browser.post("/later/end", transaction_id="order-2", end="rollback")
    assert "Transaction order-2: rolled back" in rolled.text
    assert [record.body for record in client.consume(topic, follow=False)] == [b"order-1"]


def test_lists_are_paged_and_searched(browser: Any, client: Client) -> None:
    client.create_topics([f"many-{number:03d}" for number in range(120)], queues=1)

    assert len(re.findall(r'href="/topics/many-\d+"', browser.get("/topics?q=many").text)) == 50
    last = browser.get("/topics?q=many&page=3").text
    assert "page 3 of 3" in last and "many-119" in last
    assert re.findall(r'href="/topics/(many-\d+)"', browser.get("/topics?q=Y-11").text) == [
        f"many-{number}" for number in range(110, 120)
    ]
    assert "page 3 of 3" in browser.get("/topics?q=many&page=99").text


def test_plots_have_rates_of_two_looks(browser: Any, client: Client, topic: str) -> None:
    def plot() -> dict[str, list[float]]:
        return dict(browser.get("/rates.json").json())

    looks = len(plot()["times"])
    client.produce(topic, b"x" * 1_000)
    until(
        lambda: len(plot()["times"]) > looks
    )  # where answers take long they are asked for less often

    found = plot()
    assert len(found["times"]) == len(found["in_bytes"]) >= 2
    assert max(filter(None, found["in_bytes"])) > 30


def test_the_mix_of_a_file_is_of_the_topics_that_reach_into_it() -> None:
    def queue(topic: str, count: int, begin: int, end: int) -> StoredQueue:
        return StoredQueue(
            topic=topic, queue_id=0, min_offset=0, max_offset=count,
            min_commit_offset=begin, end_commit_offset=end,
        )  # fmt: skip

    queues = [queue("a", 30, 0, 300), queue("b", 10, 100, 200), queue("none", 0, 0, 0)]
    queues += [queue(f"small-{number}", 1, 200, 300) for number in range(5)]
    mix = topic_mix(queues, [(0, 100), (100, 200), (200, 300), (300, 400)])

    assert mix.names == ("a", "b", "small-0", "small-1", "small-2")
    assert mix.shares[0] == (1, 0, 0, 0, 0, 0)
    assert mix.shares[1] == (0.5, 0.5, 0, 0, 0, 0)
    assert mix.shares[2] == pytest.approx((10 / 15, 0, 1 / 15, 1 / 15, 1 / 15, 2 / 15))
    assert mix.shares[3] == ()


def test_topics_are_sorted_by_what_is_in_them(browser: Any, client: Client) -> None:
    client.create_topics(["sorted-a", "sorted-b", "sorted-c"], queues=2)
    for name, count in (("sorted-b", 9), ("sorted-c", 4)):
        for number in range(count):
            client.produce(name, b"x", queue_id=number % 2 if name == "sorted-b" else 0)

    def names(order: str) -> list[str]:
        page = browser.get(f"/topics?q=sorted-&sort={order}").text
        return re.findall(r'href="/topics/(sorted-\w)"', page)

    assert names("") == ["sorted-a", "sorted-b", "sorted-c"]
    assert names("messages") == ["sorted-b", "sorted-c", "sorted-a"]
    assert names("skew") == ["sorted-c", "sorted-b", "sorted-a"]


def test_nothing_is_drawn_for_the_time_in_which_nobody_looked() -> None:
    rates = Rates()
    for time_ms, number in ((1_000, 10), (1_200, 11), (3_000, 30), (200_000, 500), (202_000, 600)):
        rates.add("log", time_ms, {"bytes": number})
    plot = rates.plot("log", rates=("bytes",), levels=())

    assert plot["times"] == [1, 3, 3.001, 200, 202]
    assert plot["bytes"] == [None, 10, None, None, 50]
    assert rates.rate("log", "bytes") == 50
    assert rates.plot("log", rates=(), levels=("bytes",))["bytes"] == [10, 30, None, 500, 600]
    assert rates.rate("log", "other") is rates.rate("nothing", "bytes") is None


def test_numbers_that_are_not_plotted_are_kept_for_some_moments_alone() -> None:
    rates = Rates()
    for time_ms in range(0, 500_000, 500):
        rates.add("plotted", time_ms, {"n": time_ms}, is_plotted=True)
        rates.add("other", time_ms, {"n": time_ms})

    assert len(rates.plot("plotted", rates=("n",), levels=())["times"]) == KEPT
    assert len(rates.plot("other", rates=("n",), levels=())["times"]) == RATE_KEPT
    assert rates.rate("other", "n") == 1_000


def test_an_answer_that_two_pages_share_is_one_moment_of_a_plot(
    browser: Any, client: Client, topic: str
) -> None:
    """A plot has what the service said, when it said it; not once for each look."""
    client.create_group("plotted")
    client.receive(topic, group="plotted")
    browser.get("/groups/plotted")
    time.sleep(0.6)
    caller = browser.client.app.state.console.sessions.caller("", "")
    for answer in caller.answers._known.values():
        answer.asked_s = float("inf")  # it is fresh
    browser.get("/groups/plotted")

    assert len(caller.rates.plot(("group", "plotted"), rates=(), levels=("lag",))["times"]) == 1
