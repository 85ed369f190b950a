// The pipeline's name and description: of the whole notebook, kept in its metadata as Kale keeps them.
import { labelled, make } from "./parts.js";

const KEY = "kubeflow_notebook";

export class About {
  // `changed()` is called after every change.
  constructor(changed) {
    this.changed = changed;
    this.name = make("input", { type: "text", spellcheck: false });
    this.description = make("input", { type: "text", placeholder: "what it does" });
    this.fields = [[this.name, "pipeline_name"], [this.description, "pipeline_description"]];
    for (const [field, key] of this.fields) {
      field.addEventListener("change", () => this.write(key, field.value.trim()));
      field.addEventListener("keydown", event => { if (event.key === "Enter") this.write(key, field.value.trim()); });
    }
    this.node = make("section", { "aria-label": "Pipeline" }, make("h3", {}, "Pipeline"),
      labelled("Name", this.name), labelled("Description", this.description));
  }

  // Show a notebook, whose runs have a name; what is being typed is left alone.
  show(model, name) {
    const other = model !== this.model;
    this.model = model;
    const said = this.said();
    for (const [field, key] of this.fields) {
      if (other || field !== document.activeElement) field.value = said[key] ?? "";
    }
    this.name.placeholder = name;
    this.name.title = `Its runs are ${name}-1, ${name}-2, ...`;
  }

  said() {
    const found = this.model?.getMetadata(KEY);
    return found && typeof found === "object" ? found : {};
  }

  write(key, value) {
    const said = this.said();
    if (!this.model || (said[key] ?? "") === value) return;
    const { [key]: _before, ...others } = said;
    const now = value ? { ...others, [key]: value } : others;
    if (Object.keys(now).length) this.model.setMetadata(KEY, now);
    else this.model.deleteMetadata(KEY);
    this.changed();
  }
}
