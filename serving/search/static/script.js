// The page: show the view of the address, and keep the places for "back".

import * as adding from "./adding.js";
import * as browse from "./browse.js";
import { listenToComparison } from "./compare.js";
import { listenToCrop } from "./crop.js";
import * as duplicates from "./duplicates.js";
import { byId, say } from "./elements.js";
import { listenToExamples } from "./examples.js";
import { listenToExport } from "./exporting.js";
import { loadGallery } from "./gallery.js";
import { listenForImages } from "./intake.js";
import * as map from "./map.js";
import { listenToPreview } from "./preview.js";
import { listenToRemoving } from "./removing.js";
import * as results from "./results.js";
import { readRoute } from "./routes.js";
import { listenToSharing } from "./sharing.js";
import { listenToKeys, showHint } from "./shortcuts.js";
import * as start from "./start.js";

// The module of each view, and the parts of the page that belong to it.
const VIEWS = {
  start: { module: start, parts: ["query", "samples"], name: "" },
  results: { module: results, parts: ["query", "results"], name: "Hits" },
  browse: { module: browse, parts: ["browsing"], name: "Browse" },
  map: { module: map, parts: ["mapping"], name: "Map" },
  duplicates: { module: duplicates, parts: ["duplicating"], name: "Near-duplicates" },
  add: { module: adding, parts: ["adding"], name: "Add images" },
};
const DIALOGS = ["crop-dialog", "remove-dialog", "share-dialog", "keys-dialog", "why-dialog"];
const PARTS = new Set(Object.values(VIEWS).flatMap(({ parts }) => parts));

// The scroll position and the focused link in each entry of the history.
const places = new Map();
let entry = null;
let isSettled = false;
let leaving = new AbortController();

async function follow({ isFirst = false, isSame = false } = {}) {
  // A view that is left while it loads keeps the place that it would restore.
  if (isSettled) rememberPlace();
  isSettled = false;
  closeDialogs();
  const focused = document.activeElement;
  entry = history.state?.entry ?? null;
  const place = places.get(entry);
  if (entry === null) {
    entry = crypto.getRandomValues(new Uint32Array(2)).join("-");
    history.replaceState({ entry }, "");
  }
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const route = readRoute();
  const isSearch = ["like", "upload", "url", "text", "image"].includes(route.view);
  const name = isSearch ? "results" : route.view;
  const { module } = VIEWS[name];
  const control = document.activeElement?.closest(".controls, .pager") && document.activeElement.id;
  const isNew = document.body.dataset.view !== name;
  document.body.dataset.view = name;
  showParts(name);
  showHint();
  if (isNew && !place) window.scrollTo({ top: 0 });
  try {
    await loadGallery();
    if (signal.aborted) return;
    await module.show(route, signal);
    if (signal.aborted) return;
    settle({ place, control, focused, isFirst, isSame, titleId: module.titleId });
    isSettled = true;
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    report(error);
    window.scrollTo({ top: 0 });
  }
}

// The dialogs belong to the view that is left.
function closeDialogs() {
  for (const dialog of DIALOGS) byId(dialog).close();
}

function report(error) {
  if (error.name !== "AbortError") say(error.message, "error");
}

function showParts(name) {
  const { parts, name: title } = VIEWS[name];
  for (const part of PARTS) byId(part).hidden = !parts.includes(part);
  document.title = title ? `${title} – Image search` : "Image search";
  for (const link of document.querySelectorAll(".nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function rememberPlace() {
  places.set(entry, {
    top: window.scrollY,
    href: document.activeElement?.getAttribute("href"),
  });
}

// "Back" restores the place and the link; a control that was used keeps the focus, and so
// does a field that was entered in the meantime; any other view begins at its heading.
function settle({ place, control, focused, isFirst, isSame, titleId }) {
  const link = place?.href && document.querySelector(`main a[href="${CSS.escape(place.href)}"]`);
  const target = (control && byId(control)) || link || (isFirst ? null : byId(titleId));
  const entered = document.activeElement;
  if (entered === focused || !entered?.matches("input, select, textarea")) {
    target?.focus({ preventScroll: true });
  }
  if (isSame) return;
  if (place) window.scrollTo({ top: place.top });
  else if (!isFirst) window.scrollTo({ top: 0 });
}

function begin() {
  history.scrollRestoration = "manual";
  listenForImages(adding.chooseFiles);
  listenToPreview();
  listenToCrop();
  listenToComparison();
  listenToExamples();
  listenToRemoving();
  listenToSharing();
  listenToExport();
  listenToKeys();
  start.listenToStart();
  results.listenToOptions();
  map.listenToMap();
  duplicates.listenToDuplicates(report);
  adding.listenToAdding();
  byId("again").addEventListener("click", () => follow());
  window.addEventListener("hashchange", () => follow());
  follow({ isFirst: true });
}

begin();
