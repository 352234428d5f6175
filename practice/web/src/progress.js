// What was accepted, in a list of exercises; and the box in which a reader saves progress
// to a file, and brings it to another browser.

import { button, element } from "./dom.js";
import * as store from "./store.js";

// In a list (`<li class="exercise-link" data-slug>`), and above it how many in all.
export function markAccepted() {
  const links = [...document.querySelectorAll(".exercise-link")];
  if (!links.length) return;
  const accepted = links.filter((link) => store.load(link.dataset.slug).accepted);
  for (const link of links) {
    link.querySelector(".exercise-badge")?.remove();
    if (accepted.includes(link)) link.append(badge());
  }
  for (const count of document.querySelectorAll(".exercise-count")) {
    const all = `${accepted.length} of ${links.length} exercises`;
    count.textContent = `${all} accepted in this browser.`;
  }
}

export function badge() {
  return element("span", { class: "exercise-badge" }, " ✓ accepted");
}

export function enhanceProgress(root, onImport) {
  const status = element("p", { role: "status" });
  const chooser = element("input", {
    type: "file",
    accept: "application/json,.json",
    hidden: true,
    "aria-label": "A progress file",
    onchange: async () => {
      const [file] = chooser.files;
      chooser.value = ""; // the same file may be chosen again
      if (file) status.textContent = importText(await file.text(), onImport);
    },
  });
  root.replaceChildren(
    element("p", { class: "exercise-count" }),
    element(
      "div",
      { class: "exercise-buttons" },
      button("Export progress", () => {
        const { problems } = download();
        status.textContent = `${Object.keys(problems).length} exercises exported`;
      }),
      button("Import progress", () => chooser.click()),
    ),
    chooser,
    status,
  );
}

function download() {
  const data = store.exported();
  const blob = new Blob([`${JSON.stringify(data, null, 1)}\n`], { type: "application/json" });
  const href = URL.createObjectURL(blob);
  element("a", { href, download: "minisgl-progress.json" }).click();
  URL.revokeObjectURL(href);
  return data;
}

// What the reader is told.
function importText(text, onImport) {
  try {
    const problems = store.parsed(text);
    const replaced = store.conflicts(problems);
    const question = `Replace what you have begun here by the accepted answers of the file: ${replaced.join(", ")}?`;
    if (replaced.length && !confirm(question)) return "nothing imported";
    store.merge(problems);
    onImport();
    return `${Object.keys(problems).length} exercises imported`;
  } catch (error) {
    return `not imported: ${error.message}`;
  }
}
