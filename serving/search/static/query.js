// The query: an image of the gallery, an image chosen here, or an address.

import { knownImage } from "./cards.js";
import { fileName } from "./elements.js";
import { gallery, mainIndex } from "./gallery.js";
import { whereOf } from "./routes.js";
import { sharedImage } from "./sharing.js";
import { ask, sendJson, whereText } from "./server.js";

const EXAMPLES = ["like", "image"];

// Kept until the page is closed, so that "back" finds earlier images again.
const uploads = [];

// Keep an image; returns its number, the argument of the route.
export function keepUpload(file) {
  const name = file.name || "Pasted image";
  return uploads.push({ file, name, url: URL.createObjectURL(file) }) - 1;
}

// The query of a route: its kind, image, region and filter, and the examples beside it.
export function readQuery(route) {
  const { options } = route;
  const more = examplesOf(options.more);
  const most = gallery.info.max_examples;
  if (more.length >= most) {
    throw new Error(`At most ${most} images can be searched with at once. `
      + `These are ${more.length + 1}.`);
  }
  return {
    ...imageOf(route.view, route.argument, options.name),
    crop: readCrop(options.crop),
    where: whereOf(route),
    more,
    not: examplesOf(options.not),
    expand: options.expand,
  };
}

function imageOf(kind, argument, name) {
  if (kind === "like") {
    return { kind, id: argument, name: fileName(argument), ...addressesOf(argument) };
  }
  if (kind === "text") return { kind, text: argument, name: `“${argument}”` };
  if (kind === "url") return { kind, address: argument, name: argument };
  if (kind === "image") {
    const shared = sharedImage(argument, name);
    return { kind: "upload", ...shared, large: shared.url };
  }
  const upload = uploads[Number(argument)];
  if (!upload) {
    throw new Error("This image was chosen before the page was reloaded. "
      + "Choose it again.");
  }
  return { kind: "upload", ...upload, large: upload.url };
}

// The images that a list in the address names, such as ["like/ID", "upload/3"].
function examplesOf(text) {
  return listOf(text).map((place) => {
    const [kind, argument = ""] = place.split(/\/(.*)/s, 2);
    return { ...imageOf(EXAMPLES.includes(kind) ? kind : "upload", argument), place };
  });
}

// A list of texts in the address; what nobody wrote is an empty list.
export function listOf(text) {
  try {
    const list = JSON.parse(text || "[]");
    return Array.isArray(list) ? list.map(String) : [];
  } catch {
    return [];
  }
}

function addressesOf(id) {
  const known = knownImage(id);
  const index = known?.index ?? mainIndex().name;
  const place = new URLSearchParams({ id, index });
  return {
    class: known?.image.class,
    url: known?.image.url ?? `images?${place}`,
    large: largeAddress(id, index),
  };
}

// Where an image of the gallery is, large enough to choose a region of it.
export function largeAddress(id, index) {
  return `pictures?${new URLSearchParams({ id, index })}`;
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
    k, index, where: whereText(query.where), crop: cropText(query.crop), expand: query.expand,
  };
  const lists = { queries: [query, ...query.more], negatives: query.not };
  const isOne = !query.more.length && !query.not.length;
  const files = [...lists.queries, ...lists.negatives].filter(({ file }) => file);
  if (files.length) return searchFiles(lists, choices, isOne, signal);
  const body = Object.fromEntries(
    Object.entries(choices).filter(([, value]) => value !== undefined));
  if (body.where) body.where = query.where;
  if (Number.isInteger(Number(body.expand))) body.expand = Number(body.expand);
  const source = isOne ? sourceOf(query) : {
    queries: lists.queries.map(sourceOf), negatives: lists.negatives.map(sourceOf),
  };
  return sendJson("api/search", { ...source, ...body }, { signal });
}

const sourceOf = ({ kind, id, address, text }) =>
  ({ like: { id }, url: { url: address }, text: { text } }[kind]);

async function searchFiles(lists, choices, isOne, signal) {
  const form = new FormData();
  for (const [field, name] of [["image", "queries"], ["negative", "negatives"]]) {
    for (const { file, name: called } of lists[name].filter((one) => one.file)) {
      checkSize(file, called);
      form.append(field, file, called);
    }
    const others = lists[name].filter((one) => !one.file).map(sourceOf);
    if (others.length) form.append(name, JSON.stringify(others));
  }
  for (const [field, value] of Object.entries(choices)) {
    if (value !== undefined) form.append(field, value);
  }
  try {
    return await ask("api/search", { method: "POST", body: form, signal });
  } catch (error) {
    // Of several images, the service names the one that is at fault.
    const isOfFile = isOne && [400, 413].includes(error.status);
    throw isOfFile ? new Error(`${lists.queries[0].name}: ${error.message}`) : error;
  }
}

function checkSize(file, name) {
  const most = gallery.info.max_upload_bytes;
  if (file.size > most) {
    throw new Error(`${name}: This file is too large. At most ${most / 1e6} MB are allowed.`);
  }
}
