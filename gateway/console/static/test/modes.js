// Which of the four forms is shown: the one that suits the service, until somebody chooses another.

import { service } from "./context.js";
import { byId, show } from "./dom.js";

export const MODES = ["tensor", "image", "chat", "paint"];
const KEY = `tensorgate.mode.${service.name}`;

export function choose(mode, { focus = false } = {}) {
  for (const one of MODES) {
    const tab = byId(`tab-${one}`);
    tab.setAttribute("aria-selected", String(one === mode));
    tab.tabIndex = one === mode ? 0 : -1;
    show(byId(`mode-${one}`), one === mode);
    if (one === mode && focus) tab.focus();
  }
  document.dispatchEvent(new CustomEvent("mode", { detail: mode }));
}

function chosen() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function keep(mode) {
  try {
    localStorage.setItem(KEY, mode);
  } catch {
    // a forbidden storage: the choice is for this page only, then
  }
}

export function begin() {
  for (const mode of MODES) {
    const tab = byId(`tab-${mode}`);
    tab.addEventListener("click", () => {
      keep(mode);
      choose(mode);
    });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose(MODES[(MODES.indexOf(mode) + step + MODES.length) % MODES.length], { focus: true });
    });
  }
  const before = chosen();
  choose(MODES.includes(before) ? before : service.mode);
}
