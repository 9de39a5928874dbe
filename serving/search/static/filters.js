// Filtering by attributes: a control for each attribute with few values.

import { element, number } from "./elements.js";
import { gallery, mainIndex } from "./gallery.js";

const MOST_OPTIONS = 200;

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
    .map(([name, value]) =>
      `${name} “${typeof value === "string" ? value : JSON.stringify(value)}”`)
    .join(", ");
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

function entry(values, chosen, listId) {
  const input = element("input");
  input.type = "text";
  input.placeholder = "All";
  input.autocomplete = "off";
  input.value = typeof chosen === "string" ? chosen : "";
  input.setAttribute("list", listId);
  const list = element("datalist", "", ...values.map(([value]) => new Option(value)));
  list.id = listId;
  return element("span", "", input, list);
}
