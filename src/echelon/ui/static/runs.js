// The list of runs; the steps of a notebook are one row, which unfolds.

import { html, useState } from "/static/preact.js";
import { useLive } from "/static/server.js";
import { Notices, State, Table, useTitle } from "/static/parts.js";
import { duration, isOver, moment, plain, useTick } from "/static/words.js";

const MOST = 300; // rows at a time

export function Runs({ about }) {
  const [runs, setRuns] = useState(null);
  const [pipelines, setPipelines] = useState([]);
  const [open, setOpen] = useState(new Set()); // pipelines whose steps are listed
  const [trouble, setTrouble] = useState({});
  const [text, setText] = useState("");
  const [going, setGoing] = useState(false);
  const [everybody, setEverybody] = useState(false);
  const { connected } = useLive("page=runs", (message) => {
    if (message.kind === "runs") { setRuns(message.runs); setPipelines(message.pipelines); }
    if (message.kind === "trouble") setTrouble(message);
  });
  useTick();
  useTitle("Runs");
  const now = Date.now() / 1000;
  const find = text.toLowerCase();
  const wanted = entries(runs || [], pipelines).map((entry) => fitting(entry, (run) =>
    (everybody || run.own) && !(going && isOver(run.state)), find)).filter(Boolean);
  const others = (runs || []).some((run) => !run.own);
  const rows = wanted.slice(0, MOST).flatMap((entry) => entry.steps === null ? [row(entry.run, now)] : [
    pipelineRow(entry, now, open.has(entry.run.name) || entry.found, () => setOpen((was) => toggled(was, entry.run.name))),
    ...(open.has(entry.run.name) || entry.found ? entry.steps.map((step) => row(step, now, true)) : []),
  ]);
  return html`
    <${Notices} connected=${connected} trouble=${trouble} />
    <h1>Runs</h1>
    ${runs !== null && !runs.length && !pipelines.length ? null : html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Find <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <label><input type="checkbox" checked=${going} onChange=${(event) => setGoing(event.target.checked)} /> only those that go on</label>
      ${others ? html`<label><input type="checkbox" checked=${everybody} onChange=${(event) => setEverybody(event.target.checked)} /> everybody's</label>` : null}
    </form>`}
    ${runs === null ? html`<p role="status">Looking …</p>`
      : wanted.length === 0 ? html`<p>${runs.length || pipelines.length ? "No run is like that." : html`No runs yet: <code>echelon run ${about.namespace ? "--on k8s " : ""}train.py</code> starts one.`}</p>`
      : html`<${Table} heads=${["Run", "State", "Workers", "GPUs", "Age", "Took", "Command", "Reason"]} rows=${rows} />`}
    ${wanted.length > MOST ? html`<p>and ${wanted.length - MOST} more: find them by name.</p>` : null}`;
}

// What is listed, the newest first: a run, or a notebook's pipeline with the runs of its steps.
function entries(runs, pipelines) {
  const found = new Map(pipelines.map((each) => [each.name, { run: each, steps: [], found: false }]));
  const alone = [];
  runs.forEach((run) => {
    if (run.pipeline && found.has(run.pipeline)) found.get(run.pipeline).steps.push(run);
    else alone.push({ run, steps: null, found: false });
  });
  return [...alone, ...found.values()].sort((one, other) => other.run.created - one.run.created);
}

// The entry, if it is wanted; of a pipeline of which only steps are found, those steps.
function fitting(entry, wanted, find) {
  const has = (run) => !find || `${run.name} ${run.command || "notebook"} ${run.state} ${run.owner}`.toLowerCase().includes(find);
  if (!wanted(entry.run)) return null;
  if (has(entry.run)) return entry;
  const steps = (entry.steps || []).filter(has);
  return steps.length ? { ...entry, steps, found: true } : null;
}

function toggled(names, name) {
  const changed = new Set(names);
  if (!changed.delete(name)) changed.add(name);
  return changed;
}

const reason = (run) => run.reason ? html`<span class="clamp" title=${plain(run.reason)}>${plain(run.reason)}</span>` : "";

const row = (run, now, isStep = false) => ({
  key: run.uri + run.created,
  cells: [
    html`<a class=${isStep ? "step" : ""} href=${`#/run/${encodeURIComponent(run.name)}`}>${run.name}</a>`,
    html`<${State} state=${run.state} />`, run.workers, run.gpus || "-",
    html`<span class="time" title=${moment(run.created)}>${duration(now - run.created)}</span>`,
    html`<span class="time">${duration((run.ended ?? now) - run.created)}</span>`,
    html`<code class="clamp" title=${plain(run.command)}>${plain(run.command)}</code>`, reason(run),
  ],
});

const pipelineRow = ({ run, steps }, now, isOpen, toggle) => ({
  key: `pipeline ${run.name}`,
  cells: [
    html`<span class="folder">${steps.length ? html`<button type="button" class="fold" aria-expanded=${isOpen ? "true" : "false"}
      aria-label=${`steps of ${run.name}`} onClick=${toggle}>${isOpen ? "▾" : "▸"}</button>` : null}
      <a href=${`#/pipeline/${encodeURIComponent(run.name)}`}>${run.name}</a></span>`,
    html`<${State} state=${run.state} />`, "-", "-",
    html`<span class="time" title=${moment(run.created)}>${duration(now - run.created)}</span>`,
    html`<span class="time">${duration((run.ended ?? now) - run.created)}</span>`,
    `notebook, ${run.done} of ${run.steps} steps done`, reason(run),
  ],
});
