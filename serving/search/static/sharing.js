// A link to a search, with its query: an image of the visitor goes into the link itself.

import { byId } from "./elements.js";
import { addressOf } from "./routes.js";

const LONGEST = 4000;  // characters of an image in a link that chat programs keep whole
const SIDES = [256, 192, 144, 112, 80, 56];

let isBusy = false;

export function showSharing(query, route) {
  byId("share").onclick = () => open(query, route);
}

async function open(query, route) {
  if (isBusy) return;
  isBusy = true;
  const images = [query, ...query.more, ...query.not];
  const own = images.filter(({ file }) => file);
  const address = await addressWith(own, query, route).finally(() => { isBusy = false; });
  byId("share-note").textContent = noteOf(own.length, address);
  byId("share-link").value = address ? new URL(address, location.href).href : "";
  byId("share-link").hidden = !address;
  byId("share-copy").hidden = !address;
  byId("share-said").textContent = "";
  byId("share-dialog").showModal();
  byId("share-link").select();
}

function noteOf(own, address) {
  if (!address) return "This browser cannot show the image, so there is no link with it.";
  if (!own) return "Whoever can open this page sees this search under this link.";
  const copies = own > 1 ? "small copies of your images" : "a small copy of your image";
  return `The link has ${copies} in it, so its hits may differ a little. `
    + "Whoever has the link sees them.";
}

// The address of a search, in which images of the visitor are there as small copies.
async function addressWith(own, query, route) {
  const texts = new Map();
  for (const image of own) {
    const text = await copyOf(image.file, LONGEST / own.length);
    if (!text) return null;
    texts.set(image, text);
  }
  const places = (list) => list.map((one) =>
    (texts.has(one) ? `image/${texts.get(one)}` : one.place));
  const options = { ...route.options, more: places(query.more), not: places(query.not) };
  return texts.has(query)
    ? addressOf("image", texts.get(query), { ...options, name: query.name })
    : addressOf(route.view, route.argument, options);
}

// An image as text; null if the browser cannot read it.
async function copyOf(file, longest) {
  const image = await createImageBitmap(file).catch(() => null);
  if (!image) return null;
  for (const side of SIDES) {
    const text = await encoded(image, side);
    if (text.length <= longest || side === SIDES.at(-1)) return text;
  }
  return null;
}

async function encoded(image, side) {
  const part = Math.min(1, side / Math.max(image.width, image.height));
  const [width, height] = [image.width, image.height]
    .map((pixels) => Math.max(1, Math.round(part * pixels)));
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.7 });
  const bytes = new Uint8Array(await blob.arrayBuffer());
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

const kept = new Map();

// The image in a link, as a file and the address of its content.
export function sharedImage(text, name) {
  if (!kept.has(text)) {
    const file = new File([decoded(text)], name || "Shared image");
    kept.set(text, { file, name: file.name, url: URL.createObjectURL(file) });
  }
  return kept.get(text);
}

function decoded(text) {
  try {
    const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    return Uint8Array.from(binary, (character) => character.charCodeAt(0));
  } catch {
    throw new Error("The image in this address is not whole. Copy the link again.");
  }
}

export function listenToSharing() {
  byId("share-close").addEventListener("click", () => byId("share-dialog").close());
  byId("share-copy").addEventListener("click", async () => {
    byId("share-link").select();
    try {
      await navigator.clipboard.writeText(byId("share-link").value);
      byId("share-said").textContent = "Copied.";
    } catch {
      byId("share-said").textContent = "Press Ctrl+C to copy the link.";
    }
  });
}
