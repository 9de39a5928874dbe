// The query: an image of the gallery, an image chosen here, or an address.

import { knownImage } from "./cards.js";
import { fileName } from "./elements.js";
import { gallery, mainIndex } from "./gallery.js";
import { whereOf } from "./routes.js";
import { ask, sendJson, whereText } from "./server.js";

// Kept until the page is closed, so that "back" finds earlier images again.
const uploads = [];

// Keep an image; returns its number, the argument of the route.
export function keepUpload(file) {
  const name = file.name || "Pasted image";
  return uploads.push({ file, name, url: URL.createObjectURL(file) }) - 1;
}

// The query of a route: its kind, image, region and filter.
export function readQuery(route) {
  const common = { crop: readCrop(route.options.crop), where: whereOf(route) };
  if (route.view === "like") {
    const id = route.argument;
    return { kind: "like", id, name: fileName(id), ...addressesOf(id), ...common };
  }
  if (route.view === "url") {
    return { kind: "url", address: route.argument, name: route.argument, ...common };
  }
  const upload = uploads[Number(route.argument)];
  if (!upload) {
    throw new Error("This image was chosen before the page was reloaded. "
      + "Choose it again.");
  }
  return { kind: "upload", ...upload, large: upload.url, ...common };
}

function addressesOf(id) {
  const known = knownImage(id);
  const index = known?.index ?? mainIndex().name;
  const place = new URLSearchParams({ id, index });
  return {
    class: known?.image.class,
    url: known?.image.url ?? `images?${place}`,
    large: `pictures?${place}`,
  };
}

// Four fractions: left, top, width, height. Without any, the whole image.
function readCrop(text) {
  if (!text) return null;
  const numbers = text.split(",").map(Number);
  if (numbers.length !== 4 || !numbers.every(Number.isFinite)) {
    throw new Error("The region in the address (crop) must be four numbers: left, top, "
      + `width and height, each from 0 to 1. It is “${text.slice(0, 40)}”.`);
  }
  return { left: numbers[0], top: numbers[1], width: numbers[2], height: numbers[3] };
}

export function cropText(crop) {
  if (!crop) return undefined;
  return [crop.left, crop.top, crop.width, crop.height]
    .map((value) => Number(value.toFixed(4))).join(",");
}

// Ask the service for the nearest images of one index.
export async function search(query, { k, index, signal }) {
  const choices = {
    k, index, where: whereText(query.where), crop: cropText(query.crop),
  };
  if (query.kind === "upload") return searchFile(query, choices, signal);
  const body = Object.fromEntries(
    Object.entries(choices).filter(([, value]) => value !== undefined));
  if (body.where) body.where = query.where;
  const image = query.kind === "like" ? { id: query.id } : { url: query.address };
  return sendJson("api/search", { ...image, ...body }, { signal });
}

async function searchFile({ file, name }, choices, signal) {
  const most = gallery.info.max_upload_bytes;
  if (file.size > most) {
    throw new Error(`${name}: This file is too large. At most ${most / 1e6} MB are allowed.`);
  }
  const form = new FormData();
  form.append("image", file, name);
  for (const [field, value] of Object.entries(choices)) {
    if (value !== undefined) form.append(field, value);
  }
  try {
    return await ask("api/search", { method: "POST", body: form, signal });
  } catch (error) {
    const isOfFile = [400, 413].includes(error.status);
    throw isOfFile ? new Error(`${name}: ${error.message}`) : error;
  }
}
