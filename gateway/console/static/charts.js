// Charts of what /console/metrics.json counts.

import { EVERY_MS, READINGS, look } from "./rates.js";

const KEPT = 300;
const LEAST_SECONDS = 60;
const COLOURS = ["#0f766e", "#c2410c", "#4f46e5", "#be185d", "#a16207", "#0369a1", "#4d7c0f", "#7e22ce"];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Chart {
  constructor(element, names) {
    this.element = element;
    this.names = names;
    this.timed = element.dataset.chart !== "simulation";
    const axis = { stroke: css("--faint"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
    this.plot = new uPlot({
      width: element.clientWidth, height: 200, cursor: { y: false },
      scales: { x: { time: this.timed }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
      axes: [axis, { ...axis, size: 56 }],
      series: [{}, ...names.map((name, place) => ({ label: name, stroke: COLOURS[place % COLOURS.length], width: 2, points: { show: false } }))],
    }, [[], ...names.map(() => [])], element);
    new ResizeObserver(() => this.plot.setSize({ width: element.clientWidth, height: 200 })).observe(element);
  }

  // Of one moment alone uPlot would show a whole day.
  show(moments, rows) {
    this.plot.setData([moments, ...rows], !this.timed);
    if (!this.timed) return;
    const latest = moments[moments.length - 1];
    this.plot.setScale("x", { min: Math.min(moments[0], latest - LEAST_SECONDS), max: latest });
  }
}

class Live {
  constructor(elements) {
    this.elements = elements;
    this.looks = [];
  }

  async look() {
    const seen = await look();
    if (!seen) return;
    this.looks.push(seen);
    this.looks.splice(0, this.looks.length - KEPT);
    for (const element of this.elements) this.draw(element);
  }

  draw(element) {
    const kind = element.dataset.chart;
    const latest = this.looks[this.looks.length - 1][1];
    const pairs = this.looks.map((look, place) => [this.looks[place - 1] ?? look, look]);
    const moments = pairs.map(([, [at]]) => at);
    let names, row;
    if (kind === "in_flight" || kind === "memory") {
      names = [element.dataset.title];
      row = () => pairs.map(([, [, told]]) => (kind === "memory" ? told.memory / 2 ** 20 : told.in_flight));
    } else {
      const of = kind === "variants" ? "variants" : "services";
      names = Object.keys(latest[of] ?? {}).filter((name) => kind !== "variants" || name.startsWith(`${element.dataset.service}/`));
      const reading = READINGS[kind === "variants" ? "requests" : kind];
      row = (name) => pairs.map(([[begun, before], [at, after]]) =>
        (at > begun && before[of][name] && after[of][name] ? reading(before[of][name], after[of][name], at - begun) : null));
    }
    if (!element.chart || element.chart.names.join() !== names.join()) {
      element.replaceChildren();
      element.chart = new Chart(element, names);
    }
    element.chart.show(moments, names.map(row));
  }
}

for (const element of document.querySelectorAll("[data-chart=simulation]")) {
  const points = JSON.parse(element.dataset.points);
  new Chart(element, [element.dataset.title]).show(points.map((one) => one.at), [points.map((one) => one.target)]);
}

const live = [...document.querySelectorAll("[data-chart]:not([data-chart=simulation])")];
if (live.length) {
  const looking = new Live(live);
  looking.look();
  setInterval(() => { if (!document.hidden) looking.look(); }, EVERY_MS);
}
