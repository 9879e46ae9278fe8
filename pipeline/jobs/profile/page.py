"""A profile as one HTML page, from the template ``page.html``; its script is in it, nothing is fetched."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pipeline.jobs.profile import plots
from pipeline.jobs.progress import size_text

if TYPE_CHECKING:
    from pipeline.jobs.profile.figures import ProfileFigures


def page(profile: ProfileFigures) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("pipeline.jobs.profile", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {
        "number": "{:,}".format, "size": size_text, "moment": _moment, "duration": _duration,
    }  # fmt: skip
    names = profile.stores[0] if len(profile.stores) == 1 else f"{len(profile.stores)} stores"
    return environment.get_template("page.html").render(
        profile=profile,
        title=f"Profile of {names}",
        plotly=Markup(get_plotlyjs()),  # noqa: S704  a script of plotly's
        figures=_figures(profile),
        plots=_plots(profile) if profile.messages else {},
        size_note=_size_note(profile),
        key_note=_key_note(profile),
    )


def _plots(profile: ProfileFigures) -> dict[str, Markup]:
    colours = plots.colours_of(profile)
    parts = {
        "rates": plots.rates(profile, colours),
        "topics": plots.topics(profile, colours),
        "sizes": plots.sizes(profile),
        "queues": plots.queues(profile, colours),
        "keys": plots.keys(profile),
    }
    return {name: Markup(part) for name, part in parts.items()}  # noqa: S704  texts in them are escaped


def _figures(profile: ProfileFigures) -> list[tuple[str, str]]:
    """Return the figures at the top, each with its name."""
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
    return figures


def _size_note(profile: ProfileFigures) -> str:
    known = ", ".join(f"{name} {size_text(size)}" for name, size in profile.size_quantiles.items())
    return f"Whole records: {profile.size_min:,} to {profile.size_max:,} bytes; {known}."


def _key_note(profile: ProfileFigures) -> str:
    if profile.keys_exact:
        return f"Counted exactly; {profile.distinct_keys:,} pairs of topic and key in all."
    missed = (
        f", each at most {profile.hot_keys_missed:,} too few" if profile.hot_keys_missed else ""
    )
    return f"About {profile.distinct_keys:,} pairs of topic and key in all{missed}."


def _moment(timestamp_ms: int) -> str:
    """Return a time in UTC."""
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _duration(milliseconds: int) -> str:
    """Return a span of time."""
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if milliseconds >= unit:
            return f"{milliseconds / unit:.3g} {name}"
    return f"{milliseconds} ms"
