// The map of the gallery: loading it, listing its clusters, and choosing an image.

import { clusterColor, clusterName, commonest, nameClusters } from "./clusters.js";
import { linkToSimilar, remember, tile } from "./cards.js";
import { byId, element, fileName, number, plural, say, title } from "./elements.js";
import { listenToPlot, showPoints } from "./plot.js";
import { addressOf, go } from "./routes.js";
import { askWithStatus, pause } from "./server.js";

const WAIT = 1000;  // milliseconds between two requests for the map
const SHOWN = 48;   // images of a cluster in its list before "show more"
const FACES = 3;    // thumbnails beside the name of a cluster
const LINKED = 3;   // classes of a cluster that are browsed from it

export const titleId = "mapping-title";

export async function show(route, signal) {
  byId("mapping").classList.add("waiting");
  say("Loading the map …", "busy");
  const reply = await fetchMap(signal);
  const { points, of: total, method, current } = reply;
  byId("mapping").classList.toggle("waiting", !points.length);
  for (const point of points) remember(point);
  const clusters = grouped(points);
  nameClusters(clusters);
  showPoints(points);
  showClusters(clusters);
  say(describe(points.length, total, method, current));
}

async function fetchMap(signal) {
  for (;;) {
    const { reply, status } = await askWithStatus("api/map", { signal });
    if (status !== 202) return reply;
    say("The map is being computed and will appear here …", "busy");
    await pause(WAIT, signal);
  }
}

function describe(shown, total, method, current) {
  if (!shown) return "There are no images in this gallery yet.";
  const all = plural(total, "image");
  const part = shown < total ? `${number.format(shown)} of ${all}, chosen at random` : all;
  const laidOut = `${part}, laid out by ${method}.`;
  return current ? laidOut
    : `${laidOut} The gallery has changed since. Come back in a minute for a new map.`;
}

function showClusters(clusters) {
  const sorted = [...clusters].sort(([a], [b]) => (a < 0) - (b < 0) || a - b);
  byId("clusters").replaceChildren(...sorted.map(([cluster, images]) =>
    clusterPart(cluster, images)));
}

function grouped(points) {
  const members = new Map();
  for (const point of points) {
    if (!members.has(point.cluster)) members.set(point.cluster, []);
    members.get(point.cluster).push(point);
  }
  return members;
}

// The images of a cluster are added when it is opened: a map may have thousands.
function clusterPart(cluster, images) {
  const mark = element("i", "cluster-mark");
  mark.style.setProperty("--cluster", clusterColor(cluster, "var(--cluster-light)"));
  const classes = commonest(images);
  const head = element("summary", "", mark, faces(images, classes),
    element("span", "cluster-name", clusterName(cluster)),
    element("span", "muted", plural(images.length, "image")));
  const list = element("ul", "strip");
  const more = element("button", "quiet-button", "Show more");
  more.type = "button";
  const showMore = () => {
    const from = list.children.length;
    list.append(...images.slice(from, from + SHOWN).map(listItem));
    more.hidden = list.children.length >= images.length;
    return list.children[from];
  };
  more.addEventListener("click", () => showMore()?.querySelector("a").focus());
  const part = element("details", "cluster", head, list,
    element("p", "cluster-actions", more, ...browseLink(classes)));
  part.addEventListener("toggle", () => {
    if (part.open && !list.children.length) showMore();
  });
  return part;
}

function listItem(image) {
  const alt = `Search with ${title(image)}, ${fileName(image.id)}`;
  return element("li", "", linkToSimilar(image, {}, tile(image, alt, { later: true })));
}

// Some of the images of a cluster, the commonest class first, each of another class.
function faces(images, classes) {
  const chosen = classes.slice(0, FACES)
    .map(([name]) => images.find((image) => image.class === name));
  chosen.push(...images.filter((image) => !chosen.includes(image)));
  return element("span", "faces", ...chosen.slice(0, FACES).map((image) =>
    tile(image, "", { later: true })));
}

// The commonest classes of a cluster, all of their images.
function browseLink(classes) {
  const names = classes.slice(0, LINKED).map(([name]) => name);
  if (!names.length) return [];
  const text = names.length > 1 ? `Browse its ${names.length} commonest classes` : "Browse its class";
  const link = element("a", "quiet-button", text);
  link.href = addressOf("browse", "", { where: { class: names.length > 1 ? names : names[0] } });
  return [link];
}

export function listenToMap() {
  listenToPlot((point) => go(addressOf("like", point.id)));
}
