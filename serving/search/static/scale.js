// How similarities are drawn and written, so that differences show.

const WHOLE = 0.2;      // a range above it is drawn on the scale from 0 to 1
const LEAST_SHARE = 8;  // percent of a bar that the last hit keeps
const MOST_DIGITS = 6;

// The scale of an answer: from 0 to 1, or what its similarities span if that is little.
export function scaleOf({ hits, threshold }) {
  const values = hits.map((hit) => hit.similarity);
  if (threshold !== undefined) values.push(threshold);
  const least = values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const isWhole = most - least >= WHOLE && least >= -1 && most <= 1.001;
  if (isWhole || !(most > least)) return { isWhole: true, share: (value) => cut(100 * value) };
  const part = (value) => (value - least) / (most - least);
  return {
    isWhole: false, least, most,
    share: (value) => cut(LEAST_SHARE + (100 - LEAST_SHARE) * part(value)),
  };
}

function cut(percent) {
  return `${Math.max(0, Math.min(100, percent)).toFixed(1)}%`;
}

// The fewest digits, at least 3, that show each hit that is not a match below the
// threshold, and at most half of the hits equal to the one before.
export function digitsOf({ hits, threshold }) {
  const weak = hits.filter((hit) => hit.match === false);
  const hidesMatch = (digits) => weak.some((hit) =>
    Number(hit.similarity.toFixed(digits)) >= Number(threshold.toFixed(digits)));
  const hidesOrder = (digits) => {
    const pairs = hits.slice(1).map((hit, place) => [hits[place].similarity, hit.similarity]);
    const apart = pairs.filter(([a, b]) => a !== b);
    const equal = apart.filter(([a, b]) => a.toFixed(digits) === b.toFixed(digits));
    return equal.length > apart.length / 2;
  };
  let digits = 3;
  while (digits < MOST_DIGITS && hidesOrder(digits)) digits += 1;
  while (digits < 9 && hidesMatch(digits)) digits += 1;
  return digits;
}
