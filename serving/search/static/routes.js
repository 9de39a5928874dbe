// The address determines the view, so that back, forward, reload and links work:
//
//   #start                  choose an image, or one of a random sample
//   #like/ID                images like one of the gallery
//   #upload/NUMBER          images like one chosen since the page was loaded
//   #url/ADDRESS            images like one at an address
//   #image/CONTENT          images like a small one in the address itself, see sharing.js
//   #text/WORDS             images of what a text says
//   #browse                 the gallery, page by page
//   #map, #duplicates, #add
//
// Options follow a question mark, such as #like/ID?crop=0.1,0.2,0.5,0.5
// `more` and `not` are lists of further images and of those not wanted, such as
// ["like/ID", "upload/3"]; `expand` is a number of neighbors.

const VIEWS = [
  "start", "like", "upload", "url", "text", "image", "browse", "map", "duplicates", "add",
];

export function readRoute(hash = location.hash) {
  const [path, options = ""] = hash.slice(1).split(/\?(.*)/s, 2);
  const [view, argument = ""] = path.split(/\/(.*)/s, 2);
  return {
    view: VIEWS.includes(view) ? view : "start",
    argument: decoded(argument),
    options: Object.fromEntries(new URLSearchParams(options)),
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;  // not written by this page; the service will refuse it
  }
}

// The address of a view; options without a value are left out.
export function addressOf(view, argument = "", options = {}) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) {
    const isFilter = typeof value === "object" && value !== null;
    if (isFilter && Object.keys(value).length) given.set(name, JSON.stringify(value));
    else if (!isFilter && value !== undefined && value !== "") given.set(name, value);
  }
  const path = argument === "" ? view : `${view}/${encodeURIComponent(argument)}`;
  return `#${path}${given.size ? `?${given}` : ""}`;
}

// The filter in a route. An unreadable one is an error: without it, more would be shown.
export function whereOf(route) {
  const text = route.options.where || "{}";
  try {
    const where = JSON.parse(text);
    if (where !== null && typeof where === "object") return where;
  } catch {
    // Reported below.
  }
  throw new Error("The filter in the address (where) must be a JSON object, such as "
    + `{"class": "shoe"}. It is “${text.slice(0, 40)}”.`);
}

export function go(address) {
  const before = location.href;
  location.hash = address;
  // The same address again, such as after a failed search, fires no event.
  if (location.href === before) showAgain();
}

// Show the current view again.
export function showAgain() {
  window.dispatchEvent(new Event("hashchange"));
}

// Change the address of the current view, without a step for "back".
export function replaceAddress(address) {
  history.replaceState(history.state, "", address);
}
