// Keys for what is done often, shown by the key "?"; and the hint for a first visit.

import { byId } from "./elements.js";
import { addressOf, go, readRoute } from "./routes.js";

const KEYS = "image-search-keys";
const SEEN = "image-search-hint";

const ACTIONS = {
  "?": () => openHelp(),
  "/": () => visible("#start-class, #result-filters-class, #browse-filters-class")?.focus(),
  u: () => visible("#file")?.click(),
  s: () => go(addressOf("start")),
  b: () => go(addressOf("browse")),
  m: () => go(addressOf("map")),
  d: () => go(addressOf("duplicates")),
  g: () => visible("#group")?.click(),
  h: () => visible(".hits .card, #page-images .card, #strip .card")?.focus(),
  ArrowRight: () => step(1),
  ArrowLeft: () => step(-1),
};

function visible(selector) {
  return [...document.querySelectorAll(selector)].find((one) => one.checkVisibility());
}

// From one card to another, in the order in which they are shown.
function step(by) {
  const card = document.activeElement?.closest(".card");
  if (!card) return false;
  const cards = [...document.querySelectorAll("main .card")].filter((one) => one.checkVisibility());
  cards[cards.indexOf(card) + by]?.focus();
  return true;
}

function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") || !isOn()) return;
  if (event.target.closest?.("input, select, textarea, [role=application]")) return;
  const act = Object.hasOwn(ACTIONS, event.key) && ACTIONS[event.key];
  if (act && act() !== false) event.preventDefault();
}

// Some browsers refuse all storage; then nothing is remembered.
function stored(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function store(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // see `stored`
  }
}

const isOn = () => stored(KEYS) !== "off";

function openHelp() {
  byId("keys-on").checked = isOn();
  byId("keys-dialog").showModal();
}

// What a first visitor is told in the view that is shown; nothing after "Got it".
const HINTS = {
  start: "New here? Give an image, or press one below: the gallery is sorted by how alike "
    + `its images are.${matchMedia("(pointer: coarse)").matches ? "" : " Press ? for the keys."}`,
  results: "Press a hit to search on with it. “Why?” on a hit shows which parts make it alike. "
    + "A dashed card marks where matches end.",
};

export function showHint() {
  const { view } = readRoute();
  const text = HINTS[["like", "upload", "url", "text", "image"].includes(view) ? "results" : view];
  byId("hint").hidden = !text || stored(SEEN) === "seen";
  byId("hint-text").textContent = text ?? "";
}

export function listenToKeys() {
  document.addEventListener("keydown", onKey);
  byId("keys-open").addEventListener("click", openHelp);
  byId("keys-close").addEventListener("click", () => byId("keys-dialog").close());
  byId("keys-on").addEventListener("change", ({ target }) =>
    store(KEYS, target.checked ? "on" : "off"));
  byId("hint-close").addEventListener("click", () => {
    store(SEEN, "seen");
    byId("hint").hidden = true;
  });
}
