// Tensors: a field for each input of the signature, or the whole body as one's own JSON, by any protocol.

import { call, reasonIn } from "./calls.js";
import { bodyBytes, signatures, word } from "./context.js";
import { byId, element, fill, show } from "./dom.js";
import { example, pretty, shapeText } from "./examples.js";
import { onReplay, remember } from "./history.js";
import { parse } from "./json.js";
import { choose } from "./modes.js";
import { bodyOf, nameOf, offered, pathOf } from "./protocols.js";
import { showAnswer, showProblem, table } from "./results.js";
import { curl, offer, program } from "./snippets.js";

const NO_BODY = ["GET", "HEAD"];

const protocol = () => byId("tensor-protocol").value;
const signature = () => signatures.find((one) => one.name === byId("tensor-signature").value) ?? signatures[0];
const free = () => protocol() === "http" || !signature();

function fields() {
  const inputs = Object.entries(signature()?.inputs ?? {});
  fill(
    byId("tensor-fields"),
    ...inputs.map(([name, spec]) => {
      const area = element("textarea", { id: `input-${name}`, rows: 3, spellcheck: "false", "data-input": name });
      area.value = pretty(example(spec));
      area.addEventListener("input", compose);
      const label = element("label", { for: `input-${name}` }, name, " ", element("small", {}, shapeText(spec)));
      return element("div", { class: "field" }, label, area);
    }),
  );
}

function values() {
  const found = {};
  for (const area of byId("tensor-fields").querySelectorAll("textarea")) {
    try {
      found[area.dataset.input] = parse(area.value);
    } catch (error) {
      throw new Error(`${area.dataset.input}: ${word("test.not_json")}: ${error.message}`);
    }
  }
  return found;
}

// What the fields hold becomes the body; a body that somebody has written stays until a field is changed.
function compose() {
  show(byId("tensor-form"), !free());
  show(byId("tensor-http"), protocol() === "http");
  if (free()) return;
  try {
    byId("tensor-body").value = JSON.stringify(bodyOf(protocol(), signature(), values()));
    fill(byId("tensor-problem"));
  } catch (error) {
    showProblem(byId("tensor-problem"), error.message);
  }
}

function asked() {
  const body = byId("tensor-body").value;
  if (protocol() !== "http") return { method: "POST", path: pathOf(protocol()), body };
  const method = byId("tensor-method").value;
  const path = byId("tensor-path").value;
  const whole = path.startsWith("/") ? path : `/${path}`;
  return { method, path: whole, body: NO_BODY.includes(method) ? undefined : body };
}

async function send() {
  const place = byId("tensor-result");
  const one = asked();
  if ((one.body ?? "").length > bodyBytes) return showProblem(place, word("test.too_large", { bytes: bodyBytes }));
  byId("tensor-send").disabled = true;
  place.setAttribute("aria-busy", "true");
  try {
    const begun = performance.now();
    const response = await call(one.path, one);
    const text = await response.text();
    const elapsed = performance.now() - begun;
    showAnswer(place, response, text, elapsed, told(response, text));
    remember("tensor", one.body ?? one.path, `${response.status}, ${Math.round(elapsed)} ms`, {
      ...one,
      protocol: protocol(),
      signature: signature()?.name,
    });
  } catch (error) {
    showProblem(place, `${word("test.no_answer")}: ${error.message}`);
  } finally {
    byId("tensor-send").disabled = false;
    place.removeAttribute("aria-busy");
  }
  return undefined;
}

function told(response, text) {
  if (!response.ok) return element("p", { class: "reason" }, reasonIn(text));
  try {
    return table(parse(text));
  } catch {
    return null; // not JSON: the raw answer says it all
  }
}

function replay(state) {
  choose("tensor");
  byId("tensor-protocol").value = state.protocol;
  if (state.signature) byId("tensor-signature").value = state.signature;
  byId("tensor-method").value = state.method;
  byId("tensor-path").value = state.path;
  fields();
  compose();
  byId("tensor-body").value = state.body ?? "";
  byId("tensor-send").focus();
}

export function begin() {
  fill(byId("tensor-protocol"), ...offered().map((one) => element("option", { value: one }, nameOf(one))));
  fill(byId("tensor-signature"), ...signatures.map((one) => element("option", { value: one.name }, one.name)));
  show(byId("tensor-signatures"), signatures.length > 1);
  byId("tensor-signature").addEventListener("change", () => {
    fields();
    compose();
  });
  byId("tensor-protocol").addEventListener("change", compose);
  byId("tensor-send").addEventListener("click", send);
  byId("tensor-body").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
  });
  offer("tensor", () => ({ curl: curl(asked()), python: program(asked()) }));
  onReplay("tensor", replay);
  fields();
  compose();
}
