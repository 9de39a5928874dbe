// The cards of the nearest images, and their summary in a sentence.

import { linkToSimilar, tile } from "./cards.js";
import { element, fileName, number, plural, share, title } from "./elements.js";
import { whereInWords } from "./filters.js";
import { gallery } from "./gallery.js";
import { digitsOf, scaleOf } from "./scale.js";

function badge(text, label) {
  const made = element("span", "same", text);
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", label);
  made.title = label;
  return made;
}

function meter(similarity, scale, threshold) {
  const filling = element("i");
  filling.style.setProperty("--share", scale.share(similarity));
  const made = element("span", "meter", filling);
  if (threshold !== undefined) {
    made.classList.add("marked");
    made.style.setProperty("--threshold", scale.share(threshold));
  }
  return made;
}

function hitCard(hit, place, reply, { digits, scale, others, links }) {
  const { query, threshold, hits } = reply;
  const name = element("span", "card-name", element("span", "card-class", title(hit)));
  if (query?.class && query.class === hit.class) {
    name.append(badge("✓", "same class as the query"));
  }
  const score = element("b", "", hit.similarity.toFixed(digits));
  const next = hits[place + 1];
  if (next) score.title = `${(hit.similarity - next.similarity).toFixed(6)} above the next`;
  const label = element("span", "", element("span", "rank", `${place + 1}`), "similarity");
  const similarity = element("span", "card-score",
    element("span", "", label, score), meter(hit.similarity, scale, threshold));
  const shown = tile(hit, `Image ${fileName(hit.id)}`);
  const rank = others?.get(hit.id);
  if (rank !== undefined) shown.append(element("span", "both", `in both, ${rank} there`));
  const card = linkToSimilar(hit, { ...links, from: reply.index }, shown,
    element("span", "card-text", name, similarity));
  if (hit.match === false) card.classList.add("weak");
  const item = element("li", "hit", card);
  item.dataset.class = hit.class;
  return item;
}

// How much "no match" says: with a weak model, most images that have a match get none.
function recallInWords({ index }) {
  const known = gallery.info.indexes.find(({ name }) => name === index)?.calibration;
  if (!known) return "";
  const isWeak = known.recall < 0.8;
  return ` At this similarity, ${share(known.recall)} of the queries that have a match get it`
    + `${isWeak ? ", so yours may have one all the same" : ""}.`;
}

// Cards in order; with a calibration, a line divides matches from the rest.
//
// `others`: ids and ranks in the other column, to mark hits in both.
// `links`: options of the address that a card links to.
export function hitList(reply, { others, links }) {
  const { hits, match, threshold } = reply;
  const digits = digitsOf(reply);
  const scale = scaleOf(reply);
  const cards = hits.map((hit, place) =>
    hitCard(hit, place, reply, { digits, scale, others, links }));
  const first = hits.findIndex((hit) => hit.match === false);
  if (first < 0) return cards;
  const divider = match
    ? element("li", "divider", element("strong", "", `Below ${threshold.toFixed(digits)}:`),
      " similar, but not a match")
    : element("li", "divider no-match", element("strong", "", noMatch(reply)),
      " The nearest are shown. A match needs a similarity of "
      + `${threshold.toFixed(digits)}; the nearest image has ${hits[0].similarity.toFixed(digits)}.`
      + recallInWords(reply));
  return [...cards.slice(0, first), divider, ...cards.slice(first)];
}

function noMatch({ hits, query }) {
  return query?.class && hits.some((hit) => hit.class === query.class)
    ? "No image is similar enough to be called a match."
    : "No image of the same thing seems to be in this gallery.";
}

// What the bars of an answer show, if it is not the scale from 0 to 1.
export function scaleInWords(reply) {
  const { isWhole, least, most } = scaleOf(reply);
  if (isWhole) return "";
  const digits = Math.min(6, Math.max(3, Math.ceil(-Math.log10(most - least)) + 1));
  return `Bars run from ${least.toFixed(digits)} to ${most.toFixed(digits)}.`;
}

export function ranksOf(reply) {
  return new Map(reply.hits.map((hit, place) => [hit.id, ordinal(place + 1)]));
}

function ordinal(value) {
  const ending = { one: "st", two: "nd", few: "rd", other: "th" };
  return value + ending[new Intl.PluralRules("en", { type: "ordinal" }).select(value)];
}

// The summary of an answer.
export function summary({ hits, query, match, seconds }, { images, where }) {
  const time = `${number.format(Math.max(1, Math.round(1000 * seconds)))} ms`;
  const filter = whereInWords(where);
  if (!hits.length) {
    const other = query ? " other" : "";
    return filter ? `No${other} image has ${filter}.` : `There is no${other} image in the gallery.`;
  }
  const among = filter ? `images with ${filter}` : `${number.format(images)} images`;
  const nearest = hits.length > 1 ? `The ${hits.length} nearest` : "The nearest";
  let text = match === false ? `No match among ${among}, searched in ${time}.`
    : `${nearest} of ${among}, found in ${time}.`;
  if (match) {
    const matches = hits.filter((hit) => hit.match).length;
    text += ` ${matches} ${matches > 1 ? "are matches" : "is a match"}.`;
  }
  if (query?.class) {
    const same = hits.filter((hit) => hit.class === query.class).length;
    text += ` ${same || "None"} of ${match === false ? "the nearest" : `the ${hits.length}`} `
      + `${same === 1 ? "has" : "have"} the class of the query.`;
  }
  return text;
}

// The agreement of two answers.
export function agreement([first, second]) {
  const ranks = ranksOf(second);
  const shared = first.hits.filter((hit) => ranks.has(hit.id)).length;
  const most = Math.max(first.hits.length, second.hits.length);
  const verb = shared === 1 ? "is" : "are";
  return `${number.format(shared)} of ${plural(most, "hit")} ${verb} in both.`;
}
