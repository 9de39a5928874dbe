// Names of classes as people write them. The service and addresses keep the names of folders.

// Code points of an emoji (but no year), the number of a class (CUB), an id of WordNet
// (ImageNet).
const CODES = [
  /^(?!20[0-3]\d_)(?:00[0-9a-f]{2}|[23][0-9a-f]{3}|1f[0-9a-f]{3})(?:-[0-9a-f]{4,5})*_(?=\S)/,
  /^\d+\.\s*(?=[^\d\s])/,
  /^n\d{8}[-_](?=\S)/,
];
// Words that keep their hyphen when the others become spaces.
const HYPHENATED = /\b(e mail|t rex|t shirt|u turn|x ray|yo yo)\b/g;

export function className(name) {
  let text = name.trim();
  for (const code of CODES) text = text.replace(code, "");
  const isSlug = /^[a-z0-9]+(?:-[a-z0-9]+)+$/.test(text);
  if (isSlug) {
    text = text.replaceAll("-", " ")
      .replace(HYPHENATED, (words) => words.replace(" ", "-"))
      .replace(/\b([a-z]{2,}) o ([a-z]{2,})\b/g, "$1-o'-$2")
      .replace(/\bo ?clock\b/g, "o'clock");
  }
  return text.replaceAll("_", " ").trim() || name;
}

// The class among `names` that a text means: by its own name, or as people write it.
export function classNamed(text, names) {
  if (names.includes(text)) return text;
  const wanted = plain(text);
  return names.find((name) => plain(name) === wanted || plain(className(name)) === wanted);
}

// The classes whose name has all words of a text.
export function classesWith(text, names) {
  const words = plain(text).split(" ").filter(Boolean);
  if (!words.length) return [];
  return names.filter((name) => {
    const own = plain(className(name));
    return words.every((word) => own.includes(word));
  });
}

function plain(text) {
  return text.toLowerCase().replace(/['’]/g, "").replace(/[\s_-]+/g, " ").trim();
}
