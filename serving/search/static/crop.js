// Choosing a region of the query, by mouse, touch or keyboard.

import { showImage } from "./access.js";
import { byId } from "./elements.js";

const LEAST = 0.05;
const STEP = 0.02;
const START = { left: 0.15, top: 0.15, width: 0.7, height: 0.7 };

let box = START;
let finish = null;
let drag = null;

// Open the dialog; `onChosen` gets the region, or null for the whole image.
export function openCrop(query, onChosen) {
  finish = onChosen;
  const image = byId("crop-image");
  byId("crop-error").hidden = true;
  byId("crop-search").disabled = true;
  image.alt = `Query image ${query.name}`;
  showImage(image, query.large, { isHidden: true });
  place(query.crop ?? START);
  byId("crop-dialog").showModal();
  byId("crop-box").focus();
}

function close(region) {
  byId("crop-dialog").close();
  if (region !== undefined) finish(region);
}

// Keep the box inside the image and large enough, show it and describe it.
function place({ left, top, width, height }) {
  const wide = Math.min(1, Math.max(LEAST, width));
  const high = Math.min(1, Math.max(LEAST, height));
  box = {
    left: Math.min(1 - wide, Math.max(0, left)),
    top: Math.min(1 - high, Math.max(0, top)),
    width: wide,
    height: high,
  };
  const percent = {};
  for (const side of Object.keys(box)) {
    percent[side] = `${Math.round(100 * box[side])}%`;
    byId("crop-stage").style.setProperty(`--${side}`, `${100 * box[side]}%`);
  }
  byId("crop-numbers").textContent = `Left ${percent.left}, top ${percent.top}, `
    + `width ${percent.width}, height ${percent.height}`;
}

function pointAt(event) {
  const stage = byId("crop-stage").getBoundingClientRect();
  const inside = (value) => Math.min(1, Math.max(0, value));
  return {
    x: inside((event.clientX - stage.left) / stage.width),
    y: inside((event.clientY - stage.top) / stage.height),
  };
}

// A drag that begins at a corner resizes, inside the region moves, outside draws a new one.
function beginDrag(event) {
  if (event.button !== 0 || drag) return;
  event.preventDefault();
  const point = pointAt(event);
  const corner = event.target.dataset.corner;
  if (corner) {
    drag = {
      x: corner.includes("left") ? box.left + box.width : box.left,
      y: corner.includes("top") ? box.top + box.height : box.top,
    };
  } else if (event.target === byId("crop-box")) {
    drag = { offsetX: point.x - box.left, offsetY: point.y - box.top };
  } else {
    drag = point;
  }
  drag.pointer = event.pointerId;
  byId("crop-stage").setPointerCapture(event.pointerId);
  byId("crop-box").focus({ focusVisible: false });
}

function continueDrag(event) {
  if (!drag || event.pointerId !== drag.pointer) return;
  const point = pointAt(event);
  if (drag.offsetX !== undefined) {
    place({ ...box, left: point.x - drag.offsetX, top: point.y - drag.offsetY });
    return;
  }
  place({
    left: Math.min(point.x, drag.x),
    top: Math.min(point.y, drag.y),
    width: Math.abs(point.x - drag.x),
    height: Math.abs(point.y - drag.y),
  });
}

function onKey(event) {
  const [x, y] = {
    ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP],
  }[event.key] ?? [0, 0];
  if (event.key === "Enter" && !byId("crop-search").disabled) {
    event.preventDefault();
    close(box);
  }
  if (!x && !y) return;
  event.preventDefault();
  if (event.shiftKey) {
    const width = Math.min(box.width + x, 1 - box.left);
    place({ ...box, width, height: Math.min(box.height + y, 1 - box.top) });
  } else {
    place({ ...box, left: box.left + x, top: box.top + y });
  }
}

export function listenToCrop() {
  const stage = byId("crop-stage");
  const image = byId("crop-image");
  image.addEventListener("load", () => {
    stage.style.setProperty("--ratio", image.naturalWidth / image.naturalHeight || 1);
    byId("crop-search").disabled = false;
  });
  image.addEventListener("error", () => {
    byId("crop-error").textContent = "This browser cannot show the image, "
      + "so you cannot choose a region.";
    byId("crop-error").hidden = false;
  });
  stage.addEventListener("pointerdown", beginDrag);
  stage.addEventListener("pointermove", continueDrag);
  for (const end of ["pointerup", "pointercancel"]) {
    stage.addEventListener(end, () => { drag = null; });
  }
  byId("crop-box").addEventListener("keydown", onKey);
  byId("crop-cancel").addEventListener("click", () => close());
  byId("crop-whole").addEventListener("click", () => close(null));
  byId("crop-search").addEventListener("click", () => close(box));
}
