// Run a script of this folder in Pyodide under Node: `node run.mjs SCRIPT WORK TOOLS`.
// WORK is a folder it reads and writes, TOOLS holds the wheels that it imports.
import fs from "node:fs";
import { loadPyodide } from "pyodide";

const [script, work, tools] = process.argv.slice(2);
const env = {
  HOME: "/home/pyodide",
  SOURCE_DATE_EPOCH: "1577836800", // makes archives and bytecode reproducible
};
const python = await loadPyodide({ env });
python.FS.mkdirTree("/work");
python.FS.mkdirTree("/tools");
python.mountNodeFS("/work", work);
python.mountNodeFS("/tools", tools);
const wheels = fs.readdirSync(tools).map((wheel) => `/tools/${wheel}`);
python.runPython(`import sys; sys.path[:0] = ${JSON.stringify(wheels)}`);
const source = fs.readFileSync(new URL(script, import.meta.url), "utf8");
try {
  python.runPython(source, { filename: script });
} catch (error) {
  console.error(error.message); // Node would print a megabyte of Pyodide's source
  process.exit(1);
}
