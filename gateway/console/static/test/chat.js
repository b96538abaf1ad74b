// Text to text: a conversation with a language model, its answers growing as they are written.

import { call, reason } from "./calls.js";
import { word } from "./context.js";
import { byId, element, fill } from "./dom.js";
import { events } from "./events.js";
import { onReplay, remember } from "./history.js";
import { choose } from "./modes.js";
import { showProblem, who } from "./results.js";
import { curl, offer, program } from "./snippets.js";

const PATH = "/v1/chat/completions";

let messages = [];
let running = null;
let listed = false;

// The models, once the form is looked at...

async function models() {
  if (listed) return;
  listed = true;
  try {
    const response = await call("/v1/models", { method: "GET" });
    if (!response.ok) throw new Error(await reason(response));
    const names = ((await response.json()).data ?? []).map((one) => String(one.id));
    fill(byId("chat-model"), ...names.map((name) => element("option", { value: name }, name)));
    if (!names.length) showProblem(byId("chat-problem"), word("test.no_models"));
  } catch (error) {
    listed = false;
    showProblem(byId("chat-problem"), `${word("test.no_models")}: ${error.message}`);
  }
}

function body(conversation) {
  const system = byId("chat-system").value.trim();
  const most = Number(byId("chat-most").value);
  const streams = byId("chat-stream").checked;
  return {
    model: byId("chat-model").value,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...conversation],
    ...(most > 0 ? { max_tokens: most } : {}),
    ...(streams ? { stream: true, stream_options: { include_usage: true } } : {}),
    ...more(),
  };
}

// Fields of the protocol that the form has no place for.
function more() {
  const text = byId("chat-more").value.trim();
  if (!text) return {};
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${word("test.not_json")}: ${error.message}`);
  }
}

function bubble(role, text) {
  const content = element("div", { class: "text" }, text);
  const made = element("li", { class: `message ${role}` }, element("b", {}, word(`test.role_${role}`)), content);
  byId("chat-log").append(made);
  made.scrollIntoView({ block: "nearest" });
  return { made, content };
}

// One turn...

async function say() {
  const text = byId("chat-text").value.trim();
  if (!text || running) return;
  byId("chat-text").value = "";
  fill(byId("chat-problem"));
  messages.push({ role: "user", content: text });
  bubble("user", text);
  const { made, content } = bubble("assistant", "");
  const turn = { abort: new AbortController(), begun: performance.now(), first: 0, tokens: 0, text: "", content };
  running = turn;
  busy(true);
  try {
    await answer(turn);
    remember("chat", text, made.querySelector(".figures")?.textContent ?? "", { text, system: byId("chat-system").value });
  } catch (error) {
    const stopped = error.name === "AbortError";
    made.append(element("p", { class: stopped ? "note" : "verdict bad", role: stopped ? "status" : "alert" }, stopped ? word("test.stopped") : error.message));
  } finally {
    figures(made, turn);
    messages.push({ role: "assistant", content: turn.text });
    running = null;
    busy(false);
  }
}

async function answer(turn) {
  const response = await call(PATH, { body: JSON.stringify(body(messages)), signal: turn.abort.signal });
  if (!response.ok) throw new Error(await reason(response));
  turn.who = who(response);
  if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
    const whole = await response.json();
    const choice = whole.choices?.[0] ?? {};
    grow(turn, choice.message?.content ?? choice.content ?? "");
    turn.tokens = whole.usage?.completion_tokens ?? 0;
    return;
  }
  for await (const text of events(response)) {
    if (text === "[DONE]") return;
    const part = JSON.parse(text);
    if (part.error) throw new Error(part.error.message ?? String(part.error));
    const delta = part.choices?.[0]?.delta?.content;
    if (delta) {
      grow(turn, delta);
      turn.tokens += 1;
    }
    if (part.usage) turn.tokens = part.usage.completion_tokens ?? turn.tokens;
  }
}

function grow(turn, text) {
  if (!turn.first) turn.first = performance.now();
  turn.text += text;
  turn.content.append(text);
  turn.content.parentElement.scrollIntoView({ block: "nearest" });
}

function figures(made, turn) {
  if (!turn.first) return;
  const seconds = (performance.now() - turn.begun) / 1000;
  const told = [
    word("test.first_token", { ms: Math.round(turn.first - turn.begun) }),
    turn.tokens ? word("test.tokens", { count: turn.tokens, rate: (turn.tokens / Math.max(seconds, 0.001)).toFixed(1) }) : "",
    turn.who ?? "",
  ];
  made.append(element("p", { class: "figures" }, told.filter(Boolean).join(" · ")));
}

function busy(is) {
  byId("chat-stop").disabled = !is;
  byId("chat-send").disabled = is;
  byId("chat-log").setAttribute("aria-busy", String(is));
  if (!is) byId("chat-text").focus();
}

export function begin() {
  document.addEventListener("mode", (event) => {
    if (event.detail === "chat") models();
  });
  byId("chat-send").addEventListener("click", say);
  byId("chat-stop").addEventListener("click", () => running?.abort.abort());
  byId("chat-text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      say();
    }
  });
  byId("chat-new").addEventListener("click", () => {
    running?.abort.abort();
    messages = [];
    fill(byId("chat-log"));
    fill(byId("chat-problem"));
  });
  window.addEventListener("pagehide", () => running?.abort.abort());
  offer("chat", () => {
    const text = byId("chat-text").value.trim();
    const asked = body(text || !messages.length ? [...messages, { role: "user", content: text || "2 + 3 =" }] : messages);
    const one = { method: "POST", path: PATH, body: JSON.stringify(asked), streams: asked.stream };
    return { curl: curl(one), python: program(one) };
  });
  onReplay("chat", (state) => {
    choose("chat");
    byId("chat-system").value = state.system;
    byId("chat-text").value = state.text;
    byId("chat-text").focus();
  });
}
