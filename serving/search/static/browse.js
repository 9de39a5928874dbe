// The gallery, page by page, with a filter.

import { imageCard } from "./cards.js";
import { byId, element, number, plural, say } from "./elements.js";
import { showFilters, whereInWords } from "./filters.js";
import { dropItem, removeButton } from "./removing.js";
import { addressOf, go, whereOf } from "./routes.js";
import { ask, whereText, withParameters } from "./server.js";

const PAGE = 48;

export const titleId = "browsing-title";

export async function show(route, signal) {
  const where = whereOf(route);
  const page = Math.max(1, Math.floor(Number(route.options.page)) || 1);
  showFilters(byId("browse-filters"), where,
    (changed) => go(addressOf("browse", "", { where: changed })));
  say("Loading …", "busy");
  byId("page-images").setAttribute("aria-busy", "true");
  try {
    const offset = (page - 1) * PAGE;
    const reply = await ask(withParameters("api/images",
      { offset, limit: PAGE, where: whereText(where) }), { signal });
    byId("page-images").replaceChildren(...reply.images.map(pageItem));
    showPager(page, Math.ceil(reply.total / PAGE), where);
    say(describe(reply, offset, where));
  } catch (error) {
    if (error.name !== "AbortError") clear();
    throw error;
  } finally {
    if (!signal.aborted) byId("page-images").removeAttribute("aria-busy");
  }
}

function clear() {
  byId("page-images").replaceChildren();
  byId("pager").replaceChildren();
}

function pageItem(image) {
  const item = element("li", "with-remove", imageCard(image));
  item.append(...removeButton(image, () => {
    dropItem(item, byId("browsing-title"));
    say(`${image.id} was removed.`);
  }));
  return item;
}

function describe({ total, images }, offset, where) {
  const filter = whereInWords(where);
  const what = `${plural(total, "image")}${filter ? ` with ${filter}` : ""}`;
  if (!total && filter) return `No image has ${filter}.`;
  if (!total) return "There are no images in this gallery yet.";
  if (!images.length) return `This page is past the last of ${what}.`;
  if (images.length === total) return `${what}.`;
  return `${number.format(offset + 1)} to ${number.format(offset + images.length)} of ${what}.`;
}

function showPager(page, pages, where) {
  const place = byId("pager");
  place.hidden = pages < 2;
  const address = (to) => addressOf("browse", "", { page: to > 1 ? to : undefined, where });
  const link = (text, to, isThere) => {
    const made = element("a", "quiet-button", text);
    if (isThere) made.href = address(to);
    else made.classList.add("inert");
    return made;
  };
  const entry = element("input");
  Object.assign(entry, { id: "page-number", type: "number", min: 1, max: pages });
  entry.value = Math.min(page, pages);
  entry.setAttribute("aria-label", "Page");
  entry.addEventListener("change", () => {
    const to = Math.round(Number(entry.value));
    go(address(Math.min(pages, Math.max(1, to || 1))));
  });
  place.replaceChildren(
    link("Previous", Math.min(page - 1, pages), page > 1),
    element("span", "pager-place", "Page ", entry, ` of ${number.format(pages)}`),
    link("Next", page + 1, page < pages),
  );
}
