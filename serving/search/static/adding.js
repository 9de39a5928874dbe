// Adding images to the gallery: several at once, each of which may fail.

import { addressOf } from "./routes.js";
import { remember } from "./cards.js";
import { byId, button, element, plural, say } from "./elements.js";
import { gallery, mainIndex, reloadGallery } from "./gallery.js";
import { ask } from "./server.js";
import { forgetSamples } from "./start.js";

export const titleId = "adding-title";

// The chosen images and their results stay until the page is closed.
const entries = [];
let isRunning = false;
let news = [""];

export async function show() {
  if (!gallery.info.can_edit) {
    byId("add-form").hidden = true;
    throw new Error("Images cannot be added here: the service was started without `--editable`.");
  }
  byId("add-form").hidden = false;
  say(...news);
  update();
}

// Keeps the news for this view while another one uses the status line.
function announce(...given) {
  news = given;
  if (!byId("adding").hidden) say(...news);
}

export function chooseFiles(files) {
  for (const file of files) {
    const name = file.name || "Pasted image";
    const entry = { file, name, state: "waiting", url: URL.createObjectURL(file) };
    entry.note = element("span", "add-note muted");
    entry.actions = element("span", "add-actions");
    entry.item = element("li", "add-item", thumbnail(entry),
      element("span", "add-name", name), entry.note, entry.actions);
    entries.push(entry);
    byId("add-list").append(entry.item);
    describe(entry);
  }
  update();
}

function thumbnail({ url }) {
  const image = element("img");
  image.src = url;
  image.alt = "";
  image.addEventListener("error", () => image.classList.add("broken"));
  return image;
}

function describe(entry) {
  const { note, actions, item } = entry;
  item.dataset.state = entry.state;
  const texts = { waiting: "waiting", sending: "adding …", failed: entry.error };
  note.textContent = texts[entry.state] ?? `added${entry.class ? ` as ${entry.class}` : ""}`;
  const made = [];
  if (entry.state === "done") {
    const link = element("a", "small-button", "Search with it");
    link.href = addressOf("like", entry.id);
    link.setAttribute("aria-label", `Search with ${entry.name}`);
    made.push(link);
  } else if (entry.state !== "sending") {
    const drop = button("Discard", "small-button", () => discard(entry));
    drop.setAttribute("aria-label", `Discard ${entry.name}`);
    made.push(drop);
  }
  actions.replaceChildren(...made);
}

function discard(entry) {
  entries.splice(entries.indexOf(entry), 1);
  URL.revokeObjectURL(entry.url);
  const next = entry.item.nextElementSibling ?? entry.item.previousElementSibling;
  entry.item.remove();
  (next?.querySelector("a, button") ?? byId("add-files")).focus();
  update();
}

const isKept = (entry) => entries.includes(entry);
const open = () => entries.filter(({ state }) => state !== "done");

function update() {
  const count = open().length;
  const isRetry = count > 0 && open().every(({ state }) => state === "failed");
  byId("add-start").disabled = isRunning || !count;
  byId("add-start").textContent = isRunning ? "Adding …"
    : `${isRetry ? "Try again with" : "Add"} ${count ? plural(count, "image") : ""}`.trim();
  if (!isRunning && !entries.length) {
    say(`New images can be found right away. The gallery has ${plural(mainIndex().images, "image")}.`);
  }
}

// One after the other, so that their order stays; a failure does not stop the rest.
async function addAll() {
  const batch = open();
  const name = byId("add-class").value.trim();
  isRunning = true;
  update();
  byId("add-progress").hidden = false;
  announce(`Adding ${plural(batch.length, "image")} …`, "busy");
  for (const entry of batch) {
    entry.state = "waiting";
    describe(entry);
  }
  for (const entry of batch) {
    if (!isKept(entry)) continue;
    showProgress(batch);
    await addOne(entry, name);
  }
  showProgress(batch);
  isRunning = false;
  const kept = batch.filter(isKept);
  const failed = kept.filter(({ state }) => state === "failed").length;
  const added = kept.length - failed;
  update();
  if (added) {
    forgetSamples();
    await reloadGallery().catch(() => {});  // the images are added; the counts come later
  }
  report(added, failed);
}

function report(added, failed) {
  if (!failed) announce(`${plural(added, "image")} added.`);
  else {
    announce(`${plural(failed, "image")} could not be added; see the list. ${added} added.`,
      "warning");
  }
}

// Counts the images that were not discarded meanwhile.
function showProgress(batch) {
  const kept = batch.filter(isKept);
  const done = kept.filter(({ state }) => state !== "waiting").length;
  byId("add-bar").max = Math.max(1, kept.length);
  byId("add-bar").value = done;
  byId("add-count").textContent = `${done} of ${kept.length}`;
}

async function addOne(entry, name) {
  entry.state = "sending";
  describe(entry);
  try {
    const most = gallery.info.max_upload_bytes;
    if (entry.file.size > most) {
      throw new Error(`This file is too large. At most ${most / 1e6} MB are allowed.`);
    }
    const form = new FormData();
    form.append("image", entry.file, entry.name);
    if (name) form.append("class", name);
    const image = await ask("api/images", { method: "POST", body: form });
    remember(image);
    Object.assign(entry, { state: "done", id: image.id, class: image.class });
  } catch (error) {
    Object.assign(entry, { state: "failed", error: error.message });
  }
  describe(entry);
}

export function listenToAdding() {
  byId("add-files").addEventListener("change", (event) => {
    chooseFiles([...event.target.files]);
    event.target.value = "";  // so that choosing the same file again is a change
  });
  byId("add-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!isRunning && open().length) addAll();
  });
}
