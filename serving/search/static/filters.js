// Filtering by attributes: a control for each attribute with few values.

import { element, number } from "./elements.js";
import { gallery, mainIndex } from "./gallery.js";
import { classesWith, className, classNamed } from "./names.js";

const MOST_OPTIONS = 200;
const NAMED = 3;  // values of a list that are named in words

// Fill `place` with the controls; `onChange` receives the new filter.
export function showFilters(place, where, onChange) {
  const controls = filterable().map((name) =>
    control(place.id, name, where[name], (value) => {
      const changed = { ...where };
      if (value === "") delete changed[name];
      else changed[name] = value;
      onChange(changed);
    }));
  place.replaceChildren(...controls);
}

// A filter in words, such as: class “shoe”.
export function whereInWords(where) {
  return Object.entries(where)
    .map(([name, value]) => `${name} ${valueInWords(name, value)}`).join(", ");
}

function valueInWords(name, value) {
  const quoted = (one) => `“${name === "class" ? className(one) : one}”`;
  if (typeof value === "string") return quoted(value);
  const isList = Array.isArray(value) && value.every((one) => typeof one === "string");
  if (!isList) return `“${JSON.stringify(value)}”`;
  const named = value.slice(0, NAMED).map(quoted).join(" or ");
  return value.length > NAMED ? `${named} or ${value.length - NAMED} others` : named;
}

function filterable() {
  const names = Object.keys(gallery.values)
    .filter((name) => Object.keys(gallery.values[name]).length > 1);
  // The service does not list the values of an attribute that has very many.
  const hasClasses = mainIndex().classes > 1;
  return hasClasses && !names.includes("class") ? ["class", ...names] : names;
}

function control(place, name, chosen, onChange) {
  const values = Object.entries(gallery.values[name] ?? {});
  if (name === "class") return classControl(place, values, chosen, onChange);
  const isShort = values.length > 0 && values.length <= MOST_OPTIONS;
  const field = isShort ? choice(values, chosen) : entry(values, chosen, `${place}-${name}-list`);
  const id = `${place}-${name}`;
  field.querySelector("select, input").id = id;
  // A value of the gallery may have spaces at its ends; one that is typed has not.
  const isKnown = (value) => isShort || values.some(([other]) => other === value);
  field.addEventListener("change", ({ target: { value } }) =>
    onChange(isKnown(value) ? value : value.trim()));
  const label = element("label", "muted", name[0].toUpperCase() + name.slice(1));
  label.htmlFor = id;
  return element("span", "control", label, field);
}

// Classes are typed: as the folder is named, as people write it, or a word of several.
function classControl(place, values, chosen, onChange) {
  const names = values.map(([value]) => value);
  const labels = names.map(className);
  const once = new Set(labels.filter((label, at) => labels.indexOf(label) === at
    && labels.lastIndexOf(label) === at));
  const shown = (value) => (once.has(className(value)) ? className(value) : value);
  const field = entry(values, chosen, `${place}-class-list`, shown);
  const input = field.querySelector("input");
  input.id = `${place}-class`;
  input.addEventListener("change", () => onChange(meant(input.value, names)));
  const label = element("label", "muted", "Class");
  label.htmlFor = input.id;
  return element("span", "control", label, field);
}

// The filter that a text means; the service is asked for a class that is not listed here.
export function meant(text, names) {
  if (!text.trim()) return "";
  const one = classNamed(text, names);
  if (one !== undefined) return one;
  const parts = text.split(",").filter((part) => part.trim());
  if (parts.length > 1) return [...new Set(parts.flatMap((part) => meant(part, names)))];
  const several = classesWith(text, names);
  if (several.length === 1) return several[0];
  return several.length ? several : text.trim();
}

function choice(values, chosen) {
  const select = element("select", "", new Option("All", ""));
  const byName = ([a], [b]) => a.localeCompare(b, "en", { numeric: true });
  for (const [value, count] of values.sort(byName)) {
    select.append(new Option(`${value} (${number.format(count)})`, value));
  }
  // A link may name a value that is gone: it is shown, not dropped.
  if (typeof chosen === "string" && !values.some(([value]) => value === chosen)) {
    select.append(new Option(chosen, chosen));
  }
  select.value = typeof chosen === "string" ? chosen : "";
  return element("span", "", select);
}

function entry(values, chosen, listId, shown = (value) => value) {
  const input = element("input");
  input.type = "text";
  input.placeholder = "All";
  input.autocomplete = "off";
  input.value = [chosen ?? []].flat().filter((value) => typeof value === "string")
    .map(shown).join(", ");
  input.setAttribute("list", listId);
  const list = element("datalist", "", ...values.map(([value]) => new Option(shown(value))));
  list.id = listId;
  return element("span", "", input, list);
}
