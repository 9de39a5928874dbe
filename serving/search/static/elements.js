// Building blocks of the page.

import { className } from "./names.js";

export const byId = (id) => document.getElementById(id);
export const number = new Intl.NumberFormat("en");
const percent = new Intl.NumberFormat("en", { style: "percent" });
// A share in words, such as: 16%.
export const share = (value) => percent.format(value);

export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function button(text, className, onClick) {
  const made = element("button", className, text);
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

export function plural(count, word) {
  return `${number.format(count)} ${word}${count === 1 ? "" : "s"}`;
}

export function fileName(id) {
  return id.split("/").pop();
}

export function title(image) {
  return image.class ? className(image.class) : fileName(image.id);
}

// Show a text in the line above the answers, which screen readers read out.
export function say(text, kind = "") {
  const status = byId("status");
  status.className = `status ${kind}`;
  status.textContent = text;
  byId("again").hidden = kind !== "error";
}
