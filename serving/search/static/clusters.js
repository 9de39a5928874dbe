// Colors and names of the clusters of the map.

import { className } from "./names.js";

const GOLDEN_ANGLE = 137.508;  // neighboring numbers get distant colors
const CLEAR = 0.6;             // a class with this share of a cluster names it alone
const NAMED = 3;               // classes in the name of any other

// `lightness` is a percentage, or the CSS variable that has it.
export function clusterColor(cluster, lightness) {
  if (cluster < 0) return `hsl(100 4% ${lightness})`;
  return `hsl(${Math.round(160 + GOLDEN_ANGLE * cluster) % 360} 62% ${lightness})`;
}

let names = new Map();

// Name the clusters by the classes of their points. Two of one name also get numbers.
export function nameClusters(clusters) {
  const found = [...clusters].filter(([cluster]) => cluster >= 0).map(([cluster, images]) => [cluster, nameOf(commonest(images))]);
  const counts = new Map();
  for (const [, name] of found) counts.set(name, (counts.get(name) ?? 0) + 1);
  names = new Map(found.filter(([, name]) => name).map(([cluster, name]) =>
    [cluster, counts.get(name) > 1 ? `${name} (${cluster + 1})` : name]));
}

export function clusterName(cluster) {
  if (cluster < 0) return "In no cluster";
  return names.get(cluster) ?? `Cluster ${cluster + 1}`;
}

// The classes of some images and how many have each, the commonest first.
export function commonest(images) {
  const counts = new Map();
  for (const image of images) {
    if (image.class) counts.set(image.class, (counts.get(image.class) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a);
}

function nameOf(classes) {
  const total = classes.reduce((sum, [, count]) => sum + count, 0);
  if (!total) return "";
  const [first, count] = classes[0];
  if (classes.length === 1 || count >= CLEAR * total) return className(first);
  const named = classes.slice(0, NAMED).map(([name]) => className(name));
  if (classes.length > NAMED) return `${named.join(", ")} …`;
  return `${named.slice(0, -1).join(", ")} and ${named.at(-1)}`;
}
