// The form for the selected cell. What is chosen becomes tags at once; the server says which.
import { labelled, make } from "./parts.js";

const KINDS = [
  ["", "as the one before"],
  ["step", "is a step"],
  ["imports", "imports: runs in every step"],
  ["functions", "functions: runs in every step"],
  ["pipeline-parameters", "parameters"],
  ["pipeline-metrics", "metrics"],
  ["skip", "does not run"],
];
const STRATEGIES = [
  ["", "one process"],
  ["auto", "workers, by the imports"],
  ["torch", "workers, PyTorch"],
  ["mirrored", "workers, TensorFlow", "MultiWorkerMirroredStrategy"],
  ["parameter-server", "with parameter servers", "TensorFlow's ParameterServerStrategy"],
];

const options = given => given.map(([value, text, title = ""]) => make("option", { value, title }, text));
const count = min => make("input", { type: "number", min, step: 1 });
const number = field => (field.value === "" ? null : Number(field.value));

export class TagForm {
  // `chosen(choice, cell)` is called with what the form says, after every change.
  constructor(chosen) {
    this.chosen = chosen;
    this.cell = null;  // the model of the cell that the form is about
    this.was = new Map();  // what was put into each field
    this.kind = make("select", {}, ...options(KINDS));
    this.name = make("input", { type: "text", spellcheck: false, list: "echelon-steps", placeholder: "such as train" });
    this.known = make("datalist", { id: "echelon-steps" });
    this.after = make("div", { className: "echelon-checks" });
    this.strategy = make("select", {}, ...options(STRATEGIES));
    this.workers = count(1);
    this.servers = count(1);
    this.gpus = count(0);
    this.cpu = make("input", { type: "text", placeholder: "such as 2" });
    this.memory = make("input", { type: "text", placeholder: "such as 4Gi" });
    this.title = make("h3", {}, "Cell");
    this.tags = make("p", { className: "echelon-quiet" });
    this.trouble = make("p", { className: "echelon-trouble", role: "alert", hidden: true });
    this.ofStep = make("div", {},
      make("fieldset", {}, make("legend", {}, "After"), this.after),
      labelled("Runs as", this.strategy),
      this.ofWorkers = labelled("Workers", this.workers),
      this.ofServers = labelled("Parameter servers", this.servers),
      make("p", { className: "echelon-quiet" }, "Each worker has at most:"),
      labelled("GPUs", this.gpus), labelled("CPUs", this.cpu), labelled("Memory", this.memory));
    this.ofName = labelled("Step", this.name, this.known);
    this.node = make("section", { "aria-label": "Selected cell" },
      this.title, labelled("This cell", this.kind), this.ofName, this.ofStep, this.tags, this.trouble);
    this.node.addEventListener("change", event => this.changed(event.target));
    this.none();
  }

  none() {
    this.turnTo(null);
    this.shown = "";
    this.title.textContent = "Select a code cell to tag it.";
    for (const child of this.node.children) child.hidden = child !== this.title;
  }

  // Another cell was selected: what was typed for the one before still counts, though the field was not left.
  turnTo(cell) {
    if (cell === this.cell) return;
    this.tell("");
    if (this.cell && this.isChanged()) this.send();
    this.cell = cell;
  }

  isChanged() { return [...this.was].some(([field, value]) => field.value !== value); }

  // Show a cell; what is being typed is left alone unless another cell was selected.
  show(view, steps, cell) {
    const same = this.cell === cell && this.node.contains(document.activeElement);
    this.turnTo(cell);
    const others = [...new Set([...steps.filter(name => !view.choice.steps.includes(name)), ...view.choice.after])];
    const key = JSON.stringify([view.number, view.choice, others, view.steps, view.tags]);
    if (key === this.shown || (same && this.isChanged())) return;
    const typing = same ? document.activeElement : null;
    this.shown = key;
    for (const child of this.node.children) child.hidden = child === this.trouble && !child.textContent;
    const { choice } = view;
    this.title.textContent = `Cell ${view.number}${told(view)}`;
    const put = (field, value) => {
      if (field !== typing) field.value = value ?? "";
      this.was.set(field, String(value ?? ""));
    };
    put(this.kind, choice.kind ?? (choice.steps.length ? "step" : ""));
    put(this.name, choice.steps.join(" "));
    put(this.strategy, choice.distribute);
    put(this.workers, choice.workers);
    put(this.servers, choice.parameter_servers);
    put(this.gpus, choice.gpus);
    put(this.cpu, choice.cpu);
    put(this.memory, choice.memory);
    this.known.replaceChildren(...steps.map(value => make("option", { value })));
    this.showOthers(others, choice.after);
    if (!same) this.after.scrollTop = this.after.querySelector(":checked")?.offsetTop ?? 0;  // of many, the chosen one
    this.tags.textContent = view.tags.length ? `Tags: ${view.tags.join(" ")}` : "No tags.";
    this.arrange();
  }

  showOthers(others, after) {
    const at = this.after.contains(document.activeElement) ? document.activeElement.value : null;
    this.after.replaceChildren(...others.map(value => {
      const box = make("input", { type: "checkbox", value, checked: after.includes(value) });
      return make("label", {}, box, value);
    }));
    if (!others.length) this.after.append(make("span", { className: "echelon-quiet" }, "There is no other step."));
    if (at !== null) [...this.boxes()].find(box => box.value === at)?.focus();
  }

  boxes() { return this.after.querySelectorAll("input"); }

  arrange() {
    const kind = this.kind.value;
    this.ofName.hidden = kind !== "step";
    this.ofStep.hidden = kind !== "step";
    this.ofWorkers.hidden = this.strategy.value === "";
    this.ofServers.hidden = this.strategy.value !== "parameter-server";
  }

  changed(field) {
    this.arrange();
    if (field === this.kind && this.kind.value === "step" && !this.name.value.trim()) this.name.focus();
    this.send();
  }

  send() {
    const kind = this.kind.value, step = kind === "step";
    if (step && !this.name.value.trim()) return;  // it has no name yet
    for (const field of this.was.keys()) this.was.set(field, field.value);
    this.chosen({
      kind: step || kind === "" ? null : kind,
      steps: step ? this.name.value.trim().split(/[\s,]+/) : [],
      after: step ? [...this.boxes()].filter(box => box.checked).map(box => box.value) : [],
      distribute: step ? this.strategy.value || null : null,
      workers: step && this.strategy.value ? number(this.workers) : null,
      parameter_servers: step && this.strategy.value === "parameter-server" ? number(this.servers) : null,
      gpus: step ? number(this.gpus) || null : null,
      cpu: step ? this.cpu.value.trim() : "",
      memory: step ? this.memory.value.trim() : "",
    }, this.cell);
  }

  tell(text) {
    this.trouble.textContent = text;
    this.trouble.hidden = !text;
  }
}

function told(view) {
  if (view.everywhere) return ": runs in every step";
  return view.steps.length ? `: step ${view.steps.join(" and ")}` : "";
}
