// The access token, where the service asks for one, and pictures that need it.

import { byId } from "./elements.js";

const KEY = "image-search-token";

let token = stored();
let asking = null;
let answers = 0;
let wasGiven = false;

// Some browsers are set to refuse all storage; then the token is asked for each time.
function stored() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function authorization() {
  return token ? { authorization: `Bearer ${token}` } : {};
}

// How often the question for the token was answered, or put away, so far.
export function answersSoFar() {
  return answers;
}

// Ask for the token, once for all requests that wait for it.
//
// `reason` is what the service said, `before` the answers when the request was sent: one
// that was on its way meanwhile asks no more. False comes back where none was given.
export function askForToken(reason, before) {
  if (before !== answers) return Promise.resolve(wasGiven);
  asking ??= new Promise((resolve) => {
    byId("token-error").textContent = token ? reason : "";
    byId("token-error").hidden = !token;
    byId("token").value = "";
    const dialog = byId("token-dialog");
    dialog.returnValue = "";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      asking = null;
      answers += 1;
      wasGiven = dialog.returnValue === "given";
      if (wasGiven) keep(byId("token").value.trim());
      resolve(wasGiven);
    }, { once: true });
  });
  return asking;
}

function keep(given) {
  token = given;
  try {
    sessionStorage.setItem(KEY, given);
  } catch {
    // see `stored`
  }
}

// Show a picture of the service. An <img> sends no token, so with one it is fetched
// here, when it comes into view; `isHidden` is for pictures that are only drawn.
export function showPicture(image, url, { isHidden = false } = {}) {
  showNoPicture(image);
  if (!token || url.startsWith("blob:")) {
    image.src = url;
  } else if (isHidden) {
    fetchPicture(image, url);
  } else {
    image.dataset.url = url;
    observer.observe(image);
  }
}

// Browsers keep the picture before until the next one is there, and a request that is
// on its way would put its picture in the place of a later one.
export function showNoPicture(image) {
  observer.unobserve(image);
  requests.get(image)?.abort();
  image.removeAttribute("src");
}

const requests = new WeakMap();

const observer = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    fetchPicture(target, target.dataset.url);
  }
}, { rootMargin: "300px" });

async function fetchPicture(image, url) {
  const request = new AbortController();
  const { signal } = request;
  requests.set(image, request);
  try {
    const response = await fetch(url, { headers: authorization(), signal });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const content = await response.blob();
    signal.throwIfAborted();
    const address = URL.createObjectURL(content);
    image.addEventListener("load", () => URL.revokeObjectURL(address), { once: true });
    image.src = address;
  } catch {
    if (!signal.aborted) image.dispatchEvent(new Event("error"));
  }
}
