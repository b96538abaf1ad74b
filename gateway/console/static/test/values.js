// Answers as named outputs with a value for each row, whichever protocol they came by; and the numbers in them.

const MOST_NUMBERS = 2_000_000;

export function outputsIn(answer) {
  if (answer === null || typeof answer !== "object") return [{ name: "", rows: [answer] }];
  if (Array.isArray(answer.outputs) && answer.outputs.every((one) => Array.isArray(one?.shape))) {
    return answer.outputs.map((one) => ({ name: one.name, rows: shaped(one.data ?? [], one.shape) }));
  }
  if ("predictions" in answer) return byColumn(asArray(answer.predictions), "predictions");
  if ("outputs" in answer) return columns(answer.outputs, "outputs");
  if ("jsonData" in answer) return columns(answer.jsonData, "jsonData");
  if ("strData" in answer) return [{ name: "strData", rows: [answer.strData] }];
  if (answer.data && typeof answer.data === "object" && !Array.isArray(answer.data)) return [seldon(answer.data)];
  return columns(answer, "");
}

function seldon(data) {
  const rows = data.tensor ? shaped(data.tensor.values ?? [], data.tensor.shape ?? []) : asArray(data.ndarray);
  return { name: "data", rows, labels: data.names };
}

function columns(given, name) {
  if (given === null || typeof given !== "object" || Array.isArray(given)) return [{ name, rows: asArray(given) }];
  return Object.entries(given).map(([key, value]) => ({ name: key, rows: asArray(value) }));
}

function byColumn(rows, name) {
  const named = rows.length > 0 && rows.every((row) => row !== null && typeof row === "object" && !Array.isArray(row));
  if (!named) return [{ name, rows }];
  return Object.keys(rows[0]).map((key) => ({ name: key, rows: rows.map((row) => row[key]) }));
}

const asArray = (value) => (Array.isArray(value) ? value : [value]);

// A flat list as the rows of its first dimension.
function shaped(flat, shape) {
  if (shape.length < 2) return flat;
  const size = shape.slice(1).reduce((product, one) => product * one, 1);
  return Array.from({ length: shape[0] }, (_, row) => flat.slice(row * size, (row + 1) * size));
}

export function shapeOf(value) {
  const shape = [];
  for (let at = value; Array.isArray(at); at = at[0]) shape.push(at.length);
  return shape;
}

export function statistics(value) {
  const numbers = Array.isArray(value) ? value.flat(Infinity) : [value];
  if (!numbers.length || numbers.length > MOST_NUMBERS || numbers.some((one) => typeof one !== "number")) return null;
  let [least, most, at] = [Infinity, -Infinity, 0];
  numbers.forEach((number, index) => {
    if (number < least) least = number;
    if (number > most) [most, at] = [number, index];
  });
  return { least, most, at, count: numbers.length };
}
