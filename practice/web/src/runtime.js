// Python for a page: one worker that answers, and one that waits to replace it.
//
//   const runtime = createRuntime({ base, chapter, limits });
//   const result = await runtime.run(problem, answer, { onTest, onPlan });
//   const value = await runtime.python("radix.run", { operations: [] });
//   runtime.dispose();
//
// `base` is the URL of the built files, `problem` an entry of chapters/NN/problems.json,
// a result what `practice/judge.py check --json` prints. `onPlan(tests)` gets names and
// `onTest(record, index)` each record as soon as it is there. A test that takes longer
// than `limits.testSeconds` is stopped: its worker is ended and the spare takes over.
//
// `run` and `python` reject with an Error whose `name` is NoRuntime (Python cannot be
// loaded, the message says what to do), TimeOut, Stopped (`stop` or `dispose` was
// called), or, from `python`, the type of the exception in Python.

const LIMITS = { testSeconds: 10, loadSeconds: 90 };
const GRACE_MS = 100; // for a message that is on its way when the time is up

export function createRuntime(options) {
  return new Runtime(options);
}

// The runtime that everything on a page shares; another chapter's replaces it.
let shared = null;

export function pageRuntime(chapter) {
  if (shared?.chapter !== chapter || shared.isDisposed) {
    shared?.dispose();
    shared = createRuntime({ base: new URL("./", import.meta.url), chapter });
  }
  return shared;
}

export function leavePage() {
  shared?.dispose();
  shared = null;
}

addEventListener("pagehide", leavePage);

class Runtime {
  #base;
  #limits;
  #active = null;
  #spare = null;
  #queue = Promise.resolve();

  constructor({ base, chapter, limits = {} }) {
    this.#base = new URL(base, location.href);
    this.#limits = { ...LIMITS, ...limits };
    this.chapter = chapter;
    this.isDisposed = false;
  }

  // Start loading Python; rejects with NoRuntime when that fails.
  warm() {
    return this.#start().ready;
  }

  // Whether a worker waits to take over at once.
  get hasSpare() {
    return Boolean(this.#spare?.isReady);
  }

  run(problem, answer, { onPlan = () => {}, onTest = () => {} } = {}) {
    const handlers = { onPlan, onTest };
    return this.#inTurn(() => this.#grade(problem, answer, handlers));
  }

  python(name, payload) {
    return this.#inTurn(() => this.#call(name, JSON.stringify(payload)));
  }

  // End what is running; whoever waits for it gets Stopped.
  stop() {
    if (this.#active?.isBusy) this.#replace("Stopped", "stopped");
  }

  dispose() {
    this.isDisposed = true;
    for (const python of [this.#active, this.#spare]) {
      python?.end(failure("Stopped", "the page was left"));
    }
    this.#active = this.#spare = null;
  }

  // One request at a time, in the order in which they were made.
  #inTurn(work) {
    const done = this.#queue.then(work);
    this.#queue = done.catch(() => {});
    return done;
  }

  async #grade(problem, answer, { onPlan, onTest }) {
    const python = this.#start();
    await python.ready;
    this.#limitTime(python);
    const run = new Run(problem);
    const asked = JSON.stringify({ ...problem, answer });
    let done;
    try {
      done = await python.request({ type: "grade", problem: asked }, (text) => {
        const event = JSON.parse(text);
        run.take(event);
        if (event.event === "start") this.#limitTime(python);
        if (event.event === "plan") onPlan(event.tests);
        if (event.event === "test") onTest(event.record, event.index);
        return event.event === "result" ? event : undefined;
      });
    } catch (error) {
      if (error.name === "TimeOut") return run.stopped(error.message);
      if (error.name === "Died") return run.died(error.message);
      throw error;
    }
    if (!done.reusable) this.#replace();
    return done.result;
  }

  async #call(name, payload) {
    const python = this.#start();
    await python.ready;
    this.#limitTime(python);
    const done = await python.request({ type: "call", name, payload }, JSON.parse);
    if ("value" in done) return done.value;
    throw failure(done.error, done.message);
  }

  #limitTime(python) {
    const seconds = this.#limits.testSeconds;
    python.limit(seconds, () =>
      this.#replace("TimeOut", `did not end within ${seconds} s`),
    );
  }

  #start() {
    if (this.isDisposed) throw failure("Stopped", "the page was left");
    this.#active ??= this.#python();
    return this.#active;
  }

  // The spare takes over; what the old one was doing ends with this error.
  #replace(name, message) {
    const old = this.#active;
    this.#active = this.#spare;
    this.#spare = null;
    old.end(failure(name, message));
    this.#start();
    this.#refill();
  }

  // A spare is made when the first is ready: until then it would only take its time.
  #refill() {
    if (this.#active?.isReady) this.#spare ??= this.#python();
  }

  #python() {
    const python = new Python(this.#base, this.chapter, this.#limits.loadSeconds);
    python.onDeath = (message) => this.#replace("Died", message);
    python.ready.then(
      () => this.#refill(),
      () => {
        // the next try begins anew
        if (this.#active === python) this.#active = null;
        if (this.#spare === python) this.#spare = null;
      },
    );
    return python;
  }
}

// One worker. `ready` settles when its Python can be used, or cannot be had.
class Python {
  #worker;
  #port;
  #timer = null;
  #request = null;
  #isReady; // resolve and reject of `ready`

  constructor(base, chapter, loadSeconds) {
    this.isReady = false;
    this.ready = new Promise((resolve, reject) => {
      this.#isReady = { resolve, reject };
    });
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    this.#port.onmessage = ({ data }) => this.#take(data);
    this.#worker = new Worker(new URL("worker.js", base), { type: "module" });
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.#broken(event.message ?? "worker.js cannot be loaded");
    };
    this.#worker.postMessage({ port: port2, chapter }, [port2]);
    this.limit(loadSeconds, () => this.#broken(`not there after ${loadSeconds} s`));
  }

  get isBusy() {
    return this.#request !== null;
  }

  // Send one request. `take` gets every answer to it; the first thing it returns that
  // is not undefined is the result.
  request(message, take) {
    return new Promise((resolve, reject) => {
      this.#request = { take, resolve, reject };
      this.#port.postMessage(message);
    });
  }

  // Call `act` in so many seconds, unless a new limit is set or the request ends. If
  // the page itself was busy meanwhile, what the worker sent in time comes first.
  limit(seconds, act) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = setTimeout(act, GRACE_MS);
    }, seconds * 1000);
  }

  end(error) {
    clearTimeout(this.#timer);
    this.#worker.terminate();
    this.#port.close();
    this.#isReady.reject(error);
    this.#request?.reject(error);
    this.#request = null;
  }

  #broken(message) {
    if (this.isReady) this.onDeath(message);
    else this.end(failure("NoRuntime", `Python cannot be loaded here: ${message}`));
  }

  #take(message) {
    if (message.type === "ready") {
      clearTimeout(this.#timer);
      this.isReady = true;
      this.#isReady.resolve();
    } else if (message.type === "broken") {
      this.#broken(message.message);
    } else {
      const { take, resolve } = this.#request;
      const result = take(message.text);
      if (result === undefined) return;
      clearTimeout(this.#timer);
      this.#request = null;
      resolve(result);
    }
  }
}

// What is known of a run while it runs: enough for a result if it never ends. The words
// are those of the local judge (practice/record.py).
class Run {
  #problem;
  #tests = [];
  #step = null; // what runs: -1 the loading of the answer, then the tests
  #doing = "starting";
  #printed = "";
  #found = null; // a failure that is being shrunk

  constructor(problem) {
    this.#problem = problem;
  }

  take(event) {
    if (event.event === "plan") {
      this.#tests = event.tests.map(({ name }) => notRun(name));
    } else if (event.event === "start") {
      this.#step = event.index;
      this.#doing = event.name;
      this.#printed = "";
      this.#found = null;
    } else if (event.event === "output") {
      this.#printed += event.text;
    } else if (event.event === "found") {
      this.#found = event;
    } else if (event.event === "test") {
      this.#tests[event.index] = event.record;
    }
  }

  stopped(problem) {
    if (!this.#tests.length) {
      return this.#result("no result", "the tests of this problem did not start in time");
    }
    this.#close("timed out", `${problem}: look for a loop that nothing makes end`);
    return this.#result("rejected", `${this.#doing}: ${problem}`);
  }

  died(problem) {
    this.#close("error", problem);
    return this.#result("no result", `${this.#doing}: ${problem}`);
  }

  // Say of the running test how it ended; a failure that it met goes first.
  #close(status, message) {
    const test = this.#tests[this.#step];
    if (test?.status !== "not run") return;
    Object.assign(test, { status, message, output: this.#printed });
    if (this.#found) {
      const { failure, message } = this.#found;
      Object.assign(test, { status: "failed", message, failure });
    }
  }

  #result(status, message) {
    return {
      version: 1,
      slug: this.#problem.slug,
      status,
      message,
      checks: { planned: this.#problem.checks, executed: 0 },
      tests: this.#tests,
      output: this.#step === -1 ? this.#printed : "",
    };
  }
}

function notRun(name) {
  return { name, status: "not run", time_ms: 0, message: "", output: "", failure: null };
}

function failure(name, message) {
  const error = new Error(message);
  error.name = name;
  return error;
}
