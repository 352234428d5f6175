// A result as a reader sees it: signs and words, never a colour alone.

import { element } from "./dom.js";

const SIGNS = {
  accepted: "✓",
  passed: "✓",
  rejected: "✗",
  failed: "✗",
  error: "✗",
  "timed out": "⏱",
  "no result": "?",
  "not run": "–",
};

export function summary(result) {
  return `${SIGNS[result.status]} ${result.status}: ${result.message}`;
}

// A list that is filled in while the tests run.
export class TestList {
  constructor() {
    this.node = element("ol", { class: "exercise-tests" });
  }

  plan(tests) {
    this.node.replaceChildren(...tests.map(({ name }) => row({ name, status: "not run" })));
  }

  update(record, index) {
    this.node.children[index]?.replaceWith(row(record));
  }

  // The result has the last word, also on tests that never came to their end.
  show(result) {
    const all = result.tests.map(row);
    if (result.output) all.unshift(element("li", {}, ...printed(result.output)));
    this.node.replaceChildren(...all);
  }
}

function row(record) {
  const { name, status, failure = null, message = "", output = "" } = record;
  const sign = element("span", { "aria-hidden": "true" }, SIGNS[status]);
  const line = element("p", {}, sign, ` ${status}: ${name}`);
  const item = element("li", { "data-status": status }, line);
  if (failure) item.append(...failed(failure));
  if (message && (!failure || status !== "failed")) {
    item.append(scrolled(message));
  }
  if (output) item.append(...printed(output));
  return item;
}

function failed(failure) {
  const facts = [
    ["call", failure.call],
    ["expected", failure.expected],
    ["your answer", failure.actual],
    ["look at", failure.look],
  ].filter(([, text]) => text);
  const list = element("dl");
  for (const [name, text] of facts) {
    list.append(element("dt", {}, name), element("dd", {}, text));
  }
  const parts = [list];
  if (failure.operations?.length > 1) {
    parts.push(...figure("the operations", failure.operations.join("\n")));
  }
  if (failure.expected_drawing) {
    parts.push(...figure("expected", failure.expected_drawing));
  }
  if (failure.actual_drawing) {
    parts.push(...figure("your answer", failure.actual_drawing));
  }
  return parts;
}

function printed(output) {
  return figure("printed", output);
}

function figure(caption, text) {
  return [element("p", { class: "exercise-caption" }, caption), scrolled(text)];
}

// Lines that are too long scroll; with Tab a keyboard gets there.
function scrolled(text) {
  return element("pre", { tabindex: "0" }, text);
}
