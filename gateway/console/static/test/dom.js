// Elements, made and filled: text goes in as text, never as markup.

export const byId = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export function fill(place, ...children) {
  place.replaceChildren(...children.filter((child) => child != null));
}

export function show(node, shown) {
  node.hidden = !shown;
}
