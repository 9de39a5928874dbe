// Cards of images, and links that search with an image.

import { showImage } from "./access.js";
import { element, fileName, title } from "./elements.js";
import { addressOf } from "./routes.js";

export function tile(image, alt, { later = false } = {}) {
  const shown = element("img");
  if (later) shown.loading = "lazy";
  shown.decoding = "async";
  showImage(shown, image.url);
  shown.alt = alt;
  return element("span", "tile", shown);
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
  const { where, index, group, k } = options;
  link.href = addressOf("like", image.id, { where, index, group, k });
  link.title = image.id;
  return link;
}

// A card with image, class and name, for browsing and duplicates.
export function imageCard(image, { from } = {}) {
  const text = element("span", "card-text",
    element("span", "card-class", title(image)));
  if (image.class) text.append(element("span", "card-file muted", fileName(image.id)));
  const alt = image.class ? "" : `Image ${fileName(image.id)}`;
  return linkToSimilar(image, { from }, tile(image, alt, { later: true }), text);
}
