// The editor: CodeMirror for Python, loaded when a reader first wants to write.

import { indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { indentUnit } from "@codemirror/language";
import { unifiedMergeView } from "@codemirror/merge";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import { oneDark } from "@codemirror/theme-one-dark";
import { EditorView, keymap, ViewPlugin } from "@codemirror/view";
import { basicSetup } from "codemirror";

const common = [basicSetup, python(), indentUnit.of("    ")];

// An editor in `parent`. Esc, then Tab, leaves it: CodeMirror's own rule.
export function createEditor({ parent, text, label, describedBy, onChange, onRun }) {
  const run = { key: "Mod-Enter", run: () => (onRun(), true) };
  const attributes = { "aria-label": label, "aria-describedby": describedBy };
  const view = new EditorView({
    parent,
    doc: text,
    extensions: [
      Prec.highest(keymap.of([run])),
      common,
      keymap.of([indentWithTab]),
      EditorView.contentAttributes.of(attributes),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) onChange(update.state.doc.toString());
      }),
      colours(),
    ],
  });
  return {
    focus: () => view.focus(),
    text: () => view.state.doc.toString(),
    replace: (insert) =>
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert } }),
    close: () => view.destroy(),
  };
}

// `solution`, with what differs from `answer` marked; read only.
export function showDifference({ parent, answer, solution, label }) {
  return new EditorView({
    parent,
    doc: solution,
    extensions: [
      common,
      EditorState.readOnly.of(true),
      EditorView.contentAttributes.of({ "aria-label": label }),
      unifiedMergeView({ original: answer, mergeControls: false }),
      colours(),
    ],
  });
}

// Dark where the page is dark, also when the reader switches.
const theme = new Compartment();
const scheme = () => (document.body.dataset.mdColorScheme === "slate" ? oneDark : []);
const followScheme = ViewPlugin.define((view) => {
  const observer = new MutationObserver(() =>
    view.dispatch({ effects: theme.reconfigure(scheme()) }),
  );
  const watch = { attributes: true, attributeFilter: ["data-md-color-scheme"] };
  observer.observe(document.body, watch);
  return { destroy: () => observer.disconnect() };
});
const colours = () => [theme.of(scheme()), followScheme];
