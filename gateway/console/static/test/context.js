// What the page was told by the server: the service, where it is called, and the words of the chosen language.

const told = JSON.parse(document.getElementById("test").dataset.context);

export const service = told.service;
export const relay = told.relay;
export const signatures = told.signatures;
export const bodyBytes = told.body_bytes;

// Where the service's own callers reach it; a gateway on all addresses is called by the name that this page is.
export const data = told.data.replace("//0.0.0.0:", `//${location.hostname}:`);

export function word(key, values = {}) {
  const text = told.words[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}
