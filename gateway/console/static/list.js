// Fills in what each service of the list does just now, again after every renewal of the list.

import { EVERY_MS, READINGS, look } from "./rates.js";

let before = null;
let after = null;

const told = (reading, one, other, seconds) => {
  const value = reading(one, other, seconds);
  return value === null ? "–" : value.toFixed(value < 10 ? 1 : 0);
};

const fill = () => {
  if (!before) return;
  const [begun, earlier] = before;
  const [at, later] = after;
  for (const cell of document.querySelectorAll("[data-rate]")) {
    const one = earlier.services[cell.dataset.service];
    const other = later.services[cell.dataset.service];
    if (one && other) cell.textContent = told(READINGS[cell.dataset.rate], one, other, at - begun);
  }
};

const renew = async () => {
  const seen = document.hidden ? null : await look();
  if (!seen) return;
  [before, after] = [after, seen];
  fill();
};

document.addEventListener("htmx:afterSwap", fill);
renew();
setInterval(renew, EVERY_MS);
