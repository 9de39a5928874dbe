// Taking an image out of the gallery, after a question.

import { showPicture } from "./access.js";
import { button, byId, say } from "./elements.js";
import { gallery, reloadGallery } from "./gallery.js";
import { showAnew } from "./routes.js";
import { forgetSamples } from "./start.js";
import { ask, withParameters } from "./server.js";

let asked = null;

// A button for a card of an image; none where the gallery cannot be changed.
export function removeButton(image, onRemoved) {
  if (!gallery.info.can_edit) return [];
  const made = button("Remove", "card-remove", () =>
    askToRemove(image, { from: made, onRemoved }));
  made.setAttribute("aria-label", `Remove ${image.id}`);
  return [made];
}

// `from` is the button that was pressed; `onRemoved` takes the image out of its view.
export function askToRemove(image, { from, onRemoved }) {
  asked = { image, from, onRemoved };
  showPicture(byId("remove-image"), image.url, { isHidden: true });
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
  const { image, from, onRemoved } = question;
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
  // The view may have been left, or be shown anew as it was before the removal.
  if (from.checkVisibility()) onRemoved();
  else showAnew();
  await reloading.catch(() => {});  // it was removed; the counts come later
}

// The dialog may have been closed while the request ran, and ask of another image now.
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

// A removal that runs can no longer be taken back.
function stayWhileBusy(event) {
  if (byId("remove-confirm").disabled) event.preventDefault();
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
  byId("remove-dialog").addEventListener("cancel", stayWhileBusy);
}
