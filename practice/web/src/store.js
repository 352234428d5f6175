// What a reader has done, in this browser: one entry of localStorage per exercise.
//
//   minisgl.practice.1.SLUG   {"accepted": true, "answer": "…", "tries": 3, "draft": "…"}
//
// `answer` is the accepted answer, or the last one that was tried; `draft` is what
// stands in the editor. An export has the form of the local judge's progress:
//
//   {"version": 1, "problems": {SLUG: {"accepted": true, "answer": "…", "tries": 3}}}

const PREFIX = "minisgl.practice.1.";
const NOTHING = { accepted: false, answer: "", tries: 0, draft: null };

export const VERSION = 1;

export function load(slug) {
  try {
    return { ...NOTHING, ...JSON.parse(localStorage.getItem(PREFIX + slug)) };
  } catch {
    return { ...NOTHING };
  }
}

// Change an entry; false if this browser keeps nothing (private mode, no room left).
export function save(slug, changes) {
  try {
    const entry = JSON.stringify({ ...load(slug), ...changes });
    localStorage.setItem(PREFIX + slug, entry);
    return true;
  } catch {
    return false;
  }
}

// Count a try. An accepted answer is replaced by an accepted one only.
export function tried(slug, answer, accepted) {
  const entry = load(slug);
  save(slug, {
    tries: entry.tries + 1,
    answer: accepted || !entry.accepted ? answer : entry.answer,
    accepted: accepted || entry.accepted,
  });
}

export function slugs() {
  const keys = Array.from({ length: localStorage.length }, (_, at) =>
    localStorage.key(at),
  );
  const ours = keys.filter((key) => key.startsWith(PREFIX));
  return ours.map((key) => key.slice(PREFIX.length)).sort();
}

export function exported() {
  const problems = {};
  for (const slug of slugs()) {
    const { accepted, answer, tries, draft } = load(slug);
    problems[slug] = { accepted, answer: accepted ? answer : (draft ?? answer), tries };
  }
  return { version: VERSION, problems };
}

// The problems of an exported file. Throws an Error that says what is wrong with it.
export function parsed(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error("this file is not JSON");
  }
  if (data?.version !== VERSION || typeof data.problems !== "object" || !data.problems) {
    throw new Error(`this file is not progress of version ${VERSION}`);
  }
  for (const [slug, entry] of Object.entries(data.problems)) {
    const isWhole =
      /^[a-z][a-z0-9-]*$/.test(slug) &&
      typeof entry?.accepted === "boolean" &&
      typeof entry.answer === "string" &&
      Number.isInteger(entry.tries) &&
      entry.tries >= 0;
    if (!isWhole) throw new Error(`this file is damaged at ${slug.slice(0, 40)}`);
  }
  return data.problems;
}

// The slugs for which an import would replace text that stands in the editor.
export function conflicts(problems) {
  return Object.keys(problems).filter((slug) => {
    const mine = load(slug);
    const draft = mine.draft ?? mine.answer;
    return takes(mine, problems[slug]) && draft && draft !== problems[slug].answer;
  });
}

// Take in progress from elsewhere: what was accepted on either side stays.
export function merge(problems) {
  for (const [slug, other] of Object.entries(problems)) {
    const mine = load(slug);
    const news = takes(mine, other) ? { answer: other.answer, draft: other.answer } : {};
    save(slug, {
      ...news,
      accepted: mine.accepted || other.accepted,
      tries: Math.max(mine.tries, other.tries),
    });
  }
}

function takes(mine, other) {
  return !mine.accepted && (other.accepted || !(mine.draft ?? mine.answer));
}
