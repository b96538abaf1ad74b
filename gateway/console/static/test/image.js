// Pictures: a file is sent as the platform's services take it, and what was found is drawn over it.

import { detectionsIn, draw } from "./boxes.js";
import { call, reasonIn } from "./calls.js";
import { data, service, word } from "./context.js";
import { byId, element, fill, show } from "./dom.js";
import { remember } from "./history.js";
import { parse } from "./json.js";
import { base64, look } from "./picture.js";
import { showAnswer, showProblem, table } from "./results.js";
import { headersOf, offer, python, quoted } from "./snippets.js";

const FORMS = {
  tfserving: { path: "/v1/models:predict", wrap: (text) => `{"instances": [{"b64": "${text}"}]}` },
  seldon: { path: "/api/v1.0/predictions", wrap: (text) => `{"strData": "${text}"}` },
};

let picture = null;
let detections = [];

const form = () => FORMS[byId("image-form").value];

async function take(file) {
  clear();
  if (!file) return;
  try {
    picture = await look(file);
  } catch (error) {
    showProblem(byId("image-result"), error.message);
    return;
  }
  const seen = picture.width > 0;
  show(byId("image-stage"), seen);
  if (seen) byId("image-preview").src = picture.url;
  const size = seen ? `, ${picture.width} × ${picture.height}` : "";
  byId("image-about").textContent = `${file.name}${size}, ${Math.ceil(file.size / 1024)} KB${seen ? "" : ` · ${word("test.no_preview")}`}`;
  byId("image-send").disabled = false;
}

function clear() {
  if (picture) URL.revokeObjectURL(picture.url);
  picture = null;
  detections = [];
  byId("image-preview").removeAttribute("src");
  byId("image-boxes").replaceChildren();
  byId("image-about").textContent = "";
  byId("image-send").disabled = true;
  show(byId("image-stage"), false);
  show(byId("image-found"), false);
  fill(byId("image-result"));
}

async function send() {
  const place = byId("image-result");
  const { path, wrap } = form();
  const sent = picture;
  byId("image-send").disabled = true;
  try {
    const body = wrap(await base64(sent.file));
    const begun = performance.now();
    const response = await call(path, { body });
    const text = await response.text();
    if (sent !== picture) return; // another file was chosen meanwhile
    showAnswer(place, response, text, performance.now() - begun, told(response, text));
    remember("image", sent.file.name, response.status, null);
  } catch (error) {
    showProblem(place, `${word("test.no_answer")}: ${error.message}`);
  } finally {
    byId("image-send").disabled = picture === null;
  }
}

function told(response, text) {
  let answer = null;
  try {
    answer = parse(text);
  } catch {
    // not JSON: the raw answer says it all
  }
  const found = response.ok ? detectionsIn(answer) : null;
  detections = found ?? [];
  redraw();
  if (!response.ok) return element("p", { class: "reason" }, reasonIn(text));
  if (found) return found.length ? null : element("p", {}, word("test.nothing_found"));
  return answer === null ? null : table(answer);
}

function redraw() {
  const threshold = Number(byId("image-threshold").value) / 100;
  byId("image-threshold-told").textContent = `${Math.round(threshold * 100)}%`;
  show(byId("image-found"), detections.length > 0);
  if (!picture) return;
  const shown = draw(byId("image-boxes"), picture.width || 1, picture.height || 1, detections, threshold);
  fill(
    byId("image-classes"),
    ...shown.map((one) => element("li", {}, `${one.label} `, element("b", {}, `${(one.confidence * 100).toFixed(1)}%`), ` [${one.box.map((side) => Number(side.toFixed(1))).join(", ")}]`)),
  );
}

function snippets() {
  const name = picture?.file.name ?? "picture.png";
  const [before, after] = form().wrap("\n").split("\n");
  const url = data + form().path;
  const headers = Object.entries(headersOf({ body: "" }));
  const given = headers.map(([key, value]) => `-H ${quoted(`${key}: ${value}`)}`).join(" \\\n  ");
  const own = headers.map(([key, value]) => `${python(key)}: ${python(value)}`).join(", ");
  return {
    curl: `{ printf %s ${quoted(before)}; base64 -w0 ${quoted(name)}; printf %s ${quoted(after)}; } |\n  curl ${quoted(url)} ${given} --data-binary @-\n`,
    python:
      "import base64\nimport urllib.request\n\n" +
      `with open(${python(name)}, "rb") as file:\n    text = base64.b64encode(file.read()).decode()\n` +
      `body = ${python(before)} + text + ${python(after)}\n` +
      `request = urllib.request.Request(${python(url)}, data=body.encode(), headers={${own}})\n` +
      "with urllib.request.urlopen(request) as reply:\n    print(reply.read().decode())\n",
  };
}

export function begin() {
  const drop = byId("image-drop");
  byId("image-form").value = service.image_form;
  byId("image-file").addEventListener("change", (event) => take(event.target.files[0]));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop") take(event.dataTransfer.files[0]);
    });
  }
  byId("image-send").addEventListener("click", send);
  byId("image-threshold").addEventListener("input", redraw);
  offer("image", snippets);
}
