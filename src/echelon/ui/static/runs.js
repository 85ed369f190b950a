// The list of runs; the steps of a notebook, or the trials of a sweep, are one row, which unfolds.

import { html, useState } from "/static/preact.js";
import { useLive } from "/static/server.js";
import { Choice, CompareLink, Notices, State, Table, useTitle } from "/static/parts.js";
import { duration, isOver, moment, plain, useTick } from "/static/words.js";

const MOST = 300; // rows at a time

export function Runs({ about }) {
  const [runs, setRuns] = useState(null);
  const [open, setOpen] = useState(new Set()); // runs whose steps are listed
  const [trouble, setTrouble] = useState({});
  const [text, setText] = useState("");
  const [going, setGoing] = useState(false);
  const [chosen, setChosen] = useState([]); // names, in the order in which they were chosen
  const [everybody, setEverybody] = useState(false);
  const { connected } = useLive("page=runs", (message) => {
    if (message.kind === "runs") setRuns(message.runs);
    if (message.kind === "trouble") setTrouble(message);
  });
  useTick();
  useTitle("Runs");
  const now = Date.now() / 1000;
  const find = text.toLowerCase();
  const wanted = (runs || []).map((run) => fitting(run, (everybody || run.own) && !(going && isOver(run.state)), find)).filter(Boolean);
  const others = (runs || []).some((run) => !run.own);
  const rows = wanted.slice(0, MOST).flatMap(({ run, found }) => {
    const isOpen = found || open.has(key(run));
    const fold = run.below.length ? html`<${Fold} what=${`${run.step_word}s of ${run.name}`} isOpen=${isOpen} toggle=${() => setOpen((was) => toggled(was, key(run)))} />` : null;
    const box = (each) => html`<${Choice} name=${each.name} chosen=${chosen} change=${setChosen} />`;
    return [row(run, now, html`${box(run)}${fold}`), ...(isOpen ? [...run.below.map((step) => row(step, now, box(step), "step")), ...more(run)] : [])];
  });
  return html`
    <${Notices} connected=${connected} trouble=${trouble} />
    <h1>Runs</h1>
    ${runs !== null && !runs.length ? null : html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Find <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <label><input type="checkbox" checked=${going} onChange=${(event) => setGoing(event.target.checked)} /> active only</label>
      <${CompareLink} chosen=${chosen} />
      ${others ? html`<label><input type="checkbox" checked=${everybody} onChange=${(event) => setEverybody(event.target.checked)} /> all users</label>` : null}
    </form>`}
    ${runs === null ? html`<p role="status">Loading …</p>`
      : wanted.length === 0 ? html`<p>${runs.length ? "No run matches." : html`No runs yet: <code>echelon run ${about.namespace ? "--on k8s " : ""}train.py</code> starts one.`}</p>`
      : html`<${Table} heads=${["Run", "State", "Workers", "GPUs", "Age", "Took", "Command", "Reason"]} rows=${rows} />`}
    ${wanted.length > MOST ? html`<p>and ${wanted.length - MOST} more: find them by name.</p>` : null}`;
}

// What is shown of a run: if only steps of it are found, those.
function fitting(run, wanted, find) {
  const has = (each) => !find || `${each.name} ${each.command} ${each.state} ${each.owner}`.toLowerCase().includes(find);
  if (!wanted) return null;
  if (has(run)) return { run, found: false };
  const below = run.below.filter(has);
  return below.length ? { run: { ...run, below }, found: true } : null;
}

const key = (run) => `${run.name} ${run.owner} ${run.created}`; // others may have one of the same name

function toggled(names, name) {
  const changed = new Set(names);
  if (!changed.delete(name)) changed.add(name);
  return changed;
}

const reason = (run) => run.reason ? html`<span class="clamp" title=${plain(run.reason)}>${plain(run.reason)}</span>` : "";

// Of thousands of trials the list has some; the page of the sweep has all.
const more = (run) => run.more ? [{ key: `${key(run)} more`, cells: [html`<a class="step" href=${`#/run/${encodeURIComponent(run.name)}`}>and ${run.more} more</a>`] }] : [];

const Fold = ({ what, isOpen, toggle }) => html`<button type="button" class="fold" aria-expanded=${isOpen ? "true" : "false"}
  aria-label=${what} onClick=${toggle}>${isOpen ? "▾" : "▸"}</button>`;

// As `ps` has it: of a run that is made of runs, how many of them are done.
function commandOf(run) {
  if (!run.steps || run.steps_place === null) return run.command; // the latter where another machine has started it
  const done = run.steps_done === run.steps ? "" : `${run.steps_done} of `;
  return `${run.command}, ${done}${run.steps} ${run.step_word}${run.steps === 1 ? "" : "s"}${run.best ? `, ${run.best}` : ""}`;
}

function row(run, now, fold, kind = "") {
  const command = commandOf(run);
  return { key: key(run), cells: [
    html`<span class="folder">${fold}<a class=${kind} href=${`#/run/${encodeURIComponent(run.name)}`}>${run.name}</a></span>`,
    html`<${State} state=${run.state} />`, run.workers, run.gpus || "-",
    html`<span class="time" title=${moment(run.created)}>${duration(now - run.created)}</span>`,
    html`<span class="time">${duration((run.ended ?? now) - run.created)}</span>`,
    html`<code class="clamp" title=${plain(command)}>${plain(command)}</code>`, reason(run),
  ] };
}
