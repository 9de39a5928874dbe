// Receiving images: chosen, from the camera, pasted, dropped or by address.

import { byId } from "./elements.js";
import { addressOfFiles } from "./examples.js";
import { gallery } from "./gallery.js";
import { addressOf, go, readRoute } from "./routes.js";

// `onFilesToAdd` receives what is dropped or pasted in the view that adds images.
export function listenForImages(onFilesToAdd) {
  const take = (files) => {
    const given = [...files];
    if (!given.length) return;
    const isAdding = readRoute().view === "add" && gallery.info?.can_edit !== false;
    if (isAdding) onFilesToAdd(given);
    else go(addressOfFiles(given));
  };
  if (matchMedia("(pointer: coarse)").matches) {
    byId("drop-hint").textContent = "from this device";
  }
  for (const id of ["file", "camera"]) {
    byId(id).addEventListener("change", (event) => {
      take(event.target.files);
      event.target.value = "";  // so that choosing the same file again is a change
    });
  }
  document.addEventListener("paste", (event) => take(event.clipboardData.files));
  byId("by-url").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = byId("image-url").value.trim();
    if (given) go(addressOf("url", given));
  });
  byId("by-text").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = byId("query-text").value.trim();
    if (given) go(addressOf("text", given));
  });
  listenForDrops(take);
}

function listenForDrops(take) {
  let depth = 0;  // each element on the way fires dragenter and dragleave
  const veil = (visible) => { byId("veil").hidden = !visible; };
  const hasFiles = (event) => event.dataTransfer.types.includes("Files");
  document.addEventListener("dragenter", (event) => {
    if (hasFiles(event)) veil(++depth > 0);
  });
  document.addEventListener("dragleave", (event) => {
    if (hasFiles(event)) veil(--depth > 0);
  });
  document.addEventListener("dragover", (event) => {
    if (hasFiles(event)) event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth = 0;
    veil(false);
    take(event.dataTransfer.files);
  });
}
