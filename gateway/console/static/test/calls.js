// Calls of the service by way of the console's own origin, and what they say when they fail.

import { relay, word } from "./context.js";
import { byId } from "./dom.js";

const token = document.querySelector("meta[name=csrf-token]")?.content ?? "";

export function variant() {
  return byId("variant").value;
}

export async function call(path, { method = "POST", body, type = "application/json", signal } = {}) {
  const headers = { "X-CSRF-Token": token, "X-Tensorgate-Timing": "1" };
  if (body !== undefined) headers["Content-Type"] = type;
  if (variant()) headers.Canary = variant();
  const response = await fetch(`${relay}${path}`, { method, headers, body, signal, redirect: "error" });
  // What a service answers has a request id; without one it is the console itself that does not know who this is.
  if (response.status === 401 && !response.headers.has("x-request-id")) throw new Error(word("test.signed_out"));
  return response;
}

export function socket(path) {
  const url = new URL(`${relay}${path}`, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  if (variant()) url.searchParams.set("canary", variant()); // a page cannot give a websocket headers
  return new WebSocket(url);
}

// The server's own words: each protocol has its own place for them.
export function reasonIn(text) {
  try {
    const answer = JSON.parse(text);
    const found = [answer.error?.message, answer.error, answer.status?.info, answer.message, answer.detail];
    return found.find((one) => typeof one === "string" && one) ?? text;
  } catch {
    return text;
  }
}

export async function reason(response) {
  return reasonIn(await response.text()) || `${response.status} ${response.statusText}`;
}
