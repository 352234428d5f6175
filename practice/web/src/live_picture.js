// A step of a live drawing as a picture: a tree as SVG, tables as tables.

import { hierarchy, tree as treeLayout } from "d3-hierarchy";
import { element } from "./dom.js";

// As in live/play.py: a change has a sign and a word, and a colour besides.
const SIGNS = { new: "+", changed: "~", used: "•", gone: "−" };
const SVG = "http://www.w3.org/2000/svg";
const CHAR = 8.5; // pixels
const LINE = 18;
const PAD = 10;
const GAP = 16;
const LEVEL = 30;

export function picture(step, { id, onPick }) {
  const parts = [];
  if (step.tree) parts.push(drawTree(step.tree, { id, onPick }));
  parts.push(...step.tables.map(drawTable));
  return parts;
}

function drawTree(data, { id, onPick }) {
  const root = hierarchy(data);
  const tops = [0];
  root.each((node) => {
    node.lines = linesOf(node.data);
    node.width = Math.max(...node.lines.map((line) => line.length)) * CHAR + 2 * PAD;
    node.height_ = node.lines.length * LINE + PAD;
    tops[node.depth + 1] = Math.max(tops[node.depth + 1] ?? 0, node.height_ + LEVEL);
  });
  for (let depth = 1; depth < tops.length; depth++) tops[depth] += tops[depth - 1];
  // in units of pixels: how far apart two neighbours must stand
  treeLayout()
    .nodeSize([1, 1])
    .separation((a, b) => (a.width + b.width) / 2 + GAP)(root);

  const nodes = [];
  root.eachBefore((node) => nodes.push(node)); // in the order of reading
  const left = Math.min(...nodes.map((node) => node.x - node.width / 2)) - 3;
  const right = Math.max(...nodes.map((node) => node.x + node.width / 2)) + 3;
  const bottom = Math.max(...nodes.map((n) => tops[n.depth] + n.height_)) + 3;
  const svg = make("svg", {
    class: "live-tree",
    viewBox: `${left} -3 ${right - left} ${bottom + 3}`,
    width: right - left,
    height: bottom + 3,
    role: "group",
    "aria-labelledby": `${id}-tree`,
  });
  const title = make("title", { id: `${id}-tree` });
  title.textContent = "The tree; pick a node to type its tokens";
  svg.append(title);
  for (const { source, target } of root.links()) {
    const from = tops[source.depth] + source.height_;
    const d = `M${source.x} ${from} L${target.x} ${tops[target.depth]}`;
    svg.append(make("path", { class: `live-edge ${target.data.mark}`, d }));
  }
  svg.append(...nodes.map((node) => drawNode(node, tops[node.depth], onPick)));
  return svg;
}

function drawNode(node, top, onPick) {
  const { mark, locked, typed } = node.data;
  const group = make("g", { class: `live-node ${mark} ${locked ? "locked" : ""}` });
  group.append(
    make("rect", {
      x: node.x - node.width / 2,
      y: top,
      width: node.width,
      height: node.height_,
      rx: 5,
    }),
  );
  node.lines.forEach((line, index) => {
    const y = top + PAD / 2 + (index + 0.75) * LINE;
    const text = make("text", { x: node.x, y, class: index ? "live-fact" : "" });
    text.textContent = line;
    group.append(text);
  });
  if (typed && mark !== "gone") pickable(group, node.lines, () => onPick(typed));
  return group;
}

function pickable(group, lines, pick) {
  group.setAttribute("role", "button");
  group.setAttribute("tabindex", "0");
  group.setAttribute("aria-label", lines.join(", "));
  group.addEventListener("click", pick);
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    pick();
  });
}

function linesOf({ title, facts, stamp, mark }) {
  const used = stamp ? [`used at ${stamp}`] : [];
  return [title, ...facts, ...used, ...said(mark)];
}

function drawTable({ caption, head, rows }) {
  const cells = (tag, texts) => texts.map((text) => element(tag, {}, text));
  return element(
    "table",
    { class: "live-table" },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...cells("th", [...head, "change"]))),
    element(
      "tbody",
      {},
      ...rows.map((row) =>
        element(
          "tr",
          { class: row.mark || null },
          ...cells("td", [...row.cells, said(row.mark).join()]),
        ),
      ),
    ),
  );
}

function said(mark) {
  return mark ? [`${SIGNS[mark]} ${mark}`] : [];
}

function make(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
