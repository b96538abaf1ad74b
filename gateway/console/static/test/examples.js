// Something to send that fits a declared input: noughts, or a word, in the declared shape with one row.

const MOST_NUMBERS = 4096;

export function example(spec) {
  if (spec.shape === null) return spec.dtype === "string" ? ["text"] : [[1, 2, 3]];
  const shape = spec.shape.map((size) => size ?? 1);
  if (shape.reduce((product, one) => product * one, 1) > MOST_NUMBERS) return [];
  return nested(shape, leaf(spec.dtype));
}

function leaf(dtype) {
  if (dtype === "string") return "text";
  if (dtype === "bool") return false;
  return 0;
}

function nested([size, ...rest], value) {
  return size === undefined ? value : Array.from({ length: size }, () => nested(rest, value));
}

// Long lists of numbers stay on one line, which is how people read rows.
export function pretty(value) {
  if (!Array.isArray(value) || !value.some(Array.isArray)) return JSON.stringify(value);
  return `[\n  ${value.map((row) => JSON.stringify(row)).join(",\n  ")}\n]`;
}

export function shapeText(spec) {
  return `${spec.dtype}[${spec.shape === null ? "…" : spec.shape.map((size) => size ?? "?").join(", ")}]`;
}
