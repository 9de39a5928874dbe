// Drawing the map: a dot for each image, thumbnails where there is room, clusters.

import { showImage } from "./access.js";
import { clusterColor } from "./clusters.js";

const THUMBNAIL = 46;   // pixels, at least
const AT_ONCE = 12;     // thumbnails that are fetched at the same time
const KEPT = 600;       // thumbnails that stay in memory
const MOST_LABELS = 60;

let chosen = [];         // by level of zoom: the points that have room for a thumbnail
let shown = [];          // thumbnails on the screen, with their rectangles
const thumbnails = new Map();
let fetching = 0;

export function forgetDrawing() {
  chosen = [];
  shown = [];
}

// The topmost thumbnail at a place on the screen; null if there is none.
export function thumbnailAt(x, y) {
  const hit = shown.findLast(({ left, top, side }) =>
    x >= left && x <= left + side && y >= top && y <= top + side);
  return hit?.point ?? null;
}

// Points that can show a thumbnail at 2^level without covering another; those of the
// level above come first, so that a thumbnail stays while zooming in.
function chosenAt(level, { points, size, margin }) {
  if (chosen[level]) return chosen[level];
  const before = level > 0 ? chosenAt(level - 1, { points, size, margin }) : [];
  const apart = 1.12 * THUMBNAIL / 2 ** level;
  const wide = apart / (size.width - 2 * margin);
  const high = apart / (size.height - 2 * margin);
  const cells = new Map();
  const taken = [];
  for (const point of new Set([...before, ...points])) {
    const column = Math.floor(point.x / wide);
    const row = Math.floor(point.y / high);
    if (isFree(point, column, row, cells, wide, high)) {
      const key = `${column},${row}`;
      cells.set(key, [...cells.get(key) ?? [], point]);
      taken.push(point);
    }
  }
  chosen[level] = taken;
  return taken;
}

function isFree(point, column, row, cells, wide, high) {
  for (let x = column - 1; x <= column + 1; x += 1) {
    for (let y = row - 1; y <= row + 1; y += 1) {
      const near = cells.get(`${x},${y}`) ?? [];
      if (near.some((other) => Math.abs(other.x - point.x) < wide
        && Math.abs(other.y - point.y) < high)) return false;
    }
  }
  return true;
}

// The thumbnail of a point, or null until it has been fetched.
function imageOf(point, redraw) {
  const known = thumbnails.get(point.id);
  if (known) return known.isReady ? known.image : null;
  if (fetching >= AT_ONCE) return null;
  fetching += 1;
  const entry = { image: new Image(), isReady: false };
  thumbnails.set(point.id, entry);
  if (thumbnails.size > KEPT) thumbnails.delete(thumbnails.keys().next().value);
  const done = (isReady) => {
    fetching -= 1;
    entry.isReady = isReady;
    redraw();
  };
  entry.image.onload = () => done(true);
  entry.image.onerror = () => done(false);
  showImage(entry.image, point.url, { isHidden: true });
  return null;
}

export function draw(canvas, scene) {
  const { points, view, size, marked, byKeyboard, onScreen, redraw } = scene;
  const style = getComputedStyle(canvas);
  const colors = Object.fromEntries(["accent", "surface", "text", "line-strong", "cluster-light"]
    .map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  const density = window.devicePixelRatio || 1;
  const [width, height] = [size.width, size.height].map((side) => Math.round(side * density));
  if (canvas.width !== width || canvas.height !== height) {
    Object.assign(canvas, { width, height });
    chosen = [];
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, size.width, size.height);
  const isVisible = ({ x, y }) =>
    x > -THUMBNAIL && y > -THUMBNAIL && x < size.width + THUMBNAIL && y < size.height + THUMBNAIL;
  const color = (point) => clusterColor(point.cluster, colors["cluster-light"]);
  drawDots(pen, points, onScreen, isVisible, color);
  drawThumbnails(pen, scene, isVisible, color, redraw);
  drawLabels(pen, points, onScreen, isVisible, color, colors, style.fontFamily);
  if (byKeyboard) drawCross(pen, size, colors);
  if (marked) drawMarked(pen, marked, onScreen(marked), view, colors, redraw);
}

function drawDots(pen, points, onScreen, isVisible, color) {
  for (const point of points) {
    const place = onScreen(point);
    if (!isVisible(place)) continue;
    pen.fillStyle = color(point);
    pen.beginPath();
    pen.arc(place.x, place.y, 3, 0, 2 * Math.PI);
    pen.fill();
  }
}

function drawThumbnails(pen, scene, isVisible, color, redraw) {
  const level = Math.floor(Math.log2(scene.view.scale));
  shown = [];
  for (const point of chosenAt(level, scene)) {
    const place = scene.onScreen(point);
    if (!isVisible(place)) continue;
    const image = imageOf(point, redraw);
    if (!image) continue;
    shown.push({ point, ...drawThumbnail(pen, image, place, THUMBNAIL, color(point)) });
  }
}

function drawThumbnail(pen, image, { x, y }, side, edge) {
  const [left, top] = [x - side / 2, y - side / 2];
  pen.fillStyle = "#fff";
  pen.strokeStyle = edge;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.roundRect(left, top, side, side, 7);
  pen.fill();
  pen.stroke();
  const inner = side - 8;
  const shrink = inner / Math.max(image.naturalWidth, image.naturalHeight, 1);
  const [wide, high] = [image.naturalWidth * shrink, image.naturalHeight * shrink];
  pen.drawImage(image, x - wide / 2, y - high / 2, wide, high);
  return { left, top, side };
}

function drawLabels(pen, points, onScreen, isVisible, color, colors, family) {
  const clusters = new Map();
  for (const point of points) {
    const sum = clusters.get(point.cluster) ?? { cluster: point.cluster, x: 0, y: 0, count: 0 };
    sum.x += point.x;
    sum.y += point.y;
    sum.count += 1;
    clusters.set(point.cluster, sum);
  }
  clusters.delete(-1);
  if (clusters.size < 2 || clusters.size > MOST_LABELS) return;
  pen.font = `650 13px ${family}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const sum of clusters.values()) {
    const place = onScreen({ x: sum.x / sum.count, y: sum.y / sum.count });
    if (!isVisible(place)) continue;
    const width = pen.measureText(sum.cluster).width + 14;
    pen.fillStyle = colors.surface;
    pen.strokeStyle = color(sum);
    pen.lineWidth = 2;
    pen.beginPath();
    pen.roundRect(place.x - width / 2, place.y - 11, width, 22, 11);
    pen.fill();
    pen.stroke();
    pen.fillStyle = colors.text;
    pen.fillText(sum.cluster, place.x, place.y + 0.5);
  }
}

function drawCross(pen, { width, height }, colors) {
  pen.strokeStyle = colors["line-strong"];
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(width / 2 - 9, height / 2);
  pen.lineTo(width / 2 + 9, height / 2);
  pen.moveTo(width / 2, height / 2 - 9);
  pen.lineTo(width / 2, height / 2 + 9);
  pen.stroke();
}

// The marked image stands out, with its thumbnail even if it had no room before.
function drawMarked(pen, point, place, view, colors, redraw) {
  const image = imageOf(point, redraw);
  if (image) {
    drawThumbnail(pen, image, place, 1.7 * THUMBNAIL, colors.accent);
    return;
  }
  pen.strokeStyle = colors.accent;
  pen.lineWidth = 3;
  pen.beginPath();
  pen.arc(place.x, place.y, 8, 0, 2 * Math.PI);
  pen.stroke();
}
