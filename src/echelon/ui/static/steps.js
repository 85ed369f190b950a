// The runs that a run is made of: their graph, and how each of them stands.

import { html, useEffect, useRef, useState } from "/static/preact.js";
import { Choice, CompareLink, State, Table } from "/static/parts.js";
import { duration, number, plain, useTick } from "/static/words.js";

export const DONE = ["succeeded", "cached", "kept", "ended-early"];

// `links` are the names, by step, of the runs that have a page here.
export function Steps({ name, steps, links, skew, over, objective }) {
  useTick(!over);
  const now = Date.now() / 1000 - skew;
  if (steps.some((step) => Object.keys(step.params).length)) return html`<${Trials} ...${{ steps, links, now, objective }} />`;
  if (steps.length === 0) return html`<h2>Steps</h2><p>They are not known yet.</p>`;
  return html`
    <h2>Graph</h2><${Graph} name=${name} steps=${steps} links=${links} />
    <h2>Steps</h2>
    <${Table} heads=${["Step", "State", "Took", "After", "Gets", "What"]} rows=${steps.map((step) => ({ key: step.name, cells: [
      links[step.name] ? html`<a href=${`#/run/${encodeURIComponent(links[step.name])}`}>${step.name}</a>` : step.name,
      html`<${State} state=${step.state} />`,
      step.started === null ? "-" : html`<span class="time">${duration((step.ended ?? now) - step.started)}</span>`,
      step.after.join(", ") || "-", gets(step) || "-", what(step)] }))} />`;
}

const TRIALS = 100; // at a time

// The trials of a sweep, the best first.
function Trials({ steps, links, now, objective }) {
  const [most, setMost] = useState(TRIALS);
  const [chosen, setChosen] = useState([]); // the names of their runs
  const names = [...new Set(steps.flatMap((step) => Object.keys(step.params)))];
  const sign = objective?.goal === "maximize" ? -1 : 1;
  const sorted = objective ? [...steps].sort((a, b) => (a.value === null) - (b.value === null) || sign * (a.value - b.value)) : steps;
  const heads = ["Trial", ...names, ...(objective ? [objective.metric] : []), "State", "Took", "What"].map(plain);
  return html`<h2>Trials</h2>${chosen.length > 1 ? html`<p><${CompareLink} chosen=${chosen} /></p>` : null}
    <${Table} heads=${heads} rows=${sorted.slice(0, most).map((step) => ({ key: step.name, cells: [
      links[step.name] ? html`<span class="folder"><${Choice} name=${links[step.name]} chosen=${chosen} change=${setChosen} /><a href=${`#/run/${encodeURIComponent(links[step.name])}`}>${step.name}</a></span>` : step.name,
      ...names.map((each) => plain(step.params[each] ?? "") || "-"),
      ...(objective ? [step.value === null ? "-" : number(step.value)] : []),
      html`<${State} state=${step.state} />`,
      step.started === null ? "-" : html`<span class="time">${duration((step.ended ?? now) - step.started)}</span>`, what(step)] }))} />
    ${most < sorted.length ? html`<p class="buttons"><button type="button" onClick=${() => setMost(most + TRIALS)}>
      Show ${Math.min(TRIALS, sorted.length - most)} more</button></p>` : null}`;
}

const gets = (step) => Object.entries(step.gets).map(([from, names]) => `${names.join(", ")} from ${from}`).join("; ");

function what(step) {
  const where = step.cell === null ? "" : `cell ${step.cell}${step.line === null ? "" : `, line ${step.line}`}: `;
  return plain([`${where}${step.reason}`, step.hint, step.size].filter(Boolean).join("; ")) || "-";
}

// The server's drawing: again whenever a step stands otherwise. The link that has the focus keeps it, also when
// one drawing in between has no such link.
function Graph({ name, steps, links }) {
  const place = useRef(null), focused = useRef(null);
  useEffect(() => {
    let left = false, timer = 0;
    const draw = () => picture(`/api/runs/${encodeURIComponent(name)}/graph`).then((drawn) => {
      if (left) return;
      if (!drawn) { // the request was lost: no other change may come
        timer = setTimeout(draw, 2000);
        return;
      }
      const link = document.activeElement?.closest(".graph a");
      if (link || document.activeElement !== document.body) focused.current = link?.getAttribute("href");
      place.current.replaceChildren(copied(drawn));
      if (focused.current) place.current.querySelector(`a[href="${CSS.escape(focused.current)}"]`)?.focus();
    });
    draw();
    return () => { left = true; clearTimeout(timer); };
  }, [name, JSON.stringify(steps.map((step) => [step.name, step.state, links[step.name]]))]);
  return html`<div class="graph" ref=${place} role="group" aria-label=${`graph of ${name}`} tabindex="0"></div>`;
}

// As a document, which no other request gives under the policy of this page.
function picture(path) {
  return new Promise((resolve) => {
    const asked = new XMLHttpRequest();
    asked.open("GET", path);
    asked.responseType = "document";
    asked.onloadend = () => resolve(asked.status === 200 ? asked.response?.documentElement : null);
    asked.send();
  });
}

const SVG = "http://www.w3.org/2000/svg";
const PARTS = new Set(["svg", "defs", "marker", "path", "rect", "text", "title", "g", "a"]);
const FIELDS = new Set(["viewBox", "width", "height", "x", "y", "rx", "d", "fill", "stroke", "class", "id", "font-family", "font-size",
  "text-anchor", "refX", "refY", "markerWidth", "markerHeight", "orient", "marker-end"]);

// Nothing but what a drawing is made of, and links to runs.
function copied(part) {
  const made = document.createElementNS(SVG, part.localName);
  for (const { name, value } of part.attributes) {
    if (FIELDS.has(name) || (name === "href" && value.startsWith("#/run/"))) made.setAttribute(name, value);
  }
  for (const child of part.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) made.append(plain(child.data));
    else if (PARTS.has(child.localName)) made.append(copied(child));
  }
  return made;
}
