// The query beside its hits: its image, its region and its actions.

import { clearImage, showImage } from "./access.js";
import { openCrop } from "./crop.js";
import { button, byId, title } from "./elements.js";
import { gallery } from "./gallery.js";
import { cropText } from "./query.js";
import { askToRemove } from "./removing.js";
import { addressOf, go } from "./routes.js";

let acts = {};

const NOTES = { like: "from the gallery", upload: "your image", url: "from the web", text: "your words" };

export function hidePreview() {
  byId("preview").hidden = true;
}

// Show a query. `item` is the service's description of an image of the gallery.
export function showPreview(query, route, item = null) {
  const image = byId("preview-image");
  const shown = item ?? (query.kind === "like" ? query : null);
  const name = shown?.class ? title(shown) : query.name;
  const url = item?.url ?? query.url;
  byId("preview").classList.toggle("without-image", url === undefined);
  image.alt = `Query image ${query.name}`;
  if (url === undefined) clearImage(image);
  else if (image.dataset.shown !== url) showImage(image, url);
  image.dataset.shown = url ?? "";
  byId("preview-title").textContent = name;
  byId("preview-title").title = query.id ?? "";
  const note = shown?.class ? query.name : NOTES[query.kind];
  byId("preview-note").textContent = query.crop ? `${note} (region)` : note;
  showRegion(query.crop);
  showActions(actions(query, route, shown));
  byId("preview").hidden = false;
}

// A button that is replaced while it is pressed is not clicked: what stays keeps its button.
function showActions(wanted) {
  acts = wanted;
  const row = byId("preview-actions");
  const there = [...row.children].map((child) => child.textContent);
  const names = Object.keys(wanted);
  if (there.join("|") === names.join("|")) return;
  row.replaceChildren(...names.map(
    (name) => button(name, "small-button", () => acts[name]())));
}

function showRegion(crop) {
  const region = byId("preview-region");
  region.hidden = !crop;
  if (!crop) return;
  for (const side of ["left", "top", "width", "height"]) {
    region.style.setProperty(`--${side}`, `${100 * crop[side]}%`);
  }
}

// What can be done with the query, by the name of its button.
function actions(query, route, item) {
  const made = {};
  const searchRegion = (crop) => go(addressOf(route.view, route.argument,
    { ...route.options, crop: cropText(crop) }));
  // An image elsewhere cannot be shown: the page loads nothing from other servers.
  if (!["url", "text"].includes(query.kind) && !query.more.length) {
    const name = query.crop ? "Change region" : "Choose a region";
    made[name] = () => openCrop(query, searchRegion);
  }
  if (query.crop) {
    made["Whole image"] = () => searchRegion(null);
  }
  // Images are removed from the first index; another index may have the same id.
  const isOfFirst = [undefined, gallery.info.indexes[0].name].includes(route.options.index);
  if (query.kind === "like" && gallery.info.can_edit && isOfFirst) {
    made.Remove = () => askToRemoveQuery(item);
  }
  return made;
}

// The button may be replaced when the search ends, so the address tells what is shown.
function askToRemoveQuery(item) {
  const { hash } = location;
  askToRemove(item, {
    isShown: () => location.hash === hash, onRemoved: () => go(addressOf("start")),
  });
}

// The frame has the shape of the image, so that the region fits it.
export function listenToPreview() {
  const image = byId("preview-image");
  image.addEventListener("load", () => {
    byId("preview-frame").style.setProperty(
      "--ratio", image.naturalWidth / image.naturalHeight || 1);
    byId("preview").classList.remove("broken");
  });
  image.addEventListener("error", () => byId("preview").classList.add("broken"));
  giveFocusBack("crop-dialog", ":first-child");
  giveFocusBack("remove-dialog", ":last-child");
}

// The button that opened a dialog may be replaced if the search ends meanwhile.
function giveFocusBack(id, place) {
  const dialog = byId(id);
  dialog.addEventListener("close", () => {
    const { activeElement, body } = document;
    if (activeElement !== body && !dialog.contains(activeElement)) return;
    byId("preview-actions").querySelector(place)?.focus();
  });
}
