// What a detection service has found: classes, boxes and confidences, drawn over the picture.

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 8;

// {"dclasses", "dobjects", "dconfidences"}, wherever the protocol has put it, as [{label, box: [x, y, w, h], confidence}].
export function detectionsIn(answer) {
  const found = find(answer, 0);
  if (!found) return null;
  const boxes = rows(found.dobjects ?? found.dboxes);
  return boxes.map((box, index) => ({
    label: String(found.dclasses?.[index] ?? ""),
    box: box.map(Number),
    confidence: Number(found.dconfidences?.[index] ?? 1),
  }));
}

const KEYS = ["dclasses", "dobjects", "dconfidences"];

function find(value, depth) {
  if (depth > 6) return null;
  if (typeof value === "string" && value.includes("dclasses")) return find(parsed(value), depth + 1);
  if (value === null || typeof value !== "object") return null;
  if ("dclasses" in value && ("dobjects" in value || "dboxes" in value)) return value;
  const named = Array.isArray(value.outputs) ? tensors(value.outputs) : null;
  if (named) return named;
  for (const one of Array.isArray(value) ? value.slice(0, 1) : Object.values(value)) {
    const inner = find(one, depth + 1);
    if (inner) return inner;
  }
  return null;
}

// Named tensors, as the Open Inference Protocol writes them.
function tensors(outputs) {
  const named = Object.fromEntries(outputs.map((one) => [one?.name, one]));
  if (!KEYS.every((key) => named[key])) return null;
  const flat = named.dobjects.data.flat(Infinity);
  const boxes = Array.from({ length: Math.floor(flat.length / 4) }, (_, row) => flat.slice(row * 4, row * 4 + 4));
  return { dclasses: named.dclasses.data.flat(), dobjects: boxes, dconfidences: named.dconfidences.data.flat() };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// Only what is four numbers can be drawn.
function rows(boxes) {
  const all = Array.isArray(boxes) ? boxes : [];
  return all.filter((box) => Array.isArray(box) && box.length === 4 && box.every((one) => Number.isFinite(Number(one))));
}

export function draw(overlay, width, height, detections, threshold) {
  overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const size = Math.max(9, Math.min(width, height) / 22);
  const classes = [...new Set(detections.map((one) => one.label))];
  const shown = detections.filter((one) => one.confidence >= threshold);
  overlay.replaceChildren(...shown.map((one) => group(one, classes.indexOf(one.label) % COLOURS, size, width)));
  return shown;
}

function group({ label, box: [x, y, w, h], confidence }, colour, size, width) {
  const made = part("g", { class: `box c${colour}` });
  const text = part("text", { x: Math.min(x, width - size), y: y > size * 1.4 ? y - size * 0.35 : y + size, "font-size": size });
  text.textContent = `${label} ${Math.round(confidence * 100)}%`;
  made.append(part("rect", { x, y, width: w, height: h, "stroke-width": size / 7 }), text);
  return made;
}

function part(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
