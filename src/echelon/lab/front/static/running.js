// Running: the parameters, the buttons, and how the newest run of the notebook stands.
import { Refused, labelled, make } from "./parts.js";

const PULSE = 1000;  // ms between two looks at a run that goes on
const CLUSTER_PULSE = 3000;  // output comes from the API server then, perhaps by a login each time
const COLOURS = /\x1b\[[0-9;:]*[A-Za-z]/g;

export class Running {
  // `jupyter`: ask(what, body), path(), save(), cells() with the ids in order, go(number), changed().
  constructor(jupyter) {
    this.jupyter = jupyter;
    this.run = null;
    this.order = new Map();  // by run: the ids of the cells when it was started
    this.open = new Set();
    this.parameters = "";
    this.fields = make("div");
    const field = placeholder => make("input", { type: "text", spellcheck: false, placeholder });
    this.cluster = {
      image: field("the default"),
      volume: field("new:10Gi"),
      context: field("the kubeconfig's"),
      namespace: field("the context's"),
    };
    this.withoutGpus = make("input", { type: "checkbox" });
    this.ofGpus = make("label", { className: "echelon-check", hidden: true }, this.withoutGpus, "without the GPUs that tags ask for");
    this.kind = make("select", {}, make("option", { value: "python" }, "a Python script"), make("option", { value: "tekton" }, "Tekton"));
    this.compile = make("button", { onclick: () => this.compileIt() }, "Compile");
    this.compiled = make("p", { className: "echelon-quiet", role: "status" });
    this.here = make("button", { className: "echelon-main", onclick: () => this.start(false) }, "Run here");
    this.there = make("button", { onclick: () => this.start(true) }, "Run in the cluster");
    this.stop = make("button", { onclick: () => this.end(), hidden: true }, "Stop");
    this.said = make("p", { role: "status", className: "echelon-quiet" });
    this.trouble = make("pre", { className: "echelon-trouble", role: "alert", hidden: true });
    this.dashboard = make("button", { onclick: () => this.openDashboard(), hidden: true }, "Open in the dashboard");
    this.address = make("p", { className: "echelon-quiet", hidden: true });
    this.steps = make("ul", { className: "echelon-steps" });
    this.more = make("p", { className: "echelon-quiet" });
    this.node = make("section", { "aria-label": "Run" },
      make("h3", {}, "Run"), this.fields,
      make("details", {}, make("summary", {}, "For the cluster"),
        ...Object.entries(this.cluster).map(([name, node]) => labelled(`${name[0].toUpperCase()}${name.slice(1)}`, node))),
      make("details", {}, make("summary", {}, "Compile"), labelled("For", this.kind),
        make("div", { className: "echelon-buttons" }, this.compile), this.compiled),
      this.ofGpus, make("div", { className: "echelon-buttons" }, this.here, this.there, this.stop),
      this.trouble, this.said, this.steps, this.more, this.dashboard, this.address);
  }

  // Another notebook is in front: show its newest run.
  async watch(look) {
    clearTimeout(this.timer);
    this.turn = Symbol("turn");
    this.run = null;
    this.open.clear();
    this.address.hidden = true;
    this.compiled.textContent = "";
    this.steps.replaceChildren();
    this.show(null);
    if (look && this.jupyter.path()) await this.look(this.turn);
  }

  ask(parameters, hasGpus) {
    this.ofGpus.hidden = !hasGpus;
    const key = JSON.stringify(parameters);
    if (key === this.parameters) return;
    this.parameters = key;
    const typed = this.values();
    this.fields.replaceChildren(...parameters.map(each => labelled(each.name, make("input", {
      type: "text", name: each.name, value: typed[each.name] ?? "", required: each.required,
      placeholder: each.required ? `${each.kind}, needed` : `${each.text} (${each.kind})`,
    }))));
  }

  values() {
    const fields = [...this.fields.querySelectorAll("input")].filter(field => field.value !== "");
    return Object.fromEntries(fields.map(field => [field.name, field.value]));
  }

  async start(in_cluster, start = null) {
    const turn = this.turn;
    this.tell("");
    this.busy(true);
    this.said.textContent = "Starting …";
    try {
      await this.jupyter.save();
      const order = this.jupyter.cells();
      const typed = Object.entries(this.cluster).map(([name, node]) => [name, node.value.trim() || null]);
      const no_gpus = !this.ofGpus.hidden && this.withoutGpus.checked;
      const asked = { path: this.jupyter.path(), in_cluster, start, no_gpus, ...Object.fromEntries(start || !in_cluster ? [] : typed) };
      const { name } = await this.jupyter.ask("run", { ...asked, parameters: start ? {} : this.values() });
      this.order.set(name, order);
      if (turn === this.turn) await this.look(turn, name);
    } catch (error) {
      this.tell([error.message, error.hint].filter(Boolean).join("\n"));
      if (turn === this.turn) this.show(this.run);  // how the run before stands
      if (!(error instanceof Refused) && turn === this.turn) await this.look(turn);  // it may have begun
    } finally {
      this.busy(false);
    }
  }

  // Files beside the notebook; images and namespaces are those for the cluster.
  async compileIt() {
    this.compile.disabled = true;
    this.compiled.textContent = "Compiling …";
    try {
      await this.jupyter.save();
      const [image, namespace] = [this.cluster.image, this.cluster.namespace].map(node => node.value.trim() || null);
      const asked = { path: this.jupyter.path(), kind: this.kind.value, parameters: this.values(), image, namespace };
      const { files, notes } = await this.jupyter.ask("compile", asked);
      this.compiled.textContent = [`Wrote ${files.join(" and ")}.`, ...notes].join(" ");
    } catch (error) {
      this.compiled.textContent = [error.message, error.hint].filter(Boolean).join(": ");
    } finally {
      this.compile.disabled = false;
    }
  }

  async end() {
    this.stop.disabled = true;
    try {
      const { note } = await this.jupyter.ask("stop", { path: this.jupyter.path(), name: this.run.name });
      this.tell(note || "");
    } catch (error) {
      this.tell([error.message, error.hint].filter(Boolean).join("\n"));
    } finally {
      this.stop.disabled = false;
    }
  }

  // The dashboard is on a port of the server's machine, which no other machine reaches.
  async openDashboard() {
    this.address.hidden = false;
    const place = this.run.in_cluster ? " --on k8s" : "";
    if (!["localhost", "127.0.0.1", "[::1]"].includes(location.hostname)) {
      const where = this.run.in_cluster ? "on your own machine" : "where Jupyter runs";
      this.address.textContent = `At a terminal ${where}: echelon ui${place}`;
      return;
    }
    try {
      const { name } = this.run;
      const found = await this.jupyter.ask("dashboard", { path: this.jupyter.path(), name });
      const address = `${found.address}/run/${encodeURIComponent(name)}`;
      const link = make("a", { href: address, target: "_blank", rel: "noopener" }, "The dashboard");
      this.address.replaceChildren(link, ` has the runs of ${name}.`);
      link.focus();
      window.open(address, "_blank", "noopener");
    } catch (error) {
      this.address.textContent = [error.message, error.hint].filter(Boolean).join(": ");
    }
  }

  async look(turn, name = null) {
    clearTimeout(this.timer);
    let again = false;
    try {
      const { run } = await this.jupyter.ask("state", { path: this.jupyter.path(), name });
      if (turn !== this.turn) return;
      this.show(run);
      again = Boolean(run && !run.over);
      await this.outputs(turn);
    } catch (error) {
      if (turn !== this.turn) return;
      this.said.textContent = error.message;
      again = !(error instanceof Refused);  // the server may come back
    }
    const pulse = this.run?.in_cluster ? CLUSTER_PULSE : PULSE;
    if (again && turn === this.turn) this.timer = setTimeout(() => this.look(turn, this.run?.name || name), pulse);
  }

  show(run) {
    this.run = run;
    this.stop.hidden = !run || (run.over && run.state !== "lost");  // steps of one that is lost may still run
    this.dashboard.hidden = !run;
    this.said.textContent = run ? `${run.name}${run.in_cluster ? " in the cluster" : ""}: ${summary(run)}` : "";
    const shown = new Map([...this.steps.children].map(item => [item.dataset.step, item]));
    const items = (run?.steps || []).map(step => this.item(step, shown.get(step.name)));
    if (items.length !== this.steps.children.length || items.some((item, at) => item !== this.steps.children[at])) {
      this.steps.replaceChildren(...items);
    }
    const metrics = Object.entries(run?.metrics || {}).map(([name, value]) => `${name}: ${value}`);
    const reason = run?.steps.some(step => step.state === "failed") ? "" : run?.reason;  // else it is at the step
    this.more.textContent = run ? [reason, ...metrics, run.over ? `Results: ${run.results}` : ""].filter(Boolean).join(" · ") : "";
    this.jupyter.changed();
  }

  item(step, before) {
    const key = JSON.stringify([step, this.run.name, this.run.over, this.open.has(step.name)]);
    if (before?.dataset.key === key) return before;
    const focus = before?.contains(document.activeElement) ? document.activeElement.textContent : null;
    const open = this.open.has(step.name);
    const button = (text, onclick, given = {}) => make("button", { onclick, ...given }, text);
    const number = this.cellOf(step);
    const item = make("li", {},
      make("div", { className: "echelon-step" },
        make("span", { className: "echelon-state", "aria-hidden": "true" }),
        make("strong", {}, step.name), ` ${step.state.replace("-", " ")}${took(step)}`),
      step.reason ? make("p", { className: "echelon-quiet" }, step.reason) : null,
      step.hint ? make("p", { className: "echelon-quiet" }, step.hint) : null,
      make("div", { className: "echelon-buttons" },
        step.has_output ? button("Output", () => this.toggle(step.name), { ariaExpanded: String(open) }) : null,
        number ? button(`Show cell ${number}`, () => this.jupyter.go(number)) : null,
        this.run.over && this.canGoOnFrom(step)
          ? button("Continue from here", () => this.start(this.run.in_cluster, step.name)) : null),
      open ? make("pre", { className: "echelon-output", tabIndex: 0, role: "log", ariaLabel: `Output of ${step.name}` },
        before?.querySelector(".echelon-output")?.textContent || "") : null);
    item.dataset.step = step.name;
    item.dataset.state = step.state;
    item.dataset.key = key;
    before?.replaceWith(item);
    if (focus !== null) [...item.querySelectorAll("button")].find(each => each.textContent === focus)?.focus();
    return item;
  }

  async toggle(step) {
    if (this.open.has(step)) this.open.delete(step);
    else this.open.add(step);
    this.show(this.run);
    await this.outputs(this.turn);
  }

  // The last lines of the steps whose output is open.
  async outputs(turn) {
    for (const step of this.open) {
      const shown = () => [...this.steps.children].find(item => item.dataset.step === step)?.querySelector(".echelon-output");
      if (!shown()) continue;
      let text;
      try {
        const { lines } = await this.jupyter.ask("output", { path: this.jupyter.path(), name: this.run.name, step });
        text = lines.join("\n").replace(COLOURS, "") || "It has written nothing.";
      } catch (error) {
        text = error.message;
      }
      const node = shown();
      if (turn !== this.turn || !node || node.textContent === text) continue;
      const atEnd = node.scrollTop + node.clientHeight >= node.scrollHeight - 4;
      node.textContent = text;
      if (atEnd) node.scrollTop = node.scrollHeight;
    }
  }

  // Where a failed step's cell is now: cells may have come and gone since the run was started. Old notebooks keep no ids.
  cellOf(step) {
    if (!step.cell) return null;
    const id = step.cell_id || this.order.get(this.run.name)?.[step.cell - 1];
    return id ? this.jupyter.cells().indexOf(id) + 1 || null : step.cell;
  }

  // Failures by the id of their cell.
  failures() {
    const found = new Map();
    for (const step of this.run?.steps || []) {
      const number = step.state === "failed" ? this.cellOf(step) : null;
      if (!number) continue;
      const { line, hint, traceback } = step;
      found.set(this.jupyter.cells()[number - 1],
        [{ title: `step ${step.name} failed`, line, text: step.reason, hint, traceback: traceback.replace(COLOURS, "") }]);
    }
    return found;
  }

  // From steps that ended badly; a pipeline that was stopped between two steps has none, but some that were not reached.
  canGoOnFrom(step) {
    const ended = ["failed", "stopped", "lost", "timed-out"];
    const first = this.run.steps.find(each => ended.includes(each.state) || each.state === "not-reached");
    return ended.includes(step.state) || step === first;
  }

  states() { return Object.fromEntries((this.run?.steps || []).map(step => [step.name, step.state])); }

  busy(is) { for (const each of [this.here, this.there]) each.disabled = is; }

  tell(text) {
    this.trouble.textContent = text;
    this.trouble.hidden = !text;
  }
}

function summary(run) {
  const count = run.steps.filter(step => ["succeeded", "cached", "kept"].includes(step.state)).length;
  if (!run.steps.length || run.state === "succeeded") return run.state;
  if (!run.over && count === run.steps.length) return "all steps done, writing its results";
  return `${run.state}, ${count} of ${run.steps.length} steps done`;
}

function took(step) {
  return step.started && step.ended ? ` in ${(step.ended - step.started).toFixed(1)} s` : "";
}
