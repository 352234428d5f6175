// The exercises of a page. `<div class="exercise" data-slug data-chapter>` holds title,
// statement and starter, readable as they are; here they get an editor, Run, hints and
// the solution. Editor and Python are loaded when a reader first goes into an editor.

import { button, element } from "./dom.js";
import { badge, enhanceProgress, markAccepted } from "./progress.js";
import { summary, TestList } from "./results.js";
import * as store from "./store.js";

const BASE = new URL("./", import.meta.url);
const TRIES_FOR_SOLUTION = 3;
const SAVE_AFTER_MS = 400;
const SLOW_LOAD_MS = 10_000;

let count = 0;

class Exercise {
  #editor = null; // a promise, once it was asked for
  #problem = null; // the same
  #numHints = 0;
  #isRunning = false;
  #saveTimer = null;
  #unsaved = null;

  constructor(root) {
    this.root = root;
    this.slug = root.dataset.slug;
    this.chapter = Number(root.dataset.chapter);
    this.title = root.querySelector("h1, h2, h3, h4, h5, h6");
    this.starter = root.querySelector(".exercise-starter");
    this.helpId = `exercise-help-${++count}`;
    this.#build();
    this.#showProgress();
  }

  // Keep what was typed last.
  flush() {
    clearTimeout(this.#saveTimer);
    if (this.#unsaved === null) return;
    const isKept = store.save(this.slug, { draft: this.#unsaved });
    this.#unsaved = null;
    this.note.textContent = isKept ? "" : "This browser does not keep your answer.";
  }

  // The page is left behind: nothing of it stays.
  close() {
    this.flush();
    this.#editor?.then((editor) => editor.close());
  }

  // After an import: what is stored now.
  async reload() {
    this.#showProgress();
    const { draft } = store.load(this.slug);
    if (draft === null) return;
    if (this.#editor) (await this.#editor).replace(draft);
    else this.#showDraft(draft);
  }

  #build() {
    const { draft } = store.load(this.slug);
    if (draft !== null) this.#showDraft(draft);
    const open = () => this.#open().catch((error) => this.#failed(error));
    const pre = this.#pre();
    pre.tabIndex = 0;
    pre.setAttribute("role", "textbox");
    pre.setAttribute("aria-multiline", "true");
    pre.setAttribute("aria-label", this.#label());
    pre.addEventListener("focus", open);
    pre.addEventListener("click", open);

    this.place = element("div", { class: "exercise-editor", hidden: true });
    this.help = element(
      "p",
      { class: "exercise-help", id: this.helpId },
      "Ctrl+Enter (⌘+Enter) runs. Esc, then Tab, leaves the editor.",
    );
    this.runButton = button("Run", () => this.run(), { class: "exercise-run" });
    this.stopButton = button("Stop", () => this.#stop(), { hidden: true });
    this.resetButton = button("Reset", () => this.#reset());
    this.hintButton = button("Hint", () => this.#hint());
    this.solutionButton = button("Solution", () => this.#showSolution());
    const buttons = [this.runButton, this.stopButton, this.resetButton];
    buttons.push(this.hintButton, this.solutionButton);
    this.status = element("p", { class: "exercise-status", role: "status" });
    this.tests = new TestList();
    this.hints = element("ol", { class: "exercise-hints", "aria-live": "polite" });
    this.solution = element("div", { class: "exercise-solution" });
    this.note = element("p", { class: "exercise-note", role: "status" });
    this.starter.after(
      this.place,
      this.help,
      element("div", { class: "exercise-buttons" }, ...buttons),
      this.note,
      this.status,
      this.tests.node,
      this.hints,
      this.solution,
    );
  }

  async run() {
    if (this.#isRunning) return;
    this.#setRunning(true);
    try {
      const [editor, problem, runtime] = await this.#ready();
      const answer = editor.text();
      store.save(this.slug, { draft: answer });
      this.tests.plan([]);
      const result = await runtime.run(problem, answer, {
        onPlan: (tests) => {
          this.status.textContent = "running …";
          this.tests.plan(tests);
        },
        onTest: (record, index) => this.tests.update(record, index),
      });
      store.tried(this.slug, answer, result.status === "accepted");
      this.status.textContent = summary(result);
      this.status.dataset.status = result.status;
      this.tests.show(result);
      this.#showProgress();
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#setRunning(false);
    }
  }

  // The editor, the problem and a Python that runs.
  async #ready() {
    delete this.status.dataset.status;
    this.status.textContent = "loading Python, once for this page …";
    const slow = setTimeout(() => {
      this.status.textContent = `still loading; on your machine: ${this.#command()}`;
    }, SLOW_LOAD_MS);
    try {
      const [editor, problem] = await Promise.all([this.#open(), this.#load()]);
      const runtime = await this.#runtime();
      await runtime.warm();
      return [editor, problem, runtime];
    } finally {
      clearTimeout(slow);
    }
  }

  #open() {
    this.#editor ??= this.#createEditor().catch((error) => {
      this.#editor = null; // the next try loads it again
      throw error;
    });
    return this.#editor;
  }

  async #createEditor() {
    this.#runtime().then((runtime) => runtime.warm()).catch(() => {}); // Run will say
    const [{ createEditor }, problem] = await Promise.all([
      import("./editor.js"),
      this.#load(),
    ]);
    const editor = createEditor({
      parent: this.place,
      text: store.load(this.slug).draft ?? problem.starter,
      label: this.#label(),
      describedBy: this.helpId,
      onChange: (text) => this.#changed(text),
      onRun: () => this.run(),
    });
    const hadFocus = this.starter.contains(document.activeElement);
    this.starter.hidden = true;
    this.place.hidden = false;
    if (hadFocus) editor.focus();
    return editor;
  }

  #load() {
    this.#problem ??= loadProblem(this.chapter, this.slug).catch((error) => {
      this.#problem = null;
      throw error;
    });
    return this.#problem;
  }

  async #runtime() {
    const { pageRuntime } = await import("./runtime.js");
    return pageRuntime(this.chapter);
  }

  async #stop() {
    (await this.#runtime()).stop();
  }

  async #reset() {
    try {
      const [editor, problem] = await Promise.all([this.#open(), this.#load()]);
      if (editor.text() === problem.starter) return;
      if (!confirm("Throw your answer away and begin again with the starter?")) return;
      editor.replace(problem.starter);
      this.flush();
      this.status.textContent = "";
      this.tests.plan([]);
      editor.focus();
    } catch (error) {
      this.#failed(error);
    }
  }

  async #hint() {
    try {
      const { hints } = await this.#load();
      if (this.#numHints === hints.length) return;
      this.hints.append(element("li", {}, hints[this.#numHints++]));
      const left = hints.length - this.#numHints;
      this.hintButton.textContent = left ? `Next hint (${left} left)` : "No more hints";
      this.hintButton.disabled = left === 0;
    } catch (error) {
      this.#failed(error);
    }
  }

  async #showSolution() {
    try {
      const [editor, problem] = await Promise.all([this.#open(), this.#load()]);
      const { showDifference } = await import("./editor.js");
      const label = "The solution, compared to your answer";
      const signs = "− is your answer, + is the solution";
      this.solution.replaceChildren(element("p", {}, `${label}: ${signs}.`));
      showDifference({
        parent: this.solution,
        answer: editor.text(),
        solution: problem.solution,
        label,
      });
    } catch (error) {
      this.#failed(error);
    }
  }

  #changed(text) {
    this.#unsaved = text;
    clearTimeout(this.#saveTimer);
    this.#saveTimer = setTimeout(() => this.flush(), SAVE_AFTER_MS);
  }

  #showDraft(draft) {
    const pre = this.#pre();
    (pre.querySelector("code") ?? pre).textContent = draft;
  }

  #showProgress() {
    const { accepted, tries } = store.load(this.slug);
    this.root.dataset.accepted = accepted;
    this.title?.querySelector(".exercise-badge")?.remove();
    if (accepted) this.title?.append(badge());
    const isOpen = accepted || tries >= TRIES_FOR_SOLUTION;
    this.solutionButton.disabled = !isOpen;
    this.solutionButton.textContent = isOpen
      ? "Solution"
      : `Solution (after a pass or ${TRIES_FOR_SOLUTION} tries)`;
  }

  #setRunning(isRunning) {
    this.#isRunning = isRunning;
    this.root.setAttribute("aria-busy", isRunning);
    this.stopButton.hidden = !isRunning;
    this.runButton.disabled = isRunning;
  }

  #failed(error) {
    delete this.status.dataset.status;
    if (error.name === "Stopped") {
      this.status.textContent = "stopped";
      return;
    }
    const why = error.name === "NoRuntime" ? error.message : `not loaded: ${error.message}`;
    const command = element("code", {}, this.#command());
    this.status.replaceChildren(`? ${why}. On your machine it is: `, command);
  }

  #command() {
    return `.venv/bin/python practice/judge.py check ${this.slug}`;
  }

  #label() {
    return `Your answer to: ${this.title?.textContent.trim() ?? this.slug}`;
  }

  #pre() {
    return this.starter.matches("pre") ? this.starter : this.starter.querySelector("pre");
  }
}

async function loadProblem(chapter, slug) {
  const path = `chapters/${String(chapter).padStart(2, "0")}/problems.json`;
  const response = await fetch(new URL(path, BASE));
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  const problem = (await response.json()).find((one) => one.slug === slug);
  if (!problem) throw new Error(`${path} has no ${slug}`);
  return problem;
}

let exercises = [];

function flushAll() {
  for (const exercise of exercises) exercise.flush();
}

// Also called after navigation that keeps scripts and replaces the body: the workers of
// the page before are ended, and its exercises forgotten.
async function start() {
  for (const exercise of exercises) exercise.close();
  if (exercises.length) (await import("./runtime.js")).leavePage();
  const found = document.querySelectorAll(".exercise[data-slug]:not([data-ready])");
  exercises = Array.from(found, (root) => {
    root.dataset.ready = "";
    return new Exercise(root);
  });
  for (const root of document.querySelectorAll(".exercise-progress")) {
    enhanceProgress(root, () => {
      for (const exercise of exercises) exercise.reload();
      markAccepted();
    });
  }
  markAccepted();
}

addEventListener("pagehide", flushAll);
addEventListener("pageshow", markAccepted); // back from a chapter, from the cache
if (window.document$?.subscribe) window.document$.subscribe(start);
else start();
