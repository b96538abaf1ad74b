// A picture file: looked at in the browser before anything is sent, and as base64 for sending.

import { bodyBytes, word } from "./context.js";

export const MOST_PIXELS = 20_000_000;
const KINDS = ["image/png", "image/jpeg", "image/svg+xml", "image/webp"];

// Raises what is wrong with it; a file that the browser cannot show may still be sent, to see what the service says.
export async function look(file) {
  if (!KINDS.includes(file.type)) throw new Error(word("test.not_a_picture"));
  if (file.size * 1.4 > bodyBytes) throw new Error(word("test.too_large", { bytes: bodyBytes }));
  const url = URL.createObjectURL(file);
  const [width, height] = await size(url);
  if (width * height >= MOST_PIXELS) {
    URL.revokeObjectURL(url);
    const pixels = (width * height / 1e6).toFixed(1);
    throw new Error(word("test.too_many_pixels", { width, height, pixels, most: MOST_PIXELS / 1e6 }));
  }
  return { file, url, width, height };
}

function size(url) {
  return new Promise((resolve) => {
    const image = new Image();
    image.onload = () => resolve([image.naturalWidth, image.naturalHeight]);
    image.onerror = () => resolve([0, 0]);
    image.src = url;
  });
}

export async function base64(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}
