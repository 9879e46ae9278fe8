"""A profile as one HTML page: plots by plotly, whose script is in the page, so nothing is fetched."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from pipeline.jobs.profile.html_parts import STYLE, duration, label, moment, section, table
from pipeline.jobs.progress import size_text

if TYPE_CHECKING:
    from pipeline.jobs.profile.job import Profile

TOPICS_SHOWN: Final = 9  # each with a colour of its own; the others together
COLOURS: Final = (
    "#3b6fb6", "#d1743c", "#4a9a6a", "#b34a55", "#7b66a8", "#8a6d52", "#c776a4", "#5aa3b8", "#a8a032",
    "#9aa0a6",
)  # fmt: skip
OTHERS: Final = "all others"
CONFIG: Final = {"displayModeBar": False, "responsive": True}


def page(profile: Profile) -> str:
    """Return the page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(_title(profile))}</title><style>{STYLE}</style>",
        f"<script>{get_plotlyjs()}</script></head><body><main>",
        _head(profile),
    ]
    if profile.messages:
        colours = _colours(profile)
        parts += [
            section("Messages over time", _rate_note(profile), _rates(profile, colours)),
            "<div class='pair'>",
            section(
                "Topics by bytes",
                "Of the log, records with everything in them.",
                _topics(profile, colours),
            ),
            section("Sizes of messages", _size_note(profile), _sizes(profile)),
            "</div>",
            section(
                "Topics",
                "Skew is what the fullest queue has, over what it would have if all were alike.",
                _topic_table(profile),
            ),
            "<div class='pair'>",
            section(
                "Queues", "Messages of each queue of the fullest topics.", _queues(profile, colours)
            ),
            section("Hot keys", _key_note(profile), _keys(profile)),
            "</div>",
        ]
    parts.append(
        section(
            "Consumer groups",
            "From the offsets on disk; a running reader saves them now and then.",
            _groups(profile),
        )
    )
    parts.append("</main></body></html>")
    return "".join(parts)


def _title(profile: Profile) -> str:
    several = f"{len(profile.stores)} stores"
    return f"Profile of {profile.stores[0] if len(profile.stores) == 1 else several}"


def _head(profile: Profile) -> str:
    seconds = max(1, profile.end_ms - profile.begin_ms) / 1000
    figures = [
        (f"{profile.messages:,}", "messages"),
        (size_text(profile.bytes), "of records"),
        (f"{len(profile.topics):,}", "topics"),
        (f"{len(profile.queues):,}", "queues"),
        (f"{profile.messages / seconds:,.3g}/s", "mean rate"),
        (f"{size_text(int(profile.bytes / seconds))}/s", "mean throughput"),
    ]
    if profile.damaged_bytes:
        figures.append((size_text(profile.damaged_bytes), "unreadable: run penstock job audit"))
    shown = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in figures
    )
    stores = (
        ""
        if len(profile.stores) == 1
        else f"<p class='note'>{escape(', '.join(profile.stores))}</p>"
    )
    span = (
        f"{moment(profile.begin_ms)} to {moment(profile.end_ms)}, UTC"
        if profile.messages
        else "no messages"
    )
    return f"<h1>{escape(_title(profile))}</h1><p class='note'>{span}</p>{stores}<div class='figures'>{shown}</div>"


def _colours(profile: Profile) -> dict[str, str]:
    shown = [topic.topic for topic in profile.topics[:TOPICS_SHOWN]]
    found = dict(zip(shown, COLOURS, strict=False))
    if len(profile.topics) > TOPICS_SHOWN:
        found[OTHERS] = COLOURS[-1]
    return found


def _plot(figure: Any, height: int, *, top: int = 10) -> str:
    figure.update_layout(
        template="plotly_white", height=height, margin={"l": 10, "r": 10, "t": top, "b": 10},
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#202428"},
        legend={"orientation": "h", "y": -0.18, "x": 0}, hoverlabel={"namelength": -1},
    )  # fmt: skip
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    return str(figure.to_html(include_plotlyjs=False, full_html=False, config=CONFIG))


def _rates(profile: Profile, colours: dict[str, str]) -> str:
    times = [
        profile.begin_ms + number * profile.interval_ms
        for number in range((profile.end_ms - profile.begin_ms) // profile.interval_ms + 1)
    ]
    places = {time: number for number, time in enumerate(times)}
    series = {name: ([0] * len(times), [0] * len(times)) for name in colours}
    for rate in profile.rates:
        messages, sizes = series[rate.topic if rate.topic in colours else OTHERS]
        messages[places[rate.time_ms]] += rate.messages
        sizes[places[rate.time_ms]] += rate.bytes
    moments = [datetime.fromtimestamp(time / 1000, UTC) for time in times]
    scale = 1000 / profile.interval_ms
    figure = go.Figure()
    for which, unit, shown in ((0, "messages/s", True), (1, "MiB/s", False)):
        for name, values in series.items():
            divisor = 1 if which == 0 else 1 << 20
            figure.add_bar(
                x=moments, y=[value * scale / divisor for value in values[which]], name=escape(name),
                marker_color=colours[name], visible=shown, marker_line_width=0,
                hovertemplate=f"%{{x}}<br>%{{y:,.3~f}} {unit}",
            )  # fmt: skip
    count = len(series)
    figure.update_layout(
        barmode="stack", bargap=0, yaxis_title="messages/s",
        updatemenus=[
            {
                "type": "buttons", "direction": "right", "x": 1, "xanchor": "right", "y": 1.18, "pad": {"t": 0, "b": 0},
                "buttons": [
                    {"label": label, "method": "update", "args": [
                        {"visible": [first] * count + [not first] * count},
                        {"yaxis.title.text": title}]}
                    for label, title, first in (
                        ("messages", "messages/s", True), ("bytes", "MiB/s", False))
                ],
            }
        ],
    )  # fmt: skip
    return _plot(figure, 380, top=46)


def _topics(profile: Profile, colours: dict[str, str]) -> str:
    shown = [(topic.topic, topic.bytes) for topic in profile.topics[:TOPICS_SHOWN]]
    rest = sum(topic.bytes for topic in profile.topics[TOPICS_SHOWN:])
    if rest:
        shown.append((OTHERS, rest))
    shown.reverse()
    figure = go.Figure(
        go.Bar(
            x=[size for _, size in shown], y=[label(name) for name, _ in shown], orientation="h",
            marker_color=[colours[name] for name, _ in shown],
            text=[size_text(size) for _, size in shown], textposition="auto",
            customdata=[100 * size / profile.bytes for _, size in shown],
            hovertemplate="%{y}<br>%{text}, %{customdata:.1f} %<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(showticklabels=False)
    return _plot(figure, 330)


def _sizes(profile: Profile) -> str:
    classes = profile.size_classes
    figure = go.Figure(
        go.Bar(
            x=[size_text(each.from_bytes) for each in classes], y=[each.messages for each in classes],
            marker_color=COLOURS[0], marker_line_width=0,
            customdata=[f"{each.from_bytes:,} to {each.to_bytes - 1:,} bytes" for each in classes],
            hovertemplate="%{customdata}<br>%{y:,} messages<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(bargap=0.05, yaxis_title="messages")
    figure.update_xaxes(type="category", nticks=9)
    return _plot(figure, 330)


def _queues(profile: Profile, colours: dict[str, str]) -> str:
    several = len(profile.stores) > 1
    figure = go.Figure()
    for topic in profile.topics[:TOPICS_SHOWN]:
        mine = [queue for queue in profile.queues if queue.topic == topic.topic]
        figure.add_bar(
            x=[label(topic.topic)] * len(mine), y=[queue.messages for queue in mine],
            marker_color=colours[topic.topic], marker_line={"width": 1, "color": "#fff"},
            showlegend=False, customdata=[
                f"queue {queue.queue_id}" + (f" of {escape(queue.store)}" if several else "") for queue in mine
            ],
            hovertemplate=escape(topic.topic) + "<br>%{customdata}<br>%{y:,} messages<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack", yaxis_title="messages")
    return _plot(figure, 460)


def _keys(profile: Profile) -> str:
    if not profile.hot_keys:
        return "<p>No message has a key.</p>"
    shown = profile.hot_keys[:20][::-1]
    figure = go.Figure(
        go.Bar(
            x=[key.messages for key in shown],
            y=[label(f"{key.key}  ({key.topic})", 44) for key in shown],
            orientation="h", marker_color=COLOURS[1],
            hovertemplate="%{y}<br>%{x:,} messages<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(title="messages")
    figure.update_yaxes(type="category", dtick=1)
    return _plot(figure, 460)


def _topic_table(profile: Profile) -> str:
    rows = [
        (
            topic.topic, f"{topic.messages:,}", size_text(topic.bytes),
            size_text(topic.bytes // max(1, topic.messages)), f"{topic.quantiles.get('p50', 0):,}",
            f"{topic.quantiles.get('p99', 0):,}", f"{topic.queues:,}", f"{topic.skew:.2f}",
        )
        for topic in profile.topics
    ]  # fmt: skip
    names = ("topic", "messages", "bytes", "mean size", "p50", "p99", "queues", "skew")
    return table(names, rows, {at for at, row in enumerate(rows) if float(row[-1]) >= 2})


def _groups(profile: Profile) -> str:
    if not profile.groups:
        return "<p>No group has committed offsets.</p>"
    several = len(profile.stores) > 1
    rows = []
    for lag in sorted(profile.groups, key=lambda each: -each.lag):
        where = (lag.group, lag.topic, *((lag.store,) if several else ()))
        rows.append(
            (
                *where, f"{lag.lag:,}", duration(lag.behind_ms) if lag.lag else "",
                str(lag.worst_queue) if lag.lag else "", f"{lag.lost:,}" if lag.lost else "",
            )
        )  # fmt: skip
    names = (
        "group",
        "topic",
        *(("store",) if several else ()),
        "lag",
        "behind",
        "worst queue",
        "lost",
    )
    return table(names, rows, set(), texts=3 if several else 2)


def _rate_note(profile: Profile) -> str:
    return f"By store time, in intervals of {duration(profile.interval_ms)}; drag to zoom, double-click to go back."


def _size_note(profile: Profile) -> str:
    known = ", ".join(f"{name} {size_text(size)}" for name, size in profile.size_quantiles.items())
    return f"Whole records: {profile.size_min:,} to {profile.size_max:,} bytes; {known}."


def _key_note(profile: Profile) -> str:
    if profile.keys_exact:
        return f"Counted exactly; {profile.distinct_keys:,} pairs of topic and key in all."
    missed = (
        f", each at most {profile.hot_keys_missed:,} too few" if profile.hot_keys_missed else ""
    )
    return f"About {profile.distinct_keys:,} pairs of topic and key in all{missed}."
