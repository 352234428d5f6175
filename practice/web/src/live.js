// The live drawings of a page. `<div class="live" data-kind data-chapter data-options>`
// holds a list of operations, readable as it is; here it gets a picture, steps forward
// and back, and a line to type more operations. The chapter's own Python plays the whole
// list anew whenever it changes (practice/web/python/live); to step is only to show
// another of its answers. Python is loaded when a reader first does something.

import { button, element } from "./dom.js";

const SLOW_LOAD_MS = 10_000;

let count = 0;

class Live {
  #steps = null; // what Python said last: the beginning, and a step for each line
  #lines; // the operations
  #test = "";
  #at = 0; // the step that is shown
  #isHidden = false; // the reader is to say first what there will be
  #playing = null; // while Python plays the list for the first time
  #asked = 0; // of several answers on their way, the last one counts

  constructor(root) {
    this.root = root;
    this.kind = root.dataset.kind;
    this.chapter = Number(root.dataset.chapter);
    this.options = JSON.parse(root.dataset.options ?? "{}");
    this.static = root.querySelector(".live-static");
    const items = root.querySelectorAll(".live-operations > li");
    this.given = Array.from(items, (item) => item.textContent.trim());
    this.#lines = [...this.given];
    this.id = `live-${++count}`;
    this.#build();
    this.#show();
  }

  close() {
    this.#asked++; // what is still on its way is for nobody
  }

  #build() {
    this.static.hidden = true;
    const act = (work) => () => work().catch((error) => this.#failed(error));
    const go = (label, name, to) =>
      button(label, act(() => this.#go(to())), { "aria-label": name, title: name });
    this.startButton = go("⏮", "To the start", () => 0);
    this.backButton = go("◀ Back", "One step back", () => this.#at - 1);
    this.forwardButton = go("Forward ▶", "One step forward", () => this.#at + 1);
    this.endButton = go("⏭", "To the end", () => this.#lines.length);
    this.resetButton = button("Reset", () => this.#reset());
    this.copyButton = button("Copy as a test", act(() => this.#copy()));
    this.predict = element("input", { type: "checkbox" });
    this.revealButton = button("Reveal", () => this.#reveal(), {
      class: "live-reveal",
      hidden: true,
    });

    this.status = element("p", { class: "live-status", role: "status" });
    this.picture = element("div", {
      class: "live-picture",
      role: "group",
      tabindex: 0,
      "aria-label": "The picture",
      hidden: true,
    });
    this.sizes = element("p", { class: "live-sizes" });
    this.words = element("pre", { class: "live-words", tabindex: 0 });
    this.wordsBox = element(
      "details",
      { hidden: true },
      element("summary", {}, "The same as text"),
      this.words,
    );

    this.list = element("ol", { class: "live-list" });
    this.input = element("input", {
      type: "text",
      id: `${this.id}-line`,
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      onfocus: () => this.#warm(),
      onkeydown: (event) => {
        if (event.key === "Enter" && !event.isComposing) act(() => this.#add())();
      },
    });
    this.usage = element("div", { class: "live-buttons live-usage" });
    this.all = element("textarea", {
      rows: 6,
      spellcheck: "false",
      "aria-label": "All operations, one on each line",
    });
    const whole = element(
      "details",
      { ontoggle: () => (this.all.value = this.#lines.join("\n")) },
      element("summary", {}, "Edit the whole list"),
      this.all,
      element(
        "div",
        { class: "live-buttons" },
        button("Use this list", act(() => this.#replace())),
      ),
    );

    this.root.append(
      element(
        "div",
        { class: "live-buttons" },
        this.startButton,
        this.backButton,
        this.forwardButton,
        this.endButton,
        this.revealButton,
      ),
      element("label", { class: "live-predict" }, this.predict, " Predict, then reveal"),
      this.status,
      this.picture,
      this.sizes,
      this.wordsBox,
      this.list,
      element(
        "div",
        { class: "live-line" },
        element("label", { for: this.input.id }, "Type an operation"),
        this.input,
        button("Add", act(() => this.#add())),
      ),
      this.usage,
      whole,
      element("div", { class: "live-buttons" }, this.resetButton, this.copyButton),
    );
  }

  // Go to a step. Forward, a reader who predicts sees the picture only when asked for.
  async #go(to) {
    await this.#play();
    const next = Math.max(0, Math.min(to, this.#lines.length));
    this.#isHidden = this.predict.checked && next > this.#at;
    this.#at = next;
    this.#show();
  }

  #reveal() {
    this.#isHidden = false;
    this.#show();
    this.forwardButton.focus(); // the button that had the focus is gone
  }

  // A line goes behind the step that is shown.
  async #add() {
    const line = this.input.value.trim();
    if (!line) return;
    const lines = this.#lines.toSpliced(this.#at, 0, line);
    if (await this.#use(lines, this.#at + 1)) this.input.value = "";
  }

  async #remove(index) {
    const lines = this.#lines.toSpliced(index, 1);
    await this.#use(lines, this.#at > index ? this.#at - 1 : this.#at);
    this.input.focus();
  }

  async #replace() {
    const lines = this.all.value.split("\n").map((line) => line.trim());
    const kept = lines.filter((line) => line);
    await this.#use(kept, kept.length);
  }

  // Play other operations: whether they are the list now. If Python cannot read a line,
  // the list stays as it was.
  async #use(lines, at) {
    const said = await this.#ask(lines);
    if (!said) return false;
    const bad = said.steps.find((step) => step.is_bad);
    if (bad) {
      this.status.textContent = `✗ not added: ${bad.line}: ${bad.error}`;
      this.status.dataset.status = "refused";
      return false;
    }
    this.#lines = lines;
    this.#take(said);
    this.#isHidden = this.predict.checked && at > this.#at;
    this.#at = at;
    this.all.value = lines.join("\n");
    this.#show();
    return true;
  }

  #reset() {
    const isChanged = this.#lines.join("\n") !== this.given.join("\n");
    if (isChanged && !confirm("Throw your operations away and begin again?")) return;
    this.#lines = [...this.given];
    this.#steps = null;
    this.#at = 0;
    this.#isHidden = false;
    this.#asked++;
    this.all.value = this.#lines.join("\n");
    this.input.value = "";
    this.#show();
  }

  async #copy() {
    await this.#play();
    await navigator.clipboard.writeText(this.#test);
    this.status.textContent = "✓ copied: a test for pytest that repeats all operations";
  }

  // Python's answer to the list as it is.
  async #play() {
    if (this.#steps) return;
    this.#playing ??= this.#ask(this.#lines).finally(() => (this.#playing = null));
    const said = await this.#playing;
    if (said && !this.#steps) this.#take(said);
  }

  #take(said) {
    this.#steps = said.steps;
    this.#test = said.test;
    this.#showUsage(said.usage);
  }

  // What Python says to these operations; null if something else was asked meanwhile.
  async #ask(operations) {
    const number = ++this.#asked;
    const slow = setTimeout(() => {
      this.status.textContent = `still loading; on your machine: ${this.#command()}`;
    }, SLOW_LOAD_MS);
    if (!this.#steps) this.status.textContent = "loading Python, once for this page …";
    this.root.setAttribute("aria-busy", true);
    try {
      const [runtime, picture] = await Promise.all([this.#runtime(), loadPicture()]);
      this.draw = picture;
      const payload = { options: this.options, operations };
      const said = await runtime.python(`${this.kind}.run`, payload);
      return number === this.#asked ? said : null;
    } finally {
      clearTimeout(slow);
      if (number === this.#asked) this.root.setAttribute("aria-busy", false);
    }
  }

  async #runtime() {
    const { pageRuntime } = await import("./runtime.js");
    return pageRuntime(this.chapter);
  }

  // Whoever is in the input will soon need Python.
  #warm() {
    this.#play().then(
      () => this.#steps && this.#at === 0 && this.#show(),
      () => {}, // the next try says it
    );
  }

  #show() {
    const step = this.#steps?.[this.#at];
    delete this.status.dataset.status;
    this.#showList();
    this.startButton.disabled = this.backButton.disabled = this.#at === 0;
    const isEnd = this.#at === this.#lines.length;
    this.forwardButton.disabled = this.endButton.disabled = isEnd;
    this.revealButton.hidden = !this.#isHidden;
    const isShown = Boolean(step) && !this.#isHidden;
    this.picture.hidden = this.sizes.hidden = this.wordsBox.hidden = !isShown;
    const where = `Step ${this.#at} of ${this.#lines.length}`;
    if (!step) {
      this.status.textContent = `${where}: nothing is done yet. Go forward.`;
      return;
    }
    const line = step.line ? `${where}: ${step.line}.` : `${where}.`;
    if (this.#isHidden) {
      this.status.textContent = `${line} What will there be? Say it, then press Reveal.`;
      return;
    }
    const said = step.error ? `✗ refused: ${step.error}` : step.says;
    this.status.textContent = `${line} ${said}`;
    if (step.error) this.status.dataset.status = "refused";
    this.picture.replaceChildren(
      ...this.draw(step, { id: this.id, onPick: (typed) => this.#pick(typed) }),
    );
    this.sizes.textContent = step.sizes.join(", ");
    this.words.textContent = `${step.text}\n\n${step.sizes.join(", ")}`;
  }

  #showList() {
    const hadFocus = this.list.contains(document.activeElement);
    this.list.replaceChildren(
      ...this.#lines.map((line, index) => {
        const isNow = index === this.#at - 1;
        const jump = button(
          line,
          () => this.#go(index + 1).catch((error) => this.#failed(error)),
          { class: "live-jump", "aria-current": isNow ? "step" : null },
        );
        const remove = button(
          "✕",
          () => this.#remove(index).catch((error) => this.#failed(error)),
          { class: "live-remove", "aria-label": `Remove ${line}`, title: "Remove" },
        );
        return element("li", {}, jump, remove);
      }),
    );
    if (hadFocus) this.list.querySelector("[aria-current]")?.focus();
  }

  #showUsage(usage) {
    if (this.usage.childElementCount) return;
    this.usage.replaceChildren(
      ...usage.map(({ name, usage: form, about }) =>
        button(name, () => this.#begin(name), { title: `${form}: ${about}` }),
      ),
    );
    const [first] = usage;
    this.input.placeholder = first.usage;
  }

  // A button of an operation: its name, and the tokens that are there already.
  #begin(name) {
    const [, ...rest] = this.input.value.trim().split(/\s+/);
    this.input.value = [name, ...rest].join(" ") + (rest.length ? "" : " ");
    this.input.focus();
  }

  // A node was picked: its tokens go behind the operation's name.
  #pick(typed) {
    const [name] = this.input.value.trim().split(/\s+/);
    this.input.value = `${/^[a-z]/.test(name) ? name : "match"} ${typed}`;
    this.input.focus();
  }

  #failed(error) {
    this.root.setAttribute("aria-busy", false);
    if (error.name === "Stopped") return;
    const why = error.name === "NoRuntime" ? error.message : `not drawn: ${error.message}`;
    const command = element("code", {}, this.#command());
    this.status.dataset.status = "refused";
    this.status.replaceChildren(`? ${why}. On your machine: `, command);
    if (!this.#steps) this.static.hidden = false; // it can at least be read
  }

  #command() {
    const options = Object.entries(this.options).map(([key, value]) => `${key}=${value}`);
    const lines = this.#lines.map((line) => `'${line}'`);
    const words = [this.chapter, this.kind, ...options, ...lines];
    return `.venv/bin/python tools/play.py ${words.join(" ")}`;
  }
}

async function loadPicture() {
  return (await import("./live_picture.js")).picture;
}

let drawings = [];

// Also called after navigation that keeps scripts and replaces the body.
async function start() {
  for (const drawing of drawings) drawing.close();
  if (drawings.length) (await import("./runtime.js")).leavePage();
  const found = document.querySelectorAll(".live[data-kind]:not([data-ready])");
  drawings = Array.from(found, (root) => {
    root.dataset.ready = "";
    return new Live(root);
  });
}

if (window.document$?.subscribe) window.document$.subscribe(start);
else start();
