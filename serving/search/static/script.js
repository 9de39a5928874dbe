"use strict";

// The page has three states, kept in the address so that "back" works:
//   #            start: choose a picture, or take one of a random sample
//   #like/ROW    pictures like one of the gallery
//   #upload      pictures like the one last uploaded

const COUNTS = [12, 24, 48, 96];
const SAMPLE = 18;
const byId = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");

const state = { info: null, upload: null, uploadUrl: null, seed: 0, running: null };

// Server

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The search page's server cannot be reached. Is it still running?");
  }
  const reply = await response.json().catch(() => null);
  if (!response.ok || reply === null) {
    const text = reply?.error ?? `The server answered with status ${response.status}.`;
    throw Object.assign(new Error(text), { status: response.status });
  }
  return reply;
}

// Building blocks

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function fileName(id) {
  return id.split("/").pop();
}

function title(image) {
  return image.class || fileName(image.id);
}

function tile(image, alt) {
  const picture = element("img");
  picture.src = image.url;
  picture.alt = alt;
  picture.decoding = "async";
  return element("span", "tile", picture);
}

function linkToSimilar(image, ...children) {
  const link = element("a", "card", ...children);
  link.href = `#like/${image.row}`;
  link.title = image.id;
  return link;
}

// As few digits, 3 or more, as show each hit that is no match below the threshold.
function digitsOf({ hits, threshold }) {
  const weak = hits.filter((hit) => hit.match === false);
  let digits = 3;
  while (digits < 9 && weak.some((hit) =>
    Number(hit.similarity.toFixed(digits)) >= Number(threshold.toFixed(digits)))) {
    digits += 1;
  }
  return digits;
}

function hitCard(hit, query, threshold, digits) {
  const name = element("span", "card-name", element("span", "card-class", title(hit)));
  if (query?.class && query.class === hit.class) {
    const check = element("span", "same", "✓");
    check.setAttribute("role", "img");
    check.setAttribute("aria-label", "same class as the query");
    check.title = "same class as the query";
    name.append(check);
  }
  const score = element("b", "", hit.similarity.toFixed(digits));
  const filling = element("i");
  const share = Math.max(0, Math.min(1, hit.similarity));
  filling.style.setProperty("--share", `${(100 * share).toFixed(1)}%`);
  const meter = element("span", "meter", filling);
  if (threshold !== undefined) {
    meter.classList.add("marked");
    const place = Math.max(0, Math.min(1, threshold));
    meter.style.setProperty("--threshold", `${(100 * place).toFixed(1)}%`);
  }
  const similarity = element("span", "card-score",
    element("span", "", "similarity", score), meter);
  const text = element("span", "card-text", name, similarity);
  const card = linkToSimilar(hit, tile(hit, `Image ${fileName(hit.id)}`), text);
  if (hit.match === false) card.classList.add("weak");
  return element("li", "", card);
}

// With a calibrated gallery: what matches, a line, and what is only near.
function hitList(reply) {
  const { hits, query, match, threshold } = reply;
  const digits = digitsOf(reply);
  const cards = hits.map((hit) => hitCard(hit, query, threshold, digits));
  const first = hits.findIndex((hit) => hit.match === false);
  if (first < 0) return cards;
  const divider = match
    ? element("li", "divider", `Below ${threshold.toFixed(digits)}: near, but no match`)
    : element("li", "divider no-match",
      element("strong", "", "Nothing here is similar enough."),
      ` A match needs a similarity of ${threshold.toFixed(digits)}, the nearest `
      + `image has ${hits[0].similarity.toFixed(digits)}. These are the nearest all the same:`);
  return [...cards.slice(0, first), divider, ...cards.slice(first)];
}

function sampleCard(image) {
  const alt = `Search with ${title(image)}, ${fileName(image.id)}`;
  return element("li", "", linkToSimilar(image, tile(image, alt)));
}

// What is shown

function say(text, kind = "") {
  const status = byId("status");
  status.className = `status ${kind}`;
  status.textContent = text;
}

function showStart() {
  document.body.dataset.view = "start";
  byId("preview").hidden = true;
  byId("results").hidden = true;
  byId("samples").hidden = false;
}

function showPreview(url, name, note) {
  const image = byId("preview-image");
  image.src = url;
  image.alt = `Query image ${name}`;
  byId("preview-title").textContent = name;
  byId("preview-note").textContent = note;
  byId("preview").hidden = false;
}

function showHits(reply) {
  const { hits, query, match } = reply;
  document.body.dataset.view = "results";
  byId("samples").hidden = true;
  byId("results").hidden = false;
  byId("results-title").textContent = match === false ? "No match" : "Nearest images";
  byId("hits").replaceChildren(...hitList(reply));
  const milliseconds = Math.max(1, Math.round(1000 * reply.seconds));
  let text = `${hits.length} nearest of ${number.format(state.info.images)} images, `
    + `found in ${number.format(milliseconds)} ms.`;
  if (match === false) {
    text = `No match among ${number.format(state.info.images)} images, `
      + `searched in ${number.format(milliseconds)} ms.`;
  } else if (match) {
    const matches = hits.filter((hit) => hit.match).length;
    text += ` ${matches} ${matches > 1 ? "are matches" : "is a match"}.`;
  }
  if (query?.class) {
    const same = hits.filter((hit) => hit.class === query.class).length;
    text += ` ${same || "None"} of ${match === false ? "the nearest" : "them"} `
      + `${same > 1 ? "are" : "is"} of the same class.`;
  }
  say(text);
  window.scrollTo({ top: 0 });
  byId("results-title").focus({ preventScroll: true });
}

// Searching

async function run(request, busyText) {
  state.running?.abort();
  const running = new AbortController();
  state.running = running;
  say(busyText, "busy");
  byId("hits").setAttribute("aria-busy", "true");
  try {
    showHits(await request(running.signal));
  } catch (error) {
    if (error.name === "AbortError") return;
    history.replaceState(null, "", "#");  // the same link can be followed again
    showStart();
    say(error.message, "error");
    window.scrollTo({ top: 0 });
  } finally {
    if (state.running === running) {
      state.running = null;
      byId("hits").removeAttribute("aria-busy");
    }
  }
}

function count(most) {
  return Math.min(Number(byId("count").value), most);
}

function searchLike(row) {
  return run(async (signal) => {
    const k = count(state.info.images - 1);
    const reply = await ask(`api/similar/${row}?k=${k}`, { signal });
    const note = reply.query.class ? fileName(reply.query.id) : "from the gallery";
    showPreview(reply.query.url, title(reply.query), note);
    return reply;
  }, "Searching …");
}

function searchUpload() {
  const file = state.upload;
  const name = file.name || "Pasted image";
  return run(async (signal) => {
    const most = state.info.max_upload_bytes;
    if (file.size > most) {
      throw new Error(`${name}: This file is too large; at most ${most / 1e6} MB are taken.`);
    }
    const form = new FormData();
    form.append("image", file, name);
    form.append("k", count(state.info.max_k));
    let reply;
    try {
      reply = await ask("api/search", { method: "POST", body: form, signal });
    } catch (error) {
      const isOfFile = [400, 413].includes(error.status);
      throw isOfFile ? new Error(`${name}: ${error.message}`) : error;
    }
    showPreview(state.uploadUrl, name, "your image");
    return reply;
  }, `Searching with ${name} …`);
}

function take(file) {
  if (!file || !state.info) return;
  if (state.uploadUrl) URL.revokeObjectURL(state.uploadUrl);
  state.upload = file;
  state.uploadUrl = URL.createObjectURL(file);
  if (location.hash !== "#upload") history.pushState(null, "", "#upload");
  searchUpload();
}

function follow() {
  const like = /^#like\/(\d+)$/.exec(location.hash);
  if (like) return searchLike(like[1]);
  if (location.hash === "#upload" && state.upload) return searchUpload();
  state.running?.abort();
  showStart();
  say("");
  return undefined;
}

// Start

async function loadSamples() {
  state.seed = Math.floor(Math.random() * 1e9);
  const reply = await ask(`api/images/sample?seed=${state.seed}&limit=${SAMPLE}`);
  byId("strip").replaceChildren(...reply.images.map(sampleCard));
}

function showFacts(info) {
  const model = `${info.model.name}, version ${info.model.version}`;
  const facts = [
    ["Images", number.format(info.images)],
    ["Classes", number.format(info.classes)],
    ["Model", model],
    ["Index", `ScaNN, ${info.index} search`],
    ["Embedding", `${info.dimension} numbers`],
  ];
  if (info.calibration) {
    facts.push(["Match", `from a similarity of ${info.calibration.threshold.toFixed(3)} on`]);
  }
  byId("facts").replaceChildren(...facts.map(([name, value]) =>
    element("div", "", element("dt", "", name), element("dd", "", value))));
  const size = `${number.format(info.images)} images`;
  const classes = info.classes ? ` of ${number.format(info.classes)} classes` : "";
  byId("bar-facts").textContent = size + classes;
  byId("intro-text").textContent =
    `Give a picture and see the most similar of ${size}.`;
  const counts = COUNTS.filter((value) => value < info.max_k);
  if (counts.length < COUNTS.length) counts.push(info.max_k);
  byId("count").replaceChildren(...counts.map((value) => new Option(value, value)));
  byId("count").value = counts.includes(24) ? 24 : counts[counts.length - 1];
}

function listen() {
  const isTouch = matchMedia("(pointer: coarse)").matches;
  byId("drop-hint").textContent = isTouch ? "or take a photo" : "or drop or paste one here";
  const file = byId("file");
  file.addEventListener("change", () => {
    take(file.files[0]);
    file.value = "";  // so that choosing the same file again is a change
  });
  byId("count").addEventListener("change", () => {
    if (document.body.dataset.view === "results") follow();
  });
  byId("shuffle").addEventListener("click", () => {
    loadSamples().catch((error) => say(error.message, "error"));
  });
  document.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    if (files.length) take(files[0]);
  });
  let depth = 0;  // dragenter and dragleave come for each element on the way
  const veil = (visible) => { byId("veil").hidden = !visible; };
  const hasFiles = (event) => event.dataTransfer.types.includes("Files");
  document.addEventListener("dragenter", (event) => {
    if (hasFiles(event)) veil(++depth > 0);
  });
  document.addEventListener("dragleave", (event) => {
    if (hasFiles(event)) veil(--depth > 0);
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    depth = 0;
    veil(false);
    take(event.dataTransfer.files[0]);
  });
  window.addEventListener("hashchange", follow);
}

async function start() {
  listen();
  try {
    state.info = await ask("api/info");
    showFacts(state.info);
    await loadSamples();
    await follow();
  } catch (error) {
    say(error.message, "error");
  }
}

start();
