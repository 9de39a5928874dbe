// Taking an image out of the gallery, after a question.

import { showPicture } from "./access.js";
import { button, byId } from "./elements.js";
import { gallery, reloadGallery } from "./gallery.js";
import { forgetSamples } from "./start.js";
import { ask, withParameters } from "./server.js";

let asked = null;

// A button for a card of an image; none where the gallery cannot be changed.
export function removeButton(image, onRemoved) {
  if (!gallery.info.can_edit) return [];
  const made = button("Remove", "card-remove", () => askToRemove(image, { onRemoved }));
  made.setAttribute("aria-label", `Remove ${image.id}`);
  return [made];
}

export function askToRemove(image, { onRemoved }) {
  asked = { image, onRemoved };
  showPicture(byId("remove-image"), image.url, { isHidden: true });
  byId("remove-name").textContent = image.id;
  byId("remove-error").hidden = true;
  setBusy(false);
  byId("remove-dialog").showModal();
  byId("remove-cancel").focus();
}

function setBusy(isBusy) {
  byId("remove-confirm").disabled = isBusy;
  byId("remove-confirm").textContent = isBusy ? "Removing …" : "Remove";
}

async function remove() {
  const { image, onRemoved } = asked;
  setBusy(true);
  try {
    await ask(withParameters("api/images", { id: image.id }), { method: "DELETE" });
  } catch (error) {
    byId("remove-error").textContent = error.message;
    byId("remove-error").hidden = false;
    setBusy(false);
    return;
  }
  byId("remove-dialog").close();
  forgetSamples();
  onRemoved();
  await reloadGallery().catch(() => {});  // it was removed; the counts come later
}

// Take a card out of a list; the focus goes to its neighbour, or to the heading.
export function dropItem(item, heading) {
  const next = item.nextElementSibling ?? item.previousElementSibling;
  item.remove();
  (next?.querySelector(".card-remove") ?? heading).focus();
}

export function listenToRemoving() {
  byId("remove-confirm").addEventListener("click", remove);
  byId("remove-cancel").addEventListener("click", () => byId("remove-dialog").close());
}
