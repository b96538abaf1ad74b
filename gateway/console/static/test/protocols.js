// The bodies of a call with tensors, by protocol; each value is what the form's field holds.

import { service, signatures, word } from "./context.js";

const V2_TYPES = {
  bool: "BOOL", uint8: "UINT8", uint16: "UINT16", uint32: "UINT32", uint64: "UINT64", int8: "INT8", int16: "INT16",
  int32: "INT32", int64: "INT64", float16: "FP16", float32: "FP32", float64: "FP64", bfloat16: "BF16", string: "BYTES",
};

const PATHS = {
  tfserving: "/v1/models:predict",
  seldon: "/api/v1.0/predictions",
  v2: "/v2/models/infer",
  sagemaker: "/invocations",
};

export function offered() {
  const all = ["tfserving", "seldon", "v2", "sagemaker"];
  return [...all.filter((one) => service.type === "any" || service.type === one), "http"];
}

export const pathOf = (protocol) => PATHS[protocol];
export const nameOf = (protocol) => word(`test.protocol_${protocol}`);

// A body for the values of a signature's inputs, all of which begin with the row.
export function bodyOf(protocol, signature, values) {
  const names = Object.keys(signature.inputs);
  const only = names.length === 1 ? values[names[0]] : null;
  switch (protocol) {
    case "tfserving":
      return {
        ...(signature.name === signatures[0]?.name ? {} : { signature_name: signature.name }),
        ...(only !== null ? { instances: only } : { inputs: values }),
      };
    case "seldon":
      return only !== null ? { data: { ndarray: only } } : { jsonData: values };
    case "v2":
      return { inputs: names.map((name) => tensor(name, signature.inputs[name], values[name])) };
    default:
      return { instances: only !== null ? only : rows(values) };
  }
}

function tensor(name, spec, value) {
  const shape = [];
  for (let at = value; Array.isArray(at); at = at[0]) shape.push(at.length);
  const flat = Array.isArray(value) ? value.flat(Infinity) : [value];
  return { name, shape: shape.length ? shape : [1], datatype: V2_TYPES[spec.dtype] ?? guess(flat), data: flat };
}

const guess = (flat) => (flat.every((one) => typeof one === "number") ? "FP64" : "BYTES");

// {a: [1, 2], b: [3, 4]} as [{a: 1, b: 3}, {a: 2, b: 4}].
function rows(values) {
  const names = Object.keys(values);
  const count = Math.max(...names.map((name) => (Array.isArray(values[name]) ? values[name].length : 1)));
  return Array.from({ length: count }, (_, row) =>
    Object.fromEntries(names.map((name) => [name, Array.isArray(values[name]) ? values[name][row] : values[name]])),
  );
}
