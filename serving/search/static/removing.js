// Removing an image from the gallery, after confirmation.

import { showImage } from "./access.js";
import { button, byId, say } from "./elements.js";
import { gallery, reloadGallery } from "./gallery.js";
import { showAgain } from "./routes.js";
import { forgetSamples } from "./start.js";
import { ask, withParameters } from "./server.js";

let asked = null;

// A button for the card of an image; none if the gallery cannot be changed.
export function removeButton(image, onRemoved) {
  if (!gallery.info.can_edit) return [];
  const made = button("Remove", "card-remove", () =>
    askToRemove(image, { isShown: () => made.checkVisibility(), onRemoved }));
  made.setAttribute("aria-label", `Remove ${image.id}`);
  return [made];
}

// `isShown` tells whether the view still shows the image; `onRemoved` removes it there.
export function askToRemove(image, { isShown, onRemoved }) {
  asked = { image, isShown, onRemoved };
  showImage(byId("remove-image"), image.url, { isHidden: true });
  byId("remove-name").textContent = image.id;
  byId("remove-error").hidden = true;
  setBusy(false);
  byId("remove-dialog").showModal();
  byId("remove-cancel").focus();
}

function setBusy(isBusy) {
  byId("remove-confirm").disabled = isBusy;
  byId("remove-cancel").disabled = isBusy;
  byId("remove-confirm").textContent = isBusy ? "Removing …" : "Remove";
}

async function remove() {
  const question = asked;
  const { image, isShown, onRemoved } = question;
  setBusy(true);
  try {
    await ask(withParameters("api/images", { id: image.id }), { method: "DELETE" });
  } catch (error) {
    tellFailure(question, error);
    return;
  }
  if (isOpen(question)) byId("remove-dialog").close();
  forgetSamples();
  const reloading = reloadGallery();
  // The view may have been left, or shown again as it was before the removal.
  if (isShown()) onRemoved();
  else showAgain();
  await reloading.catch(() => {});  // the image is removed; the counts come later
}

// The dialog may have been closed during the request, and now show another image.
const isOpen = (question) => byId("remove-dialog").open && asked === question;

function tellFailure(question, { message }) {
  if (!isOpen(question)) {
    say(`${question.image.id} was not removed. ${message}`, "warning");
    return;
  }
  byId("remove-error").textContent = message;
  byId("remove-error").hidden = false;
  setBusy(false);
}

// A removal that has begun cannot be canceled.
function stayWhileBusy(event) {
  if (byId("remove-confirm").disabled) event.preventDefault();
}

// Remove a card from a list; the focus moves to its neighbor, or to the heading.
export function dropItem(item, heading) {
  const next = item.nextElementSibling ?? item.previousElementSibling;
  item.remove();
  (next?.querySelector(".card-remove") ?? heading).focus();
}

export function listenToRemoving() {
  byId("remove-confirm").addEventListener("click", remove);
  byId("remove-cancel").addEventListener("click", () => byId("remove-dialog").close());
  byId("remove-dialog").addEventListener("cancel", stayWhileBusy);
}
