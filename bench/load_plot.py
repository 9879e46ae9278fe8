"""Draws what ``bench.load`` has measured: JSON on stdin, an SVG to the file that is named."""

import json
import sys

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt


def main() -> None:
    """Draw a panel for each kind of load, p99 over rate, p50 dotted."""
    lines = json.load(sys.stdin)
    panels = list(dict.fromkeys(line["panel"] for line in lines))
    mpl.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "penstock"})
    figure, axes = plt.subplots(1, len(panels), figsize=(10, 4), layout="constrained")
    for axis, panel in zip(axes, panels, strict=True):
        for line in (line for line in lines if line["panel"] == panel):
            rates, p50, p99 = zip(*sorted(line["points"]), strict=True)
            (drawn,) = axis.plot(rates, p99, marker="o", markersize=3, label=f"{line['name']}, p99")
            axis.plot(rates, p50, linestyle=":", color=drawn.get_color(), label="p50")
        axis.set(xscale="log", yscale="log", title=panel, xlabel="messages a second", ylabel="ms")
        axis.grid(visible=True, which="both", alpha=0.25)
        axis.legend(fontsize=7)
    figure.savefig(sys.argv[1], metadata={"Date": None})


main()
