// Stacks of cards: hits of one class, and hits that show nearly the same image.

import { button } from "./elements.js";

const SIDE = 16;              // an image is compared as this many colors a side,
const CELL = 8;               // each the mean of this many pixels a side
const MEAN = 0.03;            // how far these may differ on average, of 0 to 1,
const MOST = 0.25;            // and each of them
const SHAPE = 0.03;           // and the ratio of width to height

// Put the hits of each class behind the first one of it.
export function stackClasses(list) {
  const first = new Map();
  const stacks = new Map();
  for (const item of list.querySelectorAll(":scope > .hit")) {
    const name = item.dataset.class;
    if (!name) continue;
    if (first.has(name)) stacks.get(first.get(name)).push(item);
    else stacks.set(first.set(name, item).get(name), []);
  }
  for (const [top, behind] of stacks) {
    putBehind(top, behind, (count) => `${count} of this class`);
  }
  const divider = list.querySelector(":scope > .divider:not(.no-match)");
  if (divider && !list.querySelector(":scope > .divider ~ .hit:not([hidden])")) divider.remove();
}

// As the images arrive, put those behind an earlier hit of the same class that look like it.
export function stackDuplicates(list) {
  const looks = new Map();
  let isPlanned = false;
  const compare = () => {
    isPlanned = false;
    const tops = [];
    const found = new Map();
    for (const item of list.querySelectorAll(":scope > .hit:not([hidden])")) {
      const look = looks.get(item);
      if (!look || isBehind.has(item)) continue;
      const top = tops.find((other) => other.dataset.class === item.dataset.class
        && areAlike(looks.get(other), look));
      if (!top) tops.push(item);
      else found.set(top, [...(found.get(top) ?? []), item]);
    }
    for (const [top, behind] of found) {
      putBehind(top, behind, (count) => `${count} nearly the same`);
    }
  };
  for (const item of list.querySelectorAll(":scope > .hit")) {
    const image = item.querySelector(".tile img");
    const arrived = () => {
      looks.set(item, lookOf(image));
      if (!isPlanned) requestAnimationFrame(compare);
      isPlanned = true;
    };
    if (image.complete && image.naturalWidth) arrived();
    else image.addEventListener("load", arrived, { once: true });
  }
}

const behindOf = new WeakMap();
const isBehind = new WeakSet();

// Hide cards behind another; a button below it shows them.
function putBehind(top, added, words) {
  if (!added.length) return;
  const behind = [...(behindOf.get(top) ?? []), ...added];
  behindOf.set(top, behind);
  let last = top;
  for (const item of behind) {
    last.after(item);
    item.hidden = true;
    isBehind.add(item);
    last = item;
  }
  top.querySelector(".stack-button")?.remove();
  const text = `+ ${words(behind.length)}`;
  const more = button(text, "small-button stack-button", () => {
    const isOpen = more.getAttribute("aria-expanded") === "true";
    for (const item of behind) item.hidden = isOpen;
    more.setAttribute("aria-expanded", String(!isOpen));
    more.textContent = isOpen ? text : "Show fewer";
  });
  more.setAttribute("aria-expanded", "false");
  top.classList.add("stacked");
  top.append(more);
}

// The colors of an image on white, SIDE times SIDE, from 0 to 1, and its shape.
function lookOf(image) {
  const side = SIDE * CELL;
  const canvas = new OffscreenCanvas(side, side);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, side, side);
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, side, side);
  const { data } = context.getImageData(0, 0, side, side);
  const colors = new Float32Array(3 * SIDE * SIDE);
  for (let pixel = 0; pixel < side * side; pixel += 1) {
    const cell = SIDE * Math.floor(pixel / side / CELL) + Math.floor((pixel % side) / CELL);
    for (const color of [0, 1, 2]) {
      colors[3 * cell + color] += data[4 * pixel + color] / (255 * CELL * CELL);
    }
  }
  return { colors, shape: image.naturalWidth / image.naturalHeight };
}

function areAlike(a, b) {
  if (Math.abs(a.shape / b.shape - 1) > SHAPE) return false;
  let sum = 0;
  for (let place = 0; place < a.colors.length; place += 1) {
    const difference = Math.abs(a.colors[place] - b.colors[place]);
    if (difference > MOST) return false;
    sum += difference;
  }
  return sum / a.colors.length <= MEAN;
}
