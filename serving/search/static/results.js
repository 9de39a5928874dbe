// The hits of a query, in one index or in two side by side.

import { offerComparison } from "./compare.js";
import { button, byId, element, say } from "./elements.js";
import { offerExamples, showExamples } from "./examples.js";
import { showExport } from "./exporting.js";
import { showFilters } from "./filters.js";
import { gallery, indexNamed, mainIndex, recallText } from "./gallery.js";
import { agreement, hitList, ranksOf, scaleInWords, summary } from "./hits.js";
import { hidePreview, showPreview } from "./preview.js";
import { readQuery, search } from "./query.js";
import { addressOf, go } from "./routes.js";
import { showSharing } from "./sharing.js";
import { stackClasses, stackDuplicates } from "./stacks.js";

const BOTH = "both";

export const titleId = "results-title";

export async function show(route, signal) {
  byId("columns").setAttribute("aria-busy", "true");
  byId("results-title").textContent = "Nearest images";
  try {
    await searchAndShow(route, signal);
  } catch (error) {
    if (error.name !== "AbortError") {
      byId("columns").replaceChildren();
      byId("results-title").textContent = "The search failed";
    }
    throw error;
  } finally {
    if (!signal.aborted) byId("columns").removeAttribute("aria-busy");
  }
}

async function searchAndShow(route, signal) {
  hidePreview();
  byId("examples").hidden = true;
  showExport([]);
  const query = readQuery(route);
  showPreview(query, route);
  showExamples(query, route);
  const indexes = showControls(route, query);
  const name = query.kind === "like" || query.more.length ? "" : ` with ${query.name}`;
  say(`Searching${name} …`, "busy");
  const k = Number(byId("count").value);
  const settled = await Promise.allSettled(indexes.map(({ name: index }) =>
    search(query, { k, index, signal })));
  if (signal.aborted) throw new DOMException("The view was left.", "AbortError");
  const replies = settled.map((one) => one.value ?? null);
  if (replies.every((reply) => reply === null)) throw settled[0].reason;
  const item = replies.map((reply) => itemOf(query, reply)).find(Boolean);
  if (item) showPreview(query, route, item);
  showColumns(route, indexes, settled, replies, query);
  showExport(replies);
}

// What the service says of the query, if it is an image of the gallery.
function itemOf(query, reply) {
  return reply?.query ?? reply?.queries?.find((item) => item && item.id === query.id);
}

function showControls(route, query) {
  const change = (options) => go(addressOf(route.view, route.argument,
    { ...route.options, ...options }));
  showFilters(byId("result-filters"), query.where, (where) => change({ where }));
  showCount(route, change);
  showGrouping(route, change);
  showSharing(query, route);
  const { indexes } = gallery.info;
  byId("index-control").hidden = indexes.length < 2;
  if (indexes.length < 2) return indexes;
  const choices = indexes.map(({ name }) => new Option(name, name));
  byId("index").replaceChildren(new Option("Side by side", BOTH), ...choices);
  const chosen = indexNamed(route.options.index);
  byId("index").value = chosen ? chosen.name : BOTH;
  byId("index").onchange = () => {
    const { value } = byId("index");
    change({ index: value === BOTH ? undefined : value });
  };
  return chosen ? [chosen] : indexes;
}

// The number of hits is in the address, so that a link shows as many.
function showCount(route, change) {
  const select = byId("count");
  if ([...select.options].some(({ value }) => value === route.options.k)) {
    select.value = route.options.k;
  }
  select.onchange = () => change({ k: select.value });
}

function showGrouping(route, change) {
  const toggle = byId("group");
  toggle.hidden = mainIndex().classes < 2;
  toggle.setAttribute("aria-pressed", String(isGrouped(route)));
  toggle.onclick = () => change({ group: isGrouped(route) ? undefined : "class" });
}

const isGrouped = (route) => route.options.group === "class";

function showColumns(route, indexes, settled, replies, query) {
  const { where } = query;
  const { index: only, group, k } = route.options;
  const links = { where, index: indexes.length > 1 ? undefined : only, group, k };
  const ranks = replies.map((reply) => (reply ? ranksOf(reply) : new Map()));
  const columns = indexes.map((index, place) => {
    const others = indexes.length > 1 ? ranks[1 - place] : undefined;
    const reply = replies[place];
    const heading = indexes.length > 1 ? columnHead(index) : [];
    if (reply === null) {
      const text = element("p", "status error", settled[place].reason.message);
      return element("section", "column", ...heading, text);
    }
    const text = summary(reply, { images: index.images, where });
    if (indexes.length > 1) heading.push(element("p", "muted", text));
    if (place + 1 < indexes.length) heading.push(linkToNext(indexes[place + 1]));
    const list = element("ol", "grid hits", ...hitList(reply, { others, links }));
    offerExamples(list, query, route);
    offerComparison(list, query, reply);
    if (!reply.hits.length) list.append(element("li", "empty", text));
    if (isGrouped(route)) stackClasses(list);
    else stackDuplicates(list);
    const scale = reply.hits.length > 1 ? scaleInWords(reply) : "";
    const note = scale ? [element("p", "muted scale-note", scale)] : [];
    return element("section", "column", ...heading, list, ...note);
  });
  columns.forEach((column, place) =>
    column.setAttribute("aria-label", `Hits in ${indexes[place].name}`));
  byId("columns").classList.toggle("two", columns.length > 1);
  byId("columns").replaceChildren(...columns);
  const isMatch = replies.some((reply) => reply && (reply.match !== false || !reply.hits.length));
  byId("results-title").textContent = isMatch ? "Nearest images" : "No match";
  say(indexes.length > 1 ? comparison(replies)
    : summary(replies[0], { images: indexes[0].images, where }));
}

function columnHead(index) {
  const { name, version } = index.model;
  const heading = element("h2", "", index.name);
  heading.tabIndex = -1;
  return [heading,
    element("p", "muted", `${name}, version ${version}${recallText(index)}`)];
}

// With the columns one below the other, the second is far away.
function linkToNext(index) {
  return button(`Go to ${index.name}`, "small-button to-next", (event) => {
    const next = event.target.closest(".column").nextElementSibling.querySelector("h2");
    next.focus({ preventScroll: true });
    next.scrollIntoView();
  });
}

function comparison(replies) {
  return replies.includes(null) ? "Only one of the indexes answered."
    : agreement(replies);
}

// On a narrow screen a button shows the options.
export function listenToOptions() {
  const toggle = byId("show-options");
  toggle.addEventListener("click", () => {
    const isOpen = toggle.getAttribute("aria-expanded") === "true";
    toggle.setAttribute("aria-expanded", String(!isOpen));
  });
}
