// JSON as services write it: integers of 64 bits stay exact, and TF Serving's NaN and Infinity are read, as texts.

const LONG = /\d{16}/;
const STRINGS_AND_NAMES = /"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g;

export function parse(text) {
  try {
    return exact(text);
  } catch (error) {
    const spelt = text.replace(STRINGS_AND_NAMES, (one) => (one[0] === '"' ? one : `"${one}"`));
    if (spelt === text) throw error;
    return exact(spelt);
  }
}

function exact(text) {
  if (!LONG.test(text) || !JSON.rawJSON) return JSON.parse(text);
  return JSON.parse(text, (key, value, context) => {
    const lost = typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source);
    return lost ? JSON.rawJSON(context.source) : value;
  });
}
