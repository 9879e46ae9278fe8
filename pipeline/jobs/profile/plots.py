"""The plots of a profile's page, made by plotly, each as a part of the page."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go

from pipeline.jobs.progress import size_text

if TYPE_CHECKING:
    from pipeline.jobs.profile.figures import ProfileFigures

TOPICS_SHOWN: Final = 9  # each with a colour of its own; the others together
COLOURS: Final = (
    "#3b6fb6", "#d1743c", "#4a9a6a", "#b34a55", "#7b66a8", "#8a6d52", "#c776a4", "#5aa3b8", "#a8a032",
    "#9aa0a6",
)  # fmt: skip
OTHERS: Final = "all others"
CONFIG: Final = {"displayModeBar": False, "responsive": True}


def colours_of(profile: ProfileFigures) -> dict[str, str]:
    """Return the colour of each topic that has one of its own, and of all others."""
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


def rates(profile: ProfileFigures, colours: dict[str, str]) -> str:
    """Plot messages and bytes of each topic over time."""
    times = [
        profile.begin_ms + number * profile.interval_ms
        for number in range((profile.end_ms - profile.begin_ms) // profile.interval_ms + 1)
    ]
    places = {time: number for number, time in enumerate(times)}
    series = {name: ([0] * len(times), [0] * len(times)) for name in colours}
    for rate in profile.rates:
        messages, byte_counts = series[rate.topic if rate.topic in colours else OTHERS]
        messages[places[rate.time_ms]] += rate.messages
        byte_counts[places[rate.time_ms]] += rate.bytes
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


def topics(profile: ProfileFigures, colours: dict[str, str]) -> str:
    """Plot the bytes of each topic."""
    shown = [(topic.topic, topic.bytes) for topic in profile.topics[:TOPICS_SHOWN]]
    rest = sum(topic.bytes for topic in profile.topics[TOPICS_SHOWN:])
    if rest:
        shown.append((OTHERS, rest))
    shown.reverse()
    figure = go.Figure(
        go.Bar(
            x=[size for _, size in shown], y=[_label(name) for name, _ in shown], orientation="h",
            marker_color=[colours[name] for name, _ in shown],
            text=[size_text(size) for _, size in shown], textposition="auto",
            customdata=[100 * size / profile.bytes for _, size in shown],
            hovertemplate="%{y}<br>%{text}, %{customdata:.1f} %<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(showticklabels=False)
    return _plot(figure, 330)


def sizes(profile: ProfileFigures) -> str:
    """Plot how many messages have which size."""
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


def queues(profile: ProfileFigures, colours: dict[str, str]) -> str:
    """Plot the messages of each queue."""
    several = len(profile.stores) > 1
    figure = go.Figure()
    for topic in profile.topics[:TOPICS_SHOWN]:
        mine = [queue for queue in profile.queues if queue.topic == topic.topic]
        figure.add_bar(
            x=[_label(topic.topic)] * len(mine), y=[queue.messages for queue in mine],
            marker_color=colours[topic.topic], marker_line={"width": 1, "color": "#fff"},
            showlegend=False, customdata=[
                f"queue {queue.queue_id}" + (f" of {escape(queue.store)}" if several else "") for queue in mine
            ],
            hovertemplate=escape(topic.topic) + "<br>%{customdata}<br>%{y:,} messages<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack", yaxis_title="messages")
    return _plot(figure, 460)


def keys(profile: ProfileFigures) -> str:
    """Plot the keys that most messages have."""
    shown = profile.hot_keys[:20][::-1]
    figure = go.Figure(
        go.Bar(
            x=[key.messages for key in shown],
            y=[_label(f"{key.key}  ({key.topic})", 44) for key in shown],
            orientation="h", marker_color=COLOURS[1],
            hovertemplate="%{y}<br>%{x:,} messages<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(title="messages")
    figure.update_yaxes(type="category", dtick=1)
    return _plot(figure, 460)


def _label(text: str, limit: int = 28) -> str:
    """Return a text for a plot, its middle left out where it is too long; labels are read as HTML."""
    return escape(text if len(text) <= limit else f"{text[: limit - 9]}…{text[-8:]}")
