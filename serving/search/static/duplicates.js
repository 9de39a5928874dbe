// Groups of images that are nearly the same.

import { imageCard } from "./cards.js";
import { byId, element, number, plural, say } from "./elements.js";
import { removeButton } from "./removing.js";
import { addressOf, replaceAddress } from "./routes.js";
import { ask, withParameters } from "./server.js";

const USUAL = 0.95;
const LEAST = 0.5;  // the least that the service accepts
const GROUPS = 24;
const MOST = 100;   // groups in one answer of the service
const WAIT = 300;   // milliseconds until the slider counts as set

export const titleId = "duplicating-title";

let current = { threshold: USUAL, limit: GROUPS, signal: null };
let timer = 0;

export async function show(route, signal) {
  const given = Number(route.options.threshold);
  const threshold = given >= LEAST && given <= 1 ? given : USUAL;
  current = { threshold, limit: GROUPS, signal };
  signal.addEventListener("abort", () => clearTimeout(timer));
  showThreshold(threshold);
  await load();
}

function showThreshold(threshold) {
  byId("threshold").value = threshold;
  byId("threshold-value").textContent = threshold.toFixed(3);
}

let running = null;

async function load() {
  running?.abort();
  running = new AbortController();
  const signal = AbortSignal.any([running.signal, current.signal]);
  const { threshold, limit } = current;
  say("Comparing all images …", "busy");
  byId("groups").setAttribute("aria-busy", "true");
  byId("more-groups").hidden = true;
  try {
    const reply = await ask(withParameters("api/duplicates",
      { threshold, limit }), { signal });
    byId("groups").replaceChildren(...reply.groups.map(groupItem));
    byId("more-groups").hidden = limit >= MOST || reply.group_count <= limit;
    say(describe(reply));
  } catch (error) {
    if (error.name !== "AbortError") byId("groups").replaceChildren();
    throw error;
  } finally {
    if (!signal.aborted) byId("groups").removeAttribute("aria-busy");
  }
}

function describe({ groups, group_count: all, images, threshold, complete }) {
  const among = plural(images, "image");
  if (images < 2) return "This gallery has fewer than two images.";
  if (!groups.length) {
    return `No two of ${among} have a similarity of at least ${threshold.toFixed(3)}. `
      + "Move the slider left to see more.";
  }
  const count = groups.reduce((sum, group) => sum + group.count, 0);
  const shown = groups.length < all ? `The ${number.format(groups.length)} largest of `
    + plural(all, "group") : plural(all, "group");
  const more = complete ? "" : " Some images have so many near-duplicates that a group "
    + "may be split.";
  return `${shown}, with ${number.format(count)} of ${among}.${more}`;
}

function groupItem({ similarity, count, images }) {
  const part = images.length < count ? ` (${images.length} shown)` : "";
  const name = element("h2", "",
    `${plural(count, "image")}${part}, similarity to the first at least ${similarity.toFixed(3)}`);
  const list = element("ul", "strip", ...images.map((image) => {
    const item = element("li", "with-remove", imageCard(image));
    item.append(...removeButton(image, () => afterRemoval(item, image)));
    return item;
  }));
  return element("li", "group", name, list);
}

// A group of one is not a group.
function afterRemoval(item, image) {
  const group = item.closest(".group");
  const next = item.nextElementSibling ?? item.previousElementSibling;
  item.remove();
  const left = group.querySelectorAll(".with-remove").length;
  if (left < 2) group.remove();
  else group.querySelector("h2").textContent = `${plural(left, "image")} left`;
  const focus = left < 2 ? byId("duplicating-title") : next.querySelector(".card-remove");
  focus.focus();
  say(`${image.id} was removed.`);
}

export function listenToDuplicates(report) {
  const slider = byId("threshold");
  slider.addEventListener("input", () => {
    if (!current.signal) return;  // the gallery is not loaded yet
    current.threshold = Number(slider.value);
    current.limit = GROUPS;
    showThreshold(current.threshold);
    clearTimeout(timer);
    timer = setTimeout(() => {
      replaceAddress(addressOf("duplicates", "", { threshold: current.threshold }));
      load().catch(report);
    }, WAIT);
  });
  byId("more-groups").addEventListener("click", () => {
    current.limit = MOST;
    load().catch(report);
  });
}
