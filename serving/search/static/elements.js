// Building blocks of the page.

import { showPicture } from "./access.js";
import { addressOf } from "./routes.js";

export const byId = (id) => document.getElementById(id);
export const number = new Intl.NumberFormat("en");

export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function button(text, className, onClick) {
  const made = element("button", className, text);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

export function plural(count, word) {
  return `${number.format(count)} ${word}${count === 1 ? "" : "s"}`;
}

export function fileName(id) {
  return id.split("/").pop();
}

export function title(image) {
  return image.class || fileName(image.id);
}

export function tile(image, alt, { later = false } = {}) {
  const picture = element("img");
  if (later) picture.loading = "lazy";
  picture.decoding = "async";
  showPicture(picture, image.url);
  picture.alt = alt;
  return element("span", "tile", picture);
}

const seen = new Map();

// What is known of an image that was shown on this page; undefined for others.
export function knownImage(id) {
  return seen.get(id);
}

export function remember(image, index) {
  seen.set(image.id, { image, index });
}

export function linkToSimilar(image, options, ...children) {
  remember(image, options.from);
  const link = element("a", "card", ...children);
  link.href = addressOf("like", image.id, { where: options.where, index: options.index });
  link.title = image.id;
  return link;
}

// A card with picture, class and name, as browsing and duplicates show it.
export function imageCard(image, { from } = {}) {
  const text = element("span", "card-text",
    element("span", "card-class", title(image)));
  if (image.class) text.append(element("span", "card-file muted", fileName(image.id)));
  const alt = image.class ? "" : `Image ${fileName(image.id)}`;
  return linkToSimilar(image, { from }, tile(image, alt, { later: true }), text);
}

// What is said to all: the line above the answers, read out by screen readers.
export function say(text, kind = "") {
  const status = byId("status");
  status.className = `status ${kind}`;
  status.textContent = text;
  byId("again").hidden = kind !== "error";
}
