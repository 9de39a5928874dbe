// The canvas of the map: moving, zooming and choosing, by mouse, touch and keyboard.

import { clusterName } from "./clusters.js";
import { byId, fileName, title } from "./elements.js";
import { draw, forgetDrawing, thumbnailAt } from "./plot_drawing.js";

const DEEPEST = 100;
const MARGIN = 36;      // pixels around the map, so that no thumbnail is cut
const REACH = 22;       // pixels from a point that still select it
const CLICK_SLIP = 5;   // pixels that a click may move
const STEP = 0.15;      // of the visible part, for each arrow key
const WHOLE = { scale: 1, left: 0, top: 0 };

let points = [];
let shown = "";
let view = WHOLE;
let marked = null;
let byKeyboard = false;
let size = { width: 0, height: 0 };
let frame = 0;
let choose = null;

const canvas = () => byId("canvas");

// Show other points; the view stays if they are the same as before.
export function showPoints(given) {
  const places = given.map(({ id, x, y }) => `${id} ${x} ${y}`).join("\n");
  if (places !== shown) {
    shown = places;
    points = spread(given);
    view = WHOLE;
    mark(null);
    forgetDrawing();
  }
  canvas().setAttribute("aria-label", `Map of ${points.length} images`);
  measure();
}

// The map fills its frame: the axes of a t-SNE layout mean nothing by themselves.
function spread(given) {
  const along = (axis) => {
    const values = given.map((point) => point[axis]);
    const least = values.reduce((a, b) => Math.min(a, b), Infinity);
    const range = values.reduce((a, b) => Math.max(a, b), -Infinity) - least;
    return (value) => (range > 0 ? (value - least) / range : 0.5);
  };
  const [across, down] = [along("x"), along("y")];
  return given.map((point) => ({ ...point, x: across(point.x), y: down(point.y) }));
}

function onScreen(point) {
  return {
    x: MARGIN + (point.x - view.left) * view.scale * (size.width - 2 * MARGIN),
    y: MARGIN + (point.y - view.top) * view.scale * (size.height - 2 * MARGIN),
  };
}

function measure() {
  const { clientWidth, clientHeight } = canvas();
  size = { width: clientWidth, height: clientHeight };
  redraw();
}

function redraw() {
  if (frame || !size.width) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    draw(canvas(), { points, view, size, margin: MARGIN, marked, byKeyboard, onScreen, redraw });
  });
}

const middle = () => ({ x: size.width / 2, y: size.height / 2 });

// Zoom so that the point at one place on the screen moves to another, or stays there.
function zoom(factor, to = middle(), from = to) {
  const scale = Math.min(DEEPEST, Math.max(1, view.scale * factor));
  const start = (begin, length, before, after) =>
    begin + ((before - MARGIN) / view.scale - (after - MARGIN) / scale) / (length - 2 * MARGIN);
  setView(scale, start(view.left, size.width, from.x, to.x),
    start(view.top, size.height, from.y, to.y));
}

function move(x, y) {
  setView(view.scale,
    view.left - x / view.scale / (size.width - 2 * MARGIN),
    view.top - y / view.scale / (size.height - 2 * MARGIN));
}

function setView(scale, left, top) {
  const most = 1 - 1 / scale;
  const slack = 0.5 / scale * (scale > 1 ? 1 : 0);
  const within = (value) => Math.min(most + slack, Math.max(-slack, value));
  view = { scale, left: within(left), top: within(top) };
  if (byKeyboard) markMiddle();
  redraw();
}

// The point at a place on the screen: the thumbnail there, else the nearest.
function pointAt({ x, y }) {
  return thumbnailAt(x, y) ?? nearest(x, y, REACH);
}

function nearest(x, y, reach) {
  let best = null;
  let least = reach;
  for (const point of points) {
    const place = onScreen(point);
    const distance = Math.hypot(place.x - x, place.y - y);
    if (distance < least) [best, least] = [point, distance];
  }
  return best;
}

function mark(point) {
  if (point === marked) return;
  marked = point;
  byId("plot-caption").textContent = point
    ? [...new Set([title(point), fileName(point.id), clusterName(point.cluster)])].join(" · ")
    : "";
  canvas().classList.toggle("pointing", point !== null && !byKeyboard);
  redraw();
}

function markMiddle() {
  const { x, y } = middle();
  mark(nearest(x, y, Infinity));
}

function setByKeyboard(is) {
  byKeyboard = is;
  if (is) markMiddle();
  redraw();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const [x, y] = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[
    event.key] ?? [0, 0];
  const factor = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, 0: 1 / DEEPEST }[event.key];
  if (event.key === "Enter" && marked) return choose(marked);
  if (!x && !y && !factor) return undefined;
  event.preventDefault();
  setByKeyboard(true);
  if (factor) zoom(factor);
  else move(STEP * x * size.width, STEP * y * size.height);
  return undefined;
}

const pointers = new Map();
let slip = 0;

const placeOf = (event) => ({ x: event.offsetX, y: event.offsetY });

function onPointerDown(event) {
  if (event.button !== 0) return;
  if (!pointers.size) slip = 0;
  pointers.set(event.pointerId, placeOf(event));
  canvas().setPointerCapture(event.pointerId);
  byKeyboard = false;
}

function onPointerMove(event) {
  const before = pointers.get(event.pointerId);
  const now = placeOf(event);
  if (!before) {
    byKeyboard = false;
    mark(pointAt(now));
    return;
  }
  const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
  slip += Math.hypot(now.x - before.x, now.y - before.y);
  pointers.set(event.pointerId, now);
  if (slip <= CLICK_SLIP) return;
  if (other) {
    const apart = (place) => Math.max(1, Math.hypot(place.x - other.x, place.y - other.y));
    const between = (place) => ({ x: (place.x + other.x) / 2, y: (place.y + other.y) / 2 });
    zoom(apart(now) / apart(before), between(now), between(before));
  } else {
    move(now.x - before.x, now.y - before.y);
  }
}

function onPointerUp(event) {
  if (!pointers.has(event.pointerId)) return;
  // A busy page may receive only the two ends of a drag.
  if (event.type === "pointerup") onPointerMove(event);
  pointers.delete(event.pointerId);
  if (pointers.size || slip > CLICK_SLIP || event.type !== "pointerup") return;
  const point = pointAt(placeOf(event));
  if (point) choose(point);
}

function onWheel(event) {
  // At the whole map, scrolling out moves the page, not the map.
  if (event.deltaY > 0 && view.scale === 1) return;
  event.preventDefault();
  const lines = event.deltaMode === 1 ? 16 : 1;
  byKeyboard = false;
  zoom(Math.exp(-event.deltaY * lines / 300), placeOf(event));
}

// `onChosen` receives the point that was clicked.
export function listenToPlot(onChosen) {
  choose = onChosen;
  const plot = canvas();
  plot.addEventListener("keydown", onKey);
  plot.addEventListener("focus", () => {
    if (plot.matches(":focus-visible")) setByKeyboard(true);
  });
  plot.addEventListener("blur", () => setByKeyboard(false));
  plot.addEventListener("pointerdown", onPointerDown);
  plot.addEventListener("pointermove", onPointerMove);
  for (const end of ["pointerup", "pointercancel"]) plot.addEventListener(end, onPointerUp);
  plot.addEventListener("pointerleave", () => {
    if (!byKeyboard) mark(null);
  });
  plot.addEventListener("wheel", onWheel, { passive: false });
  byId("zoom-in").addEventListener("click", () => zoom(1.6));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 1.6));
  byId("zoom-all").addEventListener("click", () => setView(1, 0, 0));
  new ResizeObserver(measure).observe(plot);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
