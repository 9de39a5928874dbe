// The first view: choose an image, or one of a random sample.

import { linkToSimilar, tile } from "./cards.js";
import { byId, element, fileName, say, title } from "./elements.js";
import { meant } from "./filters.js";
import { gallery, mainIndex } from "./gallery.js";
import { className } from "./names.js";
import { addressOf, go, showAgain } from "./routes.js";
import { ask, withParameters } from "./server.js";

const SAMPLE = 18;

export const titleId = "start-title";

let isLoaded = false;

export async function show(route, signal) {
  say("");
  byId("preview").hidden = true;
  showNames();
  // The sample stays, so that "back" restores the view.
  if (!isLoaded) await loadSamples(signal);
}

function showNames() {
  byId("by-name").hidden = mainIndex().classes < 2;
  const names = new Set(Object.keys(gallery.values.class ?? {}).map(className));
  byId("class-names").replaceChildren(...[...names].map((name) => new Option(name)));
}

export function forgetSamples() {
  isLoaded = false;
}

async function loadSamples(signal) {
  const isEmpty = mainIndex().images === 0;
  byId("samples").classList.toggle("empty-gallery", isEmpty);
  if (isEmpty) return byId("strip").replaceChildren();
  const seed = Math.floor(Math.random() * 1e9);
  const reply = await ask(
    withParameters("api/images/sample", { seed, limit: SAMPLE }), { signal });
  byId("strip").replaceChildren(...reply.images.map(sampleCard));
  isLoaded = true;
  return undefined;
}

function sampleCard(image) {
  const alt = `Search with ${title(image)}, ${fileName(image.id)}`;
  return element("li", "", linkToSimilar(image, {}, tile(image, alt)));
}

// A class that is typed is browsed.
function browseNamed(event) {
  event.preventDefault();
  const value = meant(byId("start-class").value, Object.keys(gallery.values.class ?? {}));
  if (value !== "") go(addressOf("browse", "", { where: { class: value } }));
}

export function listenToStart() {
  byId("by-name").addEventListener("submit", browseNamed);
  byId("shuffle").addEventListener("click", () => {
    forgetSamples();
    showAgain();
  });
}
