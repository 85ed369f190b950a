// The graph that the server drew, in the theme's colours and with the steps' states; a step leads to its cell.
import { make } from "./parts.js";

export class Graph {
  constructor(go) {
    this.go = go;
    this.drawn = "";
    this.picture = make("div", { className: "echelon-graph" });
    this.node = make("section", { "aria-label": "Graph" }, make("h3", {}, "Steps and variables"), this.picture);
  }

  draw(svg, steps) {
    if (svg !== this.drawn) {
      this.drawn = svg;
      const parsed = svg && new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
      const picture = parsed && document.importNode(parsed, true);
      if (picture) picture.style.minWidth = `${0.65 * Number(picture.getAttribute("width"))}px`;  // to be read; it scrolls
      this.picture.replaceChildren(...(picture ? [picture] : []));
      for (const box of this.boxes()) {
        box.setAttribute("tabindex", "0");
        box.setAttribute("role", "button");
        const go = () => this.go(this.first[box.dataset.step]);
        box.addEventListener("click", go);
        box.addEventListener("keydown", event => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();  // the space bar would scroll
          go();
        });
      }
    }
    this.node.hidden = !svg;
    this.first = Object.fromEntries(steps.map(step => [step.name, step.cells[0]]));
    this.colour(this.states || {});
  }

  colour(states) {
    this.states = states;
    for (const box of this.boxes()) {
      const state = states[box.dataset.step] || "";
      if (box.dataset.state === state && box.hasAttribute("aria-label")) continue;
      box.dataset.state = state;
      box.setAttribute("aria-label", `step ${box.dataset.step}${state ? `, ${state}` : ""}`);
    }
  }

  boxes() { return this.picture.querySelectorAll("g.step"); }
}
