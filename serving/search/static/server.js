// Requests to the service. Every failure is an `Error` whose text is a sentence.

import { answersSoFar, askForToken, authorization } from "./access.js";

export async function ask(path, options = {}) {
  const { reply } = await askWithStatus(path, options);
  return reply;
}

export async function askWithStatus(path, options = {}) {
  const answers = answersSoFar();
  let response;
  try {
    response = await fetch(path,
      { ...options, headers: { ...options.headers, ...authorization() } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server of this page cannot be reached. Is it still running?");
  }
  let reply = null;
  try {
    reply = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (response.status === 401 && await askForToken(reply?.error, answers)) {
    return askWithStatus(path, options);
  }
  if (!response.ok || reply === null) {
    const text = reply?.error ?? `The server answered with status ${response.status}.`;
    throw Object.assign(new Error(text), { status: response.status });
  }
  return { reply, status: response.status };
}

// What `path` answers to a JSON body, as a file.
export async function askForFile(path, body) {
  const answers = answersSoFar();
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...authorization() },
    body: JSON.stringify(body),
  }).catch(() => {
    throw new Error("The server of this page cannot be reached. Is it still running?");
  });
  if (response.ok) return response.blob();
  const reply = await response.json().catch(() => null);
  if (response.status === 401 && await askForToken(reply?.error, answers)) {
    return askForFile(path, body);
  }
  throw new Error(reply?.error ?? `The server answered with status ${response.status}.`);
}

// `path` with the parameters that have a value.
export function withParameters(path, parameters) {
  const given = Object.entries(parameters)
    .filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export function sendJson(path, body, options = {}) {
  return ask(path, {
    ...options,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

// A filter as JSON; undefined if it matches everything.
export function whereText(where) {
  return where && Object.keys(where).length ? JSON.stringify(where) : undefined;
}

export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("The view was left.", "AbortError"));
    }, { once: true });
  });
}
