// The access token, where the service asks for one, and pictures that need it.

import { byId } from "./elements.js";

const KEY = "image-search-token";

let token = stored();
let asking = null;

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

// Ask for the token, once for all requests that wait for it.
//
// `reason` is what the service said; false comes back where none was given.
export function askForToken(reason) {
  asking ??= new Promise((resolve) => {
    byId("token-error").textContent = token ? reason : "";
    byId("token-error").hidden = !token;
    byId("token").value = "";
    const dialog = byId("token-dialog");
    dialog.returnValue = "";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      asking = null;
      const isGiven = dialog.returnValue === "given";
      if (isGiven) keep(byId("token").value.trim());
      resolve(isGiven);
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
  if (!token || url.startsWith("blob:")) {
    image.src = url;
  } else if (isHidden) {
    fetchPicture(image, url);
  } else {
    image.dataset.url = url;
    observer.observe(image);
  }
}

const observer = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    fetchPicture(target, target.dataset.url);
  }
}, { rootMargin: "300px" });

async function fetchPicture(image, url) {
  try {
    const response = await fetch(url, { headers: authorization() });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const address = URL.createObjectURL(await response.blob());
    image.addEventListener("load", () => URL.revokeObjectURL(address), { once: true });
    image.src = address;
  } catch {
    image.dispatchEvent(new Event("error"));
  }
}
