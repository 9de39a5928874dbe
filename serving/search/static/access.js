// The access token, if the service requires one, and images that need it.

import { byId } from "./elements.js";

const KEY = "image-search-token";

let token = stored();
let asking = null;
let answers = 0;
let wasGiven = false;

// Some browsers refuse all storage; then the page asks for the token each time.
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

// How often the question for the token was answered or dismissed so far.
export function answersSoFar() {
  return answers;
}

// Ask for the token, once for all requests that wait for it.
//
// `reason` is the error of the service; `before` is the number of answers when the request
// was sent: a request sent before the last answer does not ask again. Resolves to false if
// no token was given.
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

// Show an image of the service. An <img> sends no token, so with a token the image is
// fetched here when it comes into view; `isHidden` is for images that are only drawn.
export function showImage(image, url, { isHidden = false } = {}) {
  clearImage(image);
  if (!token || url.startsWith("blob:")) {
    image.src = url;
  } else if (isHidden) {
    fetchImage(image, url);
  } else {
    image.dataset.url = url;
    observer.observe(image);
  }
}

// Browsers keep the previous image until the next one has loaded, and a pending request
// would replace a later image.
export function clearImage(image) {
  observer.unobserve(image);
  requests.get(image)?.abort();
  image.removeAttribute("src");
}

const requests = new WeakMap();

const observer = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    fetchImage(target, target.dataset.url);
  }
}, { rootMargin: "300px" });

async function fetchImage(image, url) {
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
