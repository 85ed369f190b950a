// The panel: it follows the notebook in front, and asks the server about it once after every pause in typing.
import { About } from "./about.js";
import { Graph } from "./graph.js";
import { Marks } from "./marks.js";
import { Refused, asker, make } from "./parts.js";
import { Running } from "./running.js";
import { TagForm } from "./tagging.js";

const PAUSE = 400;  // ms without a change
const RETRY = 3000;
const AGAIN = 200, TRIES = 150;  // ms between two tries to reach a cell, and how many

export class Panel {
  constructor(ServerConnection, isVisible) {
    this.ask = asker(ServerConnection);
    this.isVisible = isVisible;
    this.marks = new Marks();
    this.analysis = null;
    this.about = new About(() => this.schedule());
    this.form = new TagForm((choice, model) => this.tag(choice, model));
    this.graph = new Graph(number => this.go(number));
    this.running = new Running({
      ask: this.ask,
      path: () => this.path(),
      save: () => this.current.context.save(),
      cells: () => this.cells().map(model => model.id),
      go: number => this.go(number),
      changed: () => this.mark(),
    });
    this.problems = make("section", { "aria-label": "Problems", className: "echelon-problems", hidden: true });
    this.body = make("div", { hidden: true },
      this.form.node, this.problems, this.graph.node, this.about.node, this.running.node);
    this.empty = make("p", { className: "echelon-quiet" }, "Open a notebook to run it as a pipeline.");
    this.node = make("div", { className: "echelon-panel" }, make("h2", {}, "Pipeline"), this.empty, this.body);
    this.node.addEventListener("keydown", event => { if (event.key === "Escape") this.leave?.(); });
    this.changed = () => this.schedule();
  }

  get content() { return this.current?.content; }

  watch(current) {
    if (current === this.current) return;
    this.model?.contentChanged.disconnect(this.changed);
    this.form.none();  // before the notebook changes: what was typed counts
    this.current = current;
    this.model = null;
    this.analysis = null;
    this.graph.draw("", []);
    this.running.ask([], false);
    this.about.show(null, "");
    this.body.hidden = !current;
    this.empty.hidden = Boolean(current);
    this.running.watch(this.isVisible());
    current?.context.ready.then(() => {
      if (current !== this.current || current.isDisposed) return;
      this.model = current.content.model;
      this.model.contentChanged.connect(this.changed);
      this.analyse();
    });
  }

  schedule(pause = PAUSE) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.analyse(), pause);
  }

  // Without the name of a drive, which documents that several people edit have.
  path() { return this.current?.context.localPath ?? this.current?.context.path; }

  cells() { return this.model ? Array.from({ length: this.model.cells.length }, (_, at) => this.model.cells.get(at)) : []; }

  // The notebook as it is now, without its outputs.
  document() {
    const cells = this.cells().map(model => ({
      cell_type: model.type,
      source: model.type === "code" ? model.sharedModel.getSource() : "",
      metadata: { tags: model.getMetadata("tags") || [] },
    }));
    return { cells, metadata: { kubeflow_notebook: this.model.getMetadata("kubeflow_notebook") ?? null } };
  }

  // Who has not opened the panel, and no tagged notebook, is left alone.
  isWanted() {
    const ours = tag => /^(step|block):/.test(tag);
    return this.isVisible() || this.cells().some(model => (model.getMetadata("tags") || []).some(ours));
  }

  shown() {
    this.schedule();
    this.running.watch(true);
  }

  // One question at a time, however slow the server is: what changes meanwhile is asked about when it has answered.
  async analyse() {
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    try {
      do {
        this.again = false;
        await this.look();
      } while (this.again);
    } finally {
      this.asking = false;
    }
  }

  async look() {
    const current = this.current;
    if (!this.model || current.isDisposed || !this.isWanted()) return;
    try {
      const found = await this.ask("analyse", { path: this.path(), document: this.document() });
      if (current !== this.current) return;
      this.analysis = found;
      this.views = new Map(found.cells.map(view => [view.number, view]));
      if (found.svg || !found.steps.length) {  // else a cell cannot be read now, as while it is typed: the last ones stay
        this.graph.draw(found.svg, found.steps);
        this.running.ask(found.parameters, found.cells.some(view => view.choice.gpus));
      }
      this.about.show(this.model, found.name);
      this.tellProblems(found.problems, found.warnings);
    } catch (error) {
      if (current !== this.current) return;
      this.tellProblems([{ text: error.message, hint: error.hint || "" }], []);
      if (!(error instanceof Refused)) this.schedule(RETRY);  // the connection broke
    }
    this.cellChanged();
    this.mark();
  }

  tellProblems(problems, warnings) {
    this.problems.hidden = !problems.length && !warnings.length;
    this.problems.replaceChildren(
      ...problems.map(({ text, hint, cell }) => make("div", { className: "echelon-note" },
        make("p", {}, cell ? make("button", { onclick: () => this.go(cell) }, `Cell ${cell}`) : null, ` ${text}`),
        hint ? make("p", { className: "echelon-quiet" }, hint) : null)),
      ...warnings.map(text => make("p", { className: "echelon-quiet" }, `Note: ${text}`)));
  }

  mark() {
    if (!this.content || this.content.isDisposed) return;
    const problems = new Map();
    for (const each of this.analysis?.problems || []) {
      if (each.cell) problems.set(each.cell, [...(problems.get(each.cell) || []), each]);
    }
    const tagged = this.analysis?.cells.some(({ choice }) => choice.kind || choice.steps.length);
    const numbers = new Map(this.cells().map((model, at) => [model.id, at + 1]));
    this.marks.update(this.content, numbers, tagged ? this.views : new Map(), tagged ? problems : new Map(), this.running.failures());
    this.graph.colour(this.running.states());
  }

  cellChanged() {
    const at = this.content?.activeCellIndex ?? -1;
    const view = this.analysis && this.views.get(at + 1);
    if (view) this.form.show(view, this.analysis.steps.map(step => step.name), this.cells()[at]);
    else this.form.none();
  }

  // One after the other: the next choice begins with the tags that the one before has made.
  tag(choice, model) {
    const cells = this.cells(), notebook = this.model?.sharedModel;  // now: another notebook may be in front then
    this.tagged = (this.tagged || Promise.resolve()).then(() => this.retag(choice, cells.indexOf(model) + 1, cells, notebook));
  }

  async retag(choice, number, cells, notebook) {
    if (!number) return;  // the cell is gone
    try {
      const { tags } = await this.ask("tags", { cell: number, tags: tagsOf(cells), choice });
      this.form.tell("");
      notebook.transact(() => {  // other cells may follow, as those after a step that got another name
        for (const [at, now] of Object.entries(tags)) {
          if (now.length) cells[at - 1].setMetadata("tags", now);
          else cells[at - 1].deleteMetadata("tags");
        }
      });
      clearTimeout(this.timer);
      await this.analyse();
    } catch (error) {
      this.form.tell(`Cell ${number}: ${[error.message, error.hint].filter(Boolean).join(": ")}`);
    }
  }

  // JupyterLab puts the cells of a large notebook into the page one after the other; it cannot scroll to one before.
  async go(number) {
    const { content } = this, at = number - 1;
    if (!number || !content) return;
    content.activeCellIndex = at;
    for (let tries = 0; tries < TRIES; tries++) {
      content.scrollToItem?.(at)?.catch?.(() => {});
      if (content.widgets[at]?.node.isConnected) break;
      await new Promise(resolve => { setTimeout(resolve, AGAIN); });
      if (content.isDisposed || content.activeCellIndex !== at) return;
    }
    content.activate();
  }

  focus() { [...this.node.querySelectorAll("select, input, button")].find(each => each.offsetParent)?.focus(); }
}

// The tags of all cells that have any, by number.
function tagsOf(cells) {
  const tags = cells.map((model, at) => [at + 1, model.type === "code" ? model.getMetadata("tags") || [] : []]);
  return Object.fromEntries(tags.filter(([, own]) => own.length));
}
