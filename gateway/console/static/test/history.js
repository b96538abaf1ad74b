// The last calls of this service, kept in this browser only.

import { service, word } from "./context.js";
import { byId, element, fill } from "./dom.js";

const MOST = 50;
const MOST_BODY = 8192;
const KEY = `tensorgate.test.${service.name}`;

const replays = {};

function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY));
    return Array.isArray(kept) ? kept : [];
  } catch {
    return [];
  }
}

function write(entries) {
  try {
    localStorage.setItem(KEY, JSON.stringify(entries));
  } catch {
    // a full or forbidden storage is no reason not to test
  }
}

// `state` is what the mode needs to fill its form again; one that is too large is not kept.
export function remember(mode, label, outcome, state) {
  const kept = JSON.stringify(state).length <= MOST_BODY ? state : null;
  write([{ mode, label: String(label).slice(0, 120), outcome, state: kept, when: Date.now() }, ...read()].slice(0, MOST));
  draw();
}

export function onReplay(mode, replay) {
  replays[mode] = replay;
}

function draw() {
  const entries = read();
  const rows = entries.map((entry) => {
    const again = element("button", { type: "button", class: "link", disabled: !entry.state || !replays[entry.mode] }, entry.label);
    again.addEventListener("click", () => replays[entry.mode](entry.state));
    const when = new Date(entry.when);
    const moment = element("time", { datetime: when.toISOString() }, when.toLocaleTimeString());
    return element("li", {}, moment, " ", word(`test.mode_${entry.mode}`), " ", again, " ", element("small", {}, String(entry.outcome)));
  });
  fill(byId("history"), ...(rows.length ? rows : [element("li", { class: "empty" }, word("test.no_history"))]));
}

export function begin() {
  byId("history-clear").addEventListener("click", () => {
    write([]);
    draw();
  });
  draw();
}
