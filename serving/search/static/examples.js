// Several images in one query, and examples of what is not wanted.

import { showImage } from "./access.js";
import { button, byId, element, fileName } from "./elements.js";
import { gallery } from "./gallery.js";
import { keepUpload, listOf } from "./query.js";
import { addressOf, go } from "./routes.js";

const EXPANSIONS = [3, 5, 10];

let current = null;

function change(route, options) {
  go(addressOf(route.view, route.argument, { ...route.options, ...options }));
}

// The address of a search with all these files.
export function addressOfFiles(files) {
  const [first, ...others] = files.map(keepUpload);
  return addressOf("upload", String(first), { more: others.map((number) => `upload/${number}`) });
}

// Show the examples beside the query, and what can be done with them.
export function showExamples(query, route) {
  current = { query, route };
  byId("examples").hidden = false;
  byId("examples-more").replaceChildren(...query.more.map((one) => example(one, "more")));
  byId("examples-not").replaceChildren(...query.not.map((one) => example(one, "not")));
  for (const name of ["more", "not"]) byId(`examples-${name}-part`).hidden = !query[name].length;
  byId("examples-add").hidden = query.crop !== null || query.more.length + 1 >= most();
  showExpansion(query, route);
}

const most = () => gallery.info.max_examples;

function example(one, list) {
  const image = element("img");
  showImage(image, one.url);
  image.alt = one.name;
  const remove = button("×", "example-remove", () => {
    const { route } = current;
    const left = listOf(route.options[list]).filter((place) => place !== one.place);
    change(route, { [list]: left });
  });
  remove.setAttribute("aria-label", `Remove ${one.name} from the query`);
  const item = element("li", "example", element("span", "tile", image), remove);
  item.title = one.id ?? one.name;
  return item;
}

// Query expansion, where the index compares by cosine.
function showExpansion(query, route) {
  const select = byId("expand");
  const values = [...EXPANSIONS];
  const chosen = Number(query.expand) || 0;
  if (chosen && !values.includes(chosen)) values.push(chosen);
  select.replaceChildren(new Option("Off", ""),
    ...values.map((value) => new Option(`by its ${value} nearest`, value)));
  select.value = chosen ? String(chosen) : "";
  select.onchange = () => change(route, { expand: select.value });
  byId("expand-control").hidden = gallery.info.indexes.some(({ metric }) => metric !== "cosine");
}

// Buttons beside each hit of a list: more like this, not like this.
export function offerExamples(list, query, route) {
  for (const card of list.querySelectorAll("li > .card")) {
    const id = card.title;
    const offer = (option, sign, text) => {
      const made = button(sign, "example-add", () => change(route,
        { [option]: [...listOf(route.options[option]), `like/${id}`] }));
      made.setAttribute("aria-label", `${text}: ${fileName(id)}`);
      made.title = text;
      return made;
    };
    const offered = [];
    // A region is one of a single image.
    if (!query.crop && query.more.length + 1 < most()) {
      offered.push(offer("more", "+", "More like this"));
    }
    if (query.not.length < most()) offered.push(offer("not", "−", "Not like this"));
    card.parentElement.classList.add("with-examples");
    card.after(element("span", "example-buttons", ...offered));
  }
}

export function listenToExamples() {
  byId("examples-file").addEventListener("change", (event) => {
    const { route } = current;
    const added = [...event.target.files].map((file) => `upload/${keepUpload(file)}`);
    event.target.value = "";
    if (!added.length) return;
    change(route, { more: [...listOf(route.options.more), ...added] });
  });
}
