// The graph that the server drew, in the theme's colours and with the steps' states; a step leads to its cell.
import { make } from "./parts.js";

const READABLE = 0.75;  // of its own size

export class Graph {
  constructor(go) {
    this.go = go;
    this.drawn = "";
    this.picture = make("div", { className: "echelon-graph" });
    this.size = make("button", { onclick: () => this.enlarge(!this.isLarge), ariaPressed: "false", hidden: true }, "Larger");
    this.node = make("section", { "aria-label": "Graph" }, make("h3", {}, "Steps and variables"), this.picture, this.size);
    new ResizeObserver(() => this.offer()).observe(this.picture);
  }

  draw(svg, steps) {
    if (svg !== this.drawn) {
      this.drawn = svg;
      const parsed = svg && new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
      const picture = parsed && document.importNode(parsed, true);
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
    this.offer();
    this.first = Object.fromEntries(steps.map(step => [step.name, step.cells[0]]));
    this.colour(this.states || {});
  }

  // A picture that became small in a narrow panel can be had in its own size; it scrolls then.
  enlarge(is) {
    this.isLarge = is;
    this.picture.classList.toggle("echelon-large", is);
    this.size.ariaPressed = String(is);
  }

  offer() {
    const width = Number(this.picture.querySelector("svg")?.getAttribute("width") || 0);
    const small = this.picture.clientWidth > 0 && this.picture.clientWidth < READABLE * width;
    if (!small) this.enlarge(false);
    this.size.hidden = !small;
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
