// The worker of the pages: Python, one chapter's stage of minisgl, and the judge.
//
// The page sends {port, chapter} once and talks through the port from then on; the
// worker keeps it to itself, so code in Python cannot write to it.
//
//   page                              worker
//   {type: "grade", problem: JSON}    {type: "answer", text: JSON}, one for every event
//   {type: "call", name, payload}     {type: "answer", text: JSON}
//                                     {type: "ready"}, once, when Python can be used
//                                     {type: "broken", message}, when it no longer can

const BASE = new URL("./", import.meta.url);
const RUNTIME = new URL("runtime/", BASE).href;
const APP = "/home/pyodide/app";
const MODULES = ["grading.py", "in_browser.py", "radix_world.py"];

self.onmessage = async ({ data: { port, chapter } }) => {
  self.onmessage = null;
  try {
    const python = await Promise.race([load(chapter), unheardFailure()]);
    port.onmessage = ({ data }) => answer(python, port, data);
    port.postMessage({ type: "ready" });
  } catch (error) {
    port.postMessage({ type: "broken", message: lastLine(error) });
  }
};

// Of WebAssembly that cannot be had Pyodide only warns, and waits for ever.
function unheardFailure() {
  return new Promise((_, reject) => {
    const { warn } = console;
    console.warn = (...said) => {
      warn.apply(console, said);
      const text = String(said[0]);
      if (text.includes("wasm instantiation failed")) reject(new Error(text));
    };
  });
}

async function answer(python, port, request) {
  const say = (text) => port.postMessage({ type: "answer", text });
  try {
    if (request.type === "grade") {
      python.module.grade(request.problem, say);
    } else {
      await python.fetchLive(request.name.split(".")[0]);
      say(python.module.call(request.name, request.payload));
    }
  } catch (error) {
    port.postMessage({ type: "broken", message: explained(error) });
  }
}

// The judge catches what an answer raises. What arrives here ended Python itself, or is
// a mistake in the tests.
function explained(error) {
  const line = lastLine(error);
  if (error?.type) return `the tests of this problem broke: ${line}`;
  if (/call stack/i.test(line)) {
    return "your answer crashed the interpreter, as recursion too deep does";
  }
  if (/terminated with exit/i.test(line)) return "your answer ended the interpreter";
  return `your answer crashed the interpreter (${line})`;
}

async function load(chapter) {
  const stage = `minisgl-stage${String(chapter).padStart(2, "0")}`;
  const sources = MODULES.map((name) => text(`python/${name}`));
  const { loadPyodide } = await import(`${RUNTIME}pyodide.mjs`);
  const pyodide = await loadPyodide({
    indexURL: RUNTIME,
    packages: [stage],
    env: { HOME: "/home/pyodide", PYTHONHASHSEED: "0" },
    stdout: () => {},
    stderr: () => {},
  });
  pyodide.FS.mkdirTree(`${APP}/live`);
  (await Promise.all(sources)).forEach((source, i) => {
    pyodide.FS.writeFile(`${APP}/${MODULES[i]}`, source);
  });
  pyodide.runPython(`import sys; sys.path.insert(0, "${APP}")`);

  await importEngine(pyodide, stage);
  const module = pyodide.pyimport("in_browser");
  module.prepare();
  return { module, fetchLive: (name) => fetchLive(pyodide, name) };
}

// Bytecode of another Python, or a wheel that is not the one of the lock file, is found
// out at the import; the plain wheel beside it does for any Python.
async function importEngine(pyodide, stage) {
  try {
    pyodide.pyimport("minisgl.torch_free");
  } catch {
    await pyodide.loadPackage(await plainWheel(stage));
    pyodide.pyimport("minisgl.torch_free");
  }
}

async function plainWheel(stage) {
  const lock = JSON.parse(await text("runtime/pyodide-lock.json"));
  const { version } = lock.packages[stage];
  return `${RUNTIME}${stage.replace("-", "_")}-${version}-py3-none-any.whl`;
}

// A driver of live drawings, and what all of them import. A module that cannot be had is
// an ImportError of the call.
async function fetchLive(pyodide, driver) {
  await Promise.all(["play", driver].map((name) => fetchModule(pyodide, name)));
}

async function fetchModule(pyodide, name) {
  const path = `${APP}/live/${name}.py`;
  if (pyodide.FS.analyzePath(path).exists) return;
  const source = await text(`python/live/${name}.py`).catch(() => null);
  if (source !== null) pyodide.FS.writeFile(path, source);
}

async function text(path) {
  const response = await fetch(new URL(path, BASE));
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.text();
}

function lastLine(error) {
  return String(error?.message ?? error).trim().split("\n").pop();
}
