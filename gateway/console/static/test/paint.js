// Text to image: a websocket that tells how far the picture is, and then gives it.

import { call, reason, socket } from "./calls.js";
import { word } from "./context.js";
import { byId, element, fill, show } from "./dom.js";
import { onReplay, remember } from "./history.js";
import { choose } from "./modes.js";
import { milliseconds, showProblem } from "./results.js";
import { conversation, curl, offer } from "./snippets.js";

const PATH = "/generate";
const MOST_LOG = 300;
const NUMBERS = ["cfg", "step", "width", "height"];

let open = null;

function asked() {
  const fields = { prompt: byId("paint-prompt").value };
  if (byId("paint-negative").value.trim()) fields.negativePrompt = byId("paint-negative").value;
  for (const name of NUMBERS) {
    const text = byId(`paint-${name}`).value;
    if (text !== "") fields[name] = Number(text);
  }
  return fields;
}

function paint() {
  stop();
  fill(byId("paint-log"));
  fill(byId("paint-result"));
  show(byId("paint-picture"), false);
  const fields = asked();
  const channel = socket(PATH);
  const run = { channel, begun: performance.now(), opened: false, over: false };
  open = run;
  progress(0);
  busy(true);
  channel.addEventListener("open", () => {
    run.opened = true;
    const text = JSON.stringify(fields);
    log("→", text);
    channel.send(text);
  });
  channel.addEventListener("message", (event) => hear(run, fields, String(event.data)));
  channel.addEventListener("close", (event) => closed(run, event));
}

function hear(run, fields, text) {
  log("←", text);
  let event;
  try {
    event = JSON.parse(text);
  } catch {
    return finish(run, word("test.not_json"));
  }
  const message = String(event.message ?? "");
  if (event.type === "progress") progress(Number(message));
  if (event.type === "error") return finish(run, message);
  if (event.type !== "output") return undefined;
  const elapsed = milliseconds(performance.now() - run.begun);
  run.over = true;
  picture(message).then(
    (size) => {
      progress(1);
      byId("paint-figures").textContent = `${size} · ${elapsed}`;
      remember("paint", fields.prompt, `${size}, ${elapsed}`, fields);
      finish(run, "");
    },
    () => finish(run, word("test.not_a_picture")),
  );
  return undefined;
}

async function picture(text) {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const image = byId("paint-picture");
  if (image.src) URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
  await image.decode();
  show(image, true);
  return `${image.naturalWidth} × ${image.naturalHeight}`;
}

// A websocket that is refused does not say why; the same path asked for by HTTP does.
async function closed(run, event) {
  if (open !== run || run.over) return;
  if (run.opened) {
    finish(run, event.reason || word("test.broke_off"));
    return;
  }
  try {
    const response = await call(PATH, { method: "GET" });
    finish(run, response.status === 426 ? word("test.no_answer") : await reason(response));
  } catch (error) {
    finish(run, `${word("test.no_answer")}: ${error.message}`);
  }
}

function finish(run, problem) {
  run.over = true;
  run.channel.close();
  if (open !== run) return;
  open = null;
  busy(false);
  if (problem) showProblem(byId("paint-result"), problem);
}

function stop() {
  if (!open) return;
  finish(open, "");
  fill(byId("paint-result"), element("p", { class: "note", role: "status" }, word("test.stopped")));
}

function progress(part) {
  const bar = byId("paint-progress");
  bar.value = part;
  byId("paint-part").textContent = `${Math.round(part * 100)}%`;
}

function busy(is) {
  byId("paint-stop").disabled = !is;
  byId("paint-send").disabled = is;
  show(byId("paint-bar"), true);
}

function log(way, text) {
  const line = text.length > MOST_LOG ? `${text.slice(0, MOST_LOG)}… (${text.length})` : text;
  byId("paint-log").append(`${way} ${line}\n`);
}

export function begin() {
  byId("paint-send").addEventListener("click", paint);
  byId("paint-stop").addEventListener("click", stop);
  byId("paint-prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) paint();
  });
  offer("paint", () => {
    const { prompt, negativePrompt, cfg, step, width, height } = asked();
    const size = width && height ? { size: `${width}x${height}` } : {};
    const fields = { prompt, negative_prompt: negativePrompt, guidance_scale: cfg, steps: step, ...size };
    const one = { method: "POST", path: "/v1/images/generations", body: JSON.stringify(fields) };
    return { curl: curl(one), python: conversation(PATH, JSON.stringify(asked())) };
  });
  onReplay("paint", (fields) => {
    choose("paint");
    byId("paint-prompt").value = fields.prompt;
    byId("paint-negative").value = fields.negativePrompt ?? "";
    for (const name of NUMBERS) byId(`paint-${name}`).value = fields[name] ?? "";
    byId("paint-send").focus();
  });
}
