// The service's description of its galleries, and the facts in the footer.

import { byId, element, number, plural, share } from "./elements.js";
import { ask } from "./server.js";

const COUNTS = [12, 24, 48, 100];

export const gallery = { info: null, values: {} };

export const mainIndex = () => gallery.info.indexes[0];
export const indexNamed = (name) => gallery.info.indexes.find((index) => index.name === name);

let loading = null;
let latest = 0;

// Load `gallery` once; all views wait for it.
export function loadGallery() {
  loading ??= load().catch((error) => {
    loading = null;  // the next view asks again
    throw error;
  });
  return loading;
}

// After images were added or removed.
export function reloadGallery() {
  loading = null;
  return loadGallery();
}

async function load() {
  const turn = ++latest;
  // Without the values to filter by, the gallery can still be searched.
  const stats = ask("api/stats").catch(() => ({}));
  const info = await ask("api/info");
  const { values = {} } = await stats;
  if (turn !== latest) return;  // a newer answer has been requested
  Object.assign(gallery, { info, values });
  showFacts();
  const classes = Object.keys(gallery.values.class ?? {});
  byId("known-classes").replaceChildren(...classes.map((name) => new Option(name)));
}

function factsOf(index) {
  const facts = [
    ["Images", number.format(index.images)],
    ["Classes", number.format(index.classes)],
    ["Model", `${index.model.name}, version ${index.model.version}`],
    ["Index", `${engineName(index)}${index.method} search${recallText(index)}`],
    ["Embedding", plural(index.dimension, "dimension")],
  ];
  if (index.metric === "squared_euclidean") {
    facts.push(["Similarity", "minus the squared Euclidean distance"]);
  }
  if (index.calibration) {
    const { threshold, precision, recall } = index.calibration;
    facts.push(["Match", `similarity of at least ${threshold.toFixed(3)}: `
      + `${share(recall)} of the queries that have a match get it, `
      + `${share(precision)} of the answers are correct`]);
  }
  return facts;
}

// Exact search is our own, for which the method says it all.
function engineName({ engine }) {
  return { scann: "ScaNN, ", faiss: "FAISS, " }[engine] ?? "";
}

// The share of exact search that an index finds, if it was measured.
export function recallText({ recall }) {
  return recall ? `, recall@${recall.k} ${recall.value.toFixed(3)}` : "";
}

function showFacts() {
  const { info } = gallery;
  byId("facts").replaceChildren(...info.indexes.map((index) => {
    const list = element("dl", "", ...factsOf(index).map(([name, value]) =>
      element("div", "", element("dt", "", name), element("dd", "", value))));
    return info.indexes.length > 1
      ? element("div", "index-facts", element("p", "index-name", index.name), list) : list;
  }));
  const size = plural(mainIndex().images, "image");
  byId("intro-text").textContent = mainIndex().images
    ? `Choose an image to see the most similar of ${size}.`
    : "There are no images in this gallery yet.";
  byId("nav-add").hidden = !info.can_edit;
  byId("by-url").hidden = !info.can_fetch;
  byId("by-text").hidden = !info.indexes.every((index) => index.has_text);
  const largest = Math.max(1, ...info.indexes.map(({ images }) => images));
  showCounts(Math.min(info.max_k, largest));
}

function showCounts(most) {
  const before = Number(byId("count").value) || 24;
  const counts = COUNTS.filter((value) => value < most);
  if (counts.length < COUNTS.length) counts.push(most);
  byId("count").replaceChildren(...counts.map((value) => new Option(value, value)));
  byId("count").value = counts.includes(before) ? before : counts[counts.length - 1];
}
