"use strict";
// Times in the browser's zone, live parts, and plots. Everything else works without this script.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const local = new Intl.DateTimeFormat("sv-SE", {
  dateStyle: "short", timeStyle: "medium", timeZone: zone,
});

function dress(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (!Number.isNaN(moment.valueOf())) element.textContent = local.format(moment);
  }
  for (const element of root.querySelectorAll("input[data-zone]")) element.value = zone;
  for (const rows of root.querySelectorAll("[data-rows-max]")) {
    while (rows.children.length > Number(rows.dataset.rowsMax)) rows.lastElementChild.remove();
  }
}

function isTyping(element) {
  const active = document.activeElement;
  return element.contains(active) && active.matches("input, textarea, select");
}

const ticked = new WeakMap();
function tick() {
  if (document.hidden) return;
  const now = performance.now();
  for (const element of document.querySelectorAll("[data-live]")) {
    const every = Number(element.dataset.live) * 1000;
    if (!every || isTyping(element)) continue;
    const last = ticked.get(element);
    if (last === undefined) ticked.set(element, now);
    else if (now - last >= every - 50) {
      ticked.set(element, now);
      element.dispatchEvent(new Event("tick"));
    }
  }
}

// Plots

const units = {
  bytes(value) {
    if (value === null || value === undefined) return "–";
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = 0;
    while (value >= 1024 && power < names.length - 1) { value /= 1024; power += 1; }
    return `${value.toLocaleString("en", { maximumFractionDigits: power ? 1 : 0 })} ${names[power]}`;
  },
  count(value) {
    return value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 });
  },
};

const HEIGHT = 165;
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium", timeZone: zone });
const powers = [...Array(50).keys()];
const steps = {
  bytes: powers.map((power) => 2 ** power),
  count: powers.slice(0, 15).flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power)),
};

function plotOf(element) {
  // Functions: a browser may go from light to dark while the page is open.
  const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const lines = element.dataset.lines.split(",").map((each) => each.split(":"));
  const unit = units[element.dataset.unit];
  const least = element.dataset.unit === "bytes" ? 1024 : 10; // whole marks on the axis
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const plot = new uPlot({
    width: element.clientWidth,
    height: HEIGHT,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), zone),
    series: [
      { label: "Time" },
      ...lines.map(([, label], at) => ({
        label, stroke: colour(["--one", "--two", "--three"][at]), width: 2, spanGaps: false,
        points: { size: 4 }, value: (_, value) => unit(value),
      })),
    ],
    scales: {
      x: { time: true, range: (_, first, last) => (last ? [Math.min(first, last - 60), last] : [0, 60]) },
      y: { range: (_, low, high) => [0, Math.max((high || 0) * 1.1, least)] },
    },
    axes: [
      { ...axis, space: 75, values: (_, moments) => moments.map((each) => clock.format(each * 1000)) },
      { ...axis, size: 72, incrs: steps[element.dataset.unit], values: (_, values) => values.map(unit) },
    ],
    legend: { live: true },
  }, [[], ...lines.map(() => [])], element);
  return { element, plot, lines };
}

async function fill(plots) {
  const answers = new Map();
  for (const { element } of plots) answers.set(element.dataset.plot, null);
  for (const address of answers.keys()) {
    const answer = await fetch(address, { headers: { "hx-request": "true" } });
    if (answer.ok) answers.set(address, await answer.json());
  }
  for (const { element, plot, lines } of plots) {
    const columns = answers.get(element.dataset.plot);
    if (columns) plot.setData([columns.times, ...lines.map(([name]) => columns[name])]);
  }
}

function start() {
  dress(document);
  document.addEventListener("htmx:after:swap", () => dress(document));
  setInterval(tick, 250);
  const plots = [...document.querySelectorAll("[data-plot]")].map(plotOf);
  if (!plots.length) return;
  const again = () => { if (!document.hidden) fill(plots).catch(() => {}); };
  again();
  setTimeout(again, 600);
  setInterval(again, 2000);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { plot } of plots) plot.redraw(false, true);
  });
  new ResizeObserver(() => {
    for (const { element, plot } of plots) plot.setSize({ width: element.clientWidth, height: HEIGHT });
  }).observe(document.querySelector("main"));
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
