// Why a hit is alike: query and hit side by side, the parts that count, and right or wrong.

import { showImage } from "./access.js";
import { button, byId, element, fileName, title } from "./elements.js";
import { gallery } from "./gallery.js";
import { cropText, largeAddress } from "./query.js";
import { addressOf, go } from "./routes.js";
import { ask, withParameters } from "./server.js";

const SIDE = 320;  // pixels of a canvas
const LEAST = 1e-4;  // below it, a fall is rounding
const QUESTION = "Is this hit the same thing?";

let shown = null;  // the query, the answer of the service, and the place of the hit in it
let waiting = new AbortController();

// A button on each hit of a list. Several images together are not compared with one.
export function offerComparison(list, query, reply) {
  if (["url", "text"].includes(query.kind) || query.more.length || query.not.length) return;
  [...list.querySelectorAll(":scope > .hit")].forEach((item, place) => {
    const made = button("Why?", "why-button", () => open({ query, reply, place }));
    made.setAttribute("aria-label", `Why is ${fileName(reply.hits[place].id)} alike?`);
    item.append(made);
  });
}

function open(wanted) {
  waiting.abort();
  waiting = new AbortController();
  shown = wanted;
  const { query, reply, place } = wanted;
  const hit = reply.hits[place];
  byId("why-similarity").textContent = `Similarity ${hit.similarity.toFixed(4)}, `
    + `hit ${place + 1} of ${reply.hits.length}`;
  byId("why-query-name").textContent = reply.query ? title(reply.query) : query.name;
  byId("why-hit-name").textContent = title(hit);
  byId("why-hit-id").textContent = hit.id;
  byId("why-before").disabled = place === 0;
  byId("why-after").disabled = place === reply.hits.length - 1;
  byId("why-rating").hidden = !gallery.info.can_rate;
  byId("why-question").textContent = QUESTION;
  say("Comparing the parts …");
  drawn("query", query.large, query.crop);
  drawn("hit", largeAddress(hit.id, reply.index), null);
  if (!byId("why-dialog").open) byId("why-dialog").showModal();
  explain(formOf(query, hit), reply.index, waiting.signal).catch((error) => {
    if (error.name !== "AbortError") say(error.message);
  });
}

function say(text) {
  byId("why-said").textContent = text;
}

function formOf(query, hit) {
  const form = new FormData();
  if (query.file) form.append("image", query.file, query.name);
  else form.append("id", query.id);
  form.append("hit", hit.id);
  if (query.crop) form.append("crop", cropText(query.crop));
  return form;
}

async function explain(form, index, signal) {
  const reply = await ask(withParameters("api/why", { index }),
    { method: "POST", body: form, signal });
  const falls = [...reply.query, ...reply.hit].flat();
  const largest = Math.max(...falls);
  const most = largest < LEAST ? 0 : largest;
  for (const side of ["query", "hit"]) paint(byId(`why-${side}-heat`), reply[side], most);
  say(most > 0 ? "Covering a marked part would lower the similarity, the more the brighter."
    : "No single part matters: covering any of them changes nothing.");
}

// An image on its canvas, whole or a region of it, as large as fits.
function drawn(side, url, crop) {
  const canvas = byId(`why-${side}`);
  const { signal } = waiting;
  canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
  const heat = byId(`why-${side}-heat`);
  heat.getContext("2d").clearRect(0, 0, heat.width, heat.height);
  const image = new Image();
  image.addEventListener("load", () => {
    if (signal.aborted) return;
    const region = crop ?? { left: 0, top: 0, width: 1, height: 1 };
    const width = region.width * image.naturalWidth;
    const height = region.height * image.naturalHeight;
    const scale = SIDE / Math.max(width, height);
    canvas.width = Math.max(1, Math.round(scale * width));
    canvas.height = Math.max(1, Math.round(scale * height));
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, region.left * image.naturalWidth, region.top * image.naturalHeight,
      width, height, 0, 0, canvas.width, canvas.height);
  });
  showImage(image, url, { isHidden: true });
}

// A small canvas over the image; the browser smooths it.
function paint(canvas, cells, most) {
  canvas.width = cells[0].length;
  canvas.height = cells.length;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(canvas.width, canvas.height);
  cells.flat().forEach((fall, place) => {
    const part = most > 0 ? Math.max(0, fall) / most : 0;
    pixels.data.set([255, 60, 0, Math.round(200 * part)], 4 * place);
  });
  context.putImageData(pixels, 0, 0);
}

async function rate(verdict) {
  if (!gallery.info.can_rate) return;
  const { query, reply, place } = shown;
  const form = formOf(query, reply.hits[place]);
  form.append("verdict", verdict);
  const { signal } = waiting;
  try {
    await ask(withParameters("api/feedback", { index: reply.index }),
      { method: "POST", body: form });
    mark(reply.hits[place], verdict);
    if (!signal.aborted) byId("why-question").textContent = `Saved as ${verdict}.`;
  } catch (error) {
    if (!signal.aborted) byId("why-question").textContent = error.message;
  }
}

// The card shows what was said.
function mark({ id }, verdict) {
  for (const card of document.querySelectorAll(".hits .card")) {
    if (card.title !== id) continue;
    card.querySelector(".rated")?.remove();
    card.querySelector(".tile").append(element("span", "rated", `rated ${verdict}`));
  }
}

function step(by) {
  const place = shown.place + by;
  if (place >= 0 && place < shown.reply.hits.length) open({ ...shown, place });
}

export function listenToComparison() {
  const dialog = byId("why-dialog");
  dialog.addEventListener("close", () => waiting.abort());
  byId("why-close").addEventListener("click", () => dialog.close());
  byId("why-search").addEventListener("click", () => {
    go(addressOf("like", shown.reply.hits[shown.place].id));
  });
  byId("why-before").addEventListener("click", () => step(-1));
  byId("why-after").addEventListener("click", () => step(1));
  byId("why-right").addEventListener("click", () => rate("right"));
  byId("why-wrong").addEventListener("click", () => rate("wrong"));
  dialog.addEventListener("keydown", (event) => {
    const act = {
      ArrowLeft: () => step(-1), ArrowRight: () => step(1),
      r: () => rate("right"), w: () => rate("wrong"),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
}
