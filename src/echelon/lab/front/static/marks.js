// What stands at the cells themselves: the step that a cell belongs to, what does not fit, the traceback of a run.
import { make } from "./parts.js";

const KINDS = {
  skip: "does not run", imports: "every step", functions: "every step", "pipeline-parameters": "parameters", "pipeline-metrics": "metrics",
};

export class Marks {
  constructor() { this.known = new WeakMap(); }

  // `numbers` by the cell's id, `views` by number, `problems` by number, `failures` by the cell's id. Cells whose mark is the same are not touched.
  update(notebook, numbers, views, problems, failures) {
    for (const cell of notebook.widgets) {
      const number = numbers.get(cell.model.id);
      const step = label(views.get(number));
      const notes = [...(problems.get(number) || []), ...(failures.get(cell.model.id) || [])];
      const key = JSON.stringify([step, notes]);
      if (this.known.get(cell) === key) continue;
      if (!this.known.has(cell) && !step && !notes.length) continue;
      this.known.set(cell, key);
      // The style sheet shows it: an element before the others would be in the way of those that JupyterLab puts in later.
      if (step) cell.node.dataset.echelonStep = step;
      else delete cell.node.dataset.echelonStep;
      for (const old of cell.node.querySelectorAll(":scope > .echelon-notes")) old.remove();
      if (notes.length) cell.node.append(make("div", { className: "echelon-notes" }, ...notes.map(note)));
    }
  }
}

function label(view) {
  if (!view) return "";
  const { kind } = view.choice;
  if (kind) return KINDS[kind];  // also while another cell cannot be read
  return view.everywhere ? "every step" : view.steps.join(", ");
}

function note(given) {
  const where = given.line ? `line ${given.line}: ` : "";
  return make("div", { className: "echelon-note", role: "alert" },
    make("strong", {}, `${given.title ? `${given.title}: ` : ""}${where}${given.text}`),
    given.hint ? make("p", {}, given.hint) : null,
    given.traceback ? make("pre", { tabIndex: 0 }, given.traceback) : null);
}
