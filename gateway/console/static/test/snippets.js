// The call on the page as a command and as a program, for the port that the service's own callers use.

import { variant } from "./calls.js";
import { data, service, word } from "./context.js";
import { byId } from "./dom.js";

const KEY = "YOUR_APP_CODE";

export const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

// A Python literal: JSON's, but for what it would write as two halves of one character.
export function python(text) {
  return JSON.stringify(text).replace(/[\u{7f}-\u{10ffff}]/gu, (one) => {
    const code = one.codePointAt(0).toString(16);
    return code.length > 4 ? `\\U${code.padStart(8, "0")}` : `\\u${code.padStart(4, "0")}`;
  });
}

export function headersOf(call) {
  const headers = {};
  if (call.body !== undefined) headers["Content-Type"] = call.type ?? "application/json";
  if (service.needs_key) headers.Authorization = `APPCODE ${KEY}`;
  if (variant()) headers.Canary = variant();
  return headers;
}

export function curl(call) {
  const lines = [`curl ${call.streams ? "-N " : ""}${call.method === "POST" ? "" : `-X ${call.method} `}${quoted(data + call.path)}`];
  for (const [name, value] of Object.entries(headersOf(call))) lines.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (call.body !== undefined) lines.push(`--data-binary ${quoted(call.body)}`);
  return `${lines.join(" \\\n  ")}\n`;
}

export function program(call) {
  const headers = Object.entries(headersOf(call)).map(([name, value]) => `    ${python(name)}: ${python(value)},\n`);
  return (
    "import urllib.request\n\n" +
    `request = urllib.request.Request(\n    ${python(data + call.path)},\n` +
    (call.body === undefined ? "" : `    data=${python(call.body)}.encode(),\n`) +
    `    headers={\n${headers.map((line) => `    ${line}`).join("")}    },\n    method=${python(call.method)},\n)\n` +
    "with urllib.request.urlopen(request) as reply:\n" +
    (call.streams ? '    for line in reply:\n        print(line.decode(), end="")\n' : "    print(reply.read().decode())\n")
  );
}

export function conversation(path, message) {
  const headers = Object.entries(headersOf({})).map(([name, value]) => `${python(name)}: ${python(value)}`);
  return (
    "# pip install websockets\n" +
    "import base64\nimport json\n\nfrom websockets.sync.client import connect\n\n" +
    `with connect(${python(data.replace(/^http/, "ws") + path)}, additional_headers={${headers.join(", ")}}, max_size=None) as socket:\n` +
    `    socket.send(${python(message)})\n` +
    "    for text in socket:\n        event = json.loads(text)\n" +
    '        if event["type"] == "output":\n            with open("picture.png", "wb") as file:\n' +
    '                file.write(base64.b64decode(event["message"]))\n            break\n' +
    '        print(event["type"], event["message"])\n        if event["type"] == "error":\n            break\n'
  );
}

// `made` gives the texts when they are asked for: {curl, python}.
export function offer(mode, made) {
  for (const kind of ["curl", "python"]) {
    byId(`${mode}-${kind}`).addEventListener("click", async (event) => {
      const text = made()[kind];
      const code = byId(`${mode}-code`);
      code.hidden = false;
      code.textContent = text;
      const button = event.currentTarget;
      try {
        await navigator.clipboard.writeText(text);
        button.dataset.done = word("test.copied");
      } catch {
        button.dataset.done = word("test.shown_below"); // a page without TLS may not write to the clipboard
      }
      setTimeout(() => delete button.dataset.done, 2000);
    });
  }
}
