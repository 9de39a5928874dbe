// The hits of a search as a file: a table, JSON, or a zip archive with their images.

import { askForFile, withParameters } from "./server.js";
import { byId, say } from "./elements.js";
import { indexNamed } from "./gallery.js";

const COLUMNS = ["index", "rank", "id", "class", "similarity", "match"];

let shown = [];

// `replies`: of one index or two; null for one that failed.
export function showExport(replies) {
  shown = replies.filter((reply) => reply?.hits.length);
  byId("export").hidden = !shown.length;
  byId("export").open = false;
}

function rows() {
  return shown.flatMap(({ index, hits }) => hits.map((hit, place) =>
    ({ index, rank: place + 1, ...hit })));
}

function table() {
  const cell = (value) => {
    const text = String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = rows().map((row) => COLUMNS.map((name) => cell(row[name])).join(","));
  return [COLUMNS.join(","), ...lines, ""].join("\r\n");
}

function json() {
  const answers = shown.map(({ index, query, threshold, hits }) =>
    ({ index, model: indexNamed(index)?.model, query, threshold, hits }));
  return JSON.stringify({ address: location.href, answers }, null, 2);
}

async function archive() {
  const [{ index, hits }] = shown;
  const chosen = hits.map(({ id, similarity }) => ({ id, similarity }));
  say("Packing the images …", "busy");
  const content = await askForFile(withParameters("api/export", { index }), { hits: chosen });
  say(`The images of ${hits.length} hits were packed.`);
  return content;
}

function save(name, content) {
  const link = document.createElement("a");
  link.download = name;
  link.href = URL.createObjectURL(content);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export function listenToExport() {
  const close = () => { byId("export").open = false; };
  byId("export-csv").addEventListener("click", () => {
    save("hits.csv", new Blob([table()], { type: "text/csv" }));
    close();
  });
  byId("export-json").addEventListener("click", () => {
    save("hits.json", new Blob([json()], { type: "application/json" }));
    close();
  });
  byId("export-zip").addEventListener("click", () => {
    close();
    archive().then((content) => save("hits.zip", content))
      .catch((error) => say(error.message, "warning"));
  });
}
