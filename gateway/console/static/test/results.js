// An answer on the page: a table of its outputs, how long each stage took, its headers, and the text as it came.

import { word } from "./context.js";
import { element, fill } from "./dom.js";
import { outputsIn, shapeOf, statistics } from "./values.js";

const MOST_ROWS = 50;
const MOST_TEXT = 200;
const MOST_RAW = 200_000;

export function table(answer) {
  const head = ["output", "row", "shape", "least", "most", "argmax", "values"];
  const outputs = outputsIn(answer);
  const classes = outputs.find((output) => output.name === "classes")?.rows ?? [];
  const rows = outputs.flatMap((output) => output.rows.map((row, number) => [output, row, number]));
  const body = rows
    .slice(0, MOST_ROWS)
    .map(([output, row, number]) => line(output.name, row, number, output.labels ?? classes[number] ?? []));
  const shown = element(
    "table",
    { class: "results" },
    element("thead", {}, element("tr", {}, ...head.map((one) => element("th", { scope: "col" }, word(`test.${one}`))))),
    element("tbody", {}, ...body),
  );
  const more = rows.length - body.length;
  return element("div", { class: "scroll" }, shown, more > 0 ? element("p", {}, word("test.more_rows", { count: more })) : null);
}

// `labels` are the names of the row's places, if they have any.
function line(name, row, number, labels) {
  const found = statistics(row);
  const many = found !== null && found.count > 1;
  const label = many && Array.isArray(labels) && labels.length === found.count ? ` (${labels[found.at]})` : "";
  const cells = [
    name,
    number,
    `[${shapeOf(row).join(", ")}]`,
    many ? written(found.least) : "",
    many ? written(found.most) : "",
    many ? `${found.at}${label}` : "",
    short(spelt(row)),
  ];
  return element("tr", {}, ...cells.map((cell) => element("td", {}, String(cell))));
}

function spelt(row) {
  if (typeof row === "string") return row;
  return Array.isArray(row) ? `[${row.map((one) => JSON.stringify(one)).join(", ")}]` : JSON.stringify(row);
}

export const written = (number) => (Number.isInteger(number) ? String(number) : String(Number(number.toPrecision(5))));

function short(text = "") {
  return text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text;
}

// "decode;dur=0.1, run;dur=2" as [["decode", 0.1], ["run", 2]].
export function stages(header) {
  const parts = (header ?? "").split(",").map((part) => /^\s*([\w-]+)\s*;\s*dur=([\d.]+)/.exec(part));
  return parts.filter(Boolean).map((found) => [found[1], Number(found[2])]);
}

export function timing(response, elapsed) {
  const all = stages(response.headers.get("server-timing"));
  const total = all.find(([stage]) => stage === "total")?.[1] ?? 0;
  const split = all.filter(([stage]) => stage !== "total");
  const bars = split.map(([stage, ms]) => {
    const bar = element("meter", { min: 0, max: total || 1, value: ms, "aria-label": stage });
    return element("tr", {}, element("th", { scope: "row" }, stage), element("td", {}, bar), element("td", {}, milliseconds(ms)));
  });
  const sums = [[word("test.in_gateway"), total], [word("test.round_trip"), elapsed]].filter(([, ms]) => ms);
  const last = sums.map(([name, ms]) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td"), element("td", {}, milliseconds(ms))),
  );
  return element("table", { class: "timing" }, element("tbody", {}, ...bars, ...last));
}

export const milliseconds = (ms) => `${ms < 10 ? ms.toFixed(2) : Math.round(ms)} ms`;

export function who(response) {
  const version = response.headers.get("x-tensorgate-version");
  const chosen = response.headers.get("x-tensorgate-variant");
  return [version && `${word("test.version")} ${version}`, chosen && word(`test.${chosen}`)].filter(Boolean).join(" · ");
}

function folded(title, content) {
  return element("details", {}, element("summary", {}, title), content);
}

export function showAnswer(place, response, text, elapsed, ...first) {
  const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  const raw = text.length > MOST_RAW ? `${text.slice(0, MOST_RAW)}…` : text;
  const state = element("p", { class: response.ok ? "verdict good" : "verdict bad", role: "status" });
  state.append([`${response.status} ${response.statusText}`.trim(), who(response), milliseconds(elapsed)].filter(Boolean).join(" · "));
  fill(
    place,
    state,
    ...first,
    folded(word("test.timing"), timing(response, elapsed)),
    folded(word("test.raw"), element("pre", { class: "raw", tabindex: 0 }, raw)),
    folded(word("test.headers"), element("pre", { tabindex: 0 }, headers)),
  );
}

export function showProblem(place, text) {
  fill(place, element("p", { class: "verdict bad", role: "alert" }, text));
}
