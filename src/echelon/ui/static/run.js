// One run.

import { html, useEffect, useRef, useState } from "/static/preact.js";
import { get, post, useLive } from "/static/server.js";
import { Confirm, Missing, Notices, State, Table, Trouble, useTitle } from "/static/parts.js";
import { Curves, NO_CURVES } from "/static/curves.js";
import { Lines, NO_LINES, taken } from "/static/lines.js";
import { DONE, Steps } from "/static/steps.js";
import { bytes, duration, isOver, moment, plain, time, useTick } from "/static/words.js";

export function Run({ name, readOnly }) {
  const [run, setRun] = useState(null);
  const [trouble, setTrouble] = useState({});
  const [lines, setLines] = useState(NO_LINES);
  const [curves, setCurves] = useState(NO_CURVES);
  const [progress, setProgress] = useState(null);
  const [wanted, setWanted] = useState({ rank: null, search: "", at: null });
  const [asking, setAsking] = useState(null);
  const { connected, ask } = useLive(`page=run&name=${encodeURIComponent(name)}`, (message) => {
    if (message.kind === "run") setRun({ ...message.run, skew: Date.now() / 1000 - message.run.now });
    if (message.kind === "trouble") setTrouble(message);
    if (message.kind === "metrics") setCurves(message);
    if (message.kind === "progress") setProgress(message.progress);
    if (message.kind === "lines") setLines((now) => taken(now, message));
  });
  useTitle(name);
  const newest = useRef(wanted);
  const choose = (change) => { // of what is wanted now, also by a part of the page that was drawn before it
    newest.current = { ...newest.current, ...change };
    setWanted(newest.current);
    ask(newest.current);
  };
  const path = `/api/runs/${encodeURIComponent(name)}`;
  if (run === null && trouble.unknown) return html`<${Missing} what="run" name=${name} />`;
  if (run === null) return html`<${Notices} connected=${connected} trouble=${trouble} /><h1>${name}</h1>${trouble.error ? null : html`<p role="status">Looking …</p>`}`;
  const status = run.status;
  const over = isOver(status.state);
  const steps = status.steps;
  const isMade = run.links !== null; // of runs: its own worker only starts them
  const isHere = status.uri !== ""; // another machine has started it, else
  const { skew } = run;
  const canStop = !over || (isMade && status.state === "lost"); // steps of it may still run
  return html`
    <${Notices} connected=${connected} trouble=${trouble} name=${name} more=${run.trouble} />
    <h1>${name} <${State} state=${status.state} /></h1>
    ${status.reason && status.reason !== status.root_cause?.summary ? html`<p class="reason">${plain(status.reason)}</p>` : null}
    ${status.places.length ? html`<ul class="reason">${status.places.map((place) => html`<li>${plain(place)}</li>`)}</ul>` : null}
    ${isMade || status.state !== "running" ? null : html`<${Slow} path=${path} />`}
    <dl class="facts">
      ${run.parent ? html`<dt>Step of</dt><dd><a href=${`#/run/${encodeURIComponent(run.parent)}`}>${run.parent}</a></dd>` : null}
      <dt>Command</dt><dd><code>${plain(status.command)}</code></dd>
      <dt>Started</dt><dd>${moment(status.created)}${status.owner ? ` by ${status.owner}` : ""}</dd>
      ${isMade ? html`<dt>Took</dt><dd><${Took} status=${status} skew=${skew} over=${over} /></dd>
        <dt>${status.step_word === "trial" ? "Trials" : "Steps"}</dt><dd>${steps.filter((step) => DONE.includes(step.state)).length} of ${steps.length} done</dd>` : null}
      ${progress ? html`<dt>Progress</dt><dd><${Progress} ...${progress} /></dd>` : null}
      ${status.checkpoint ? html`<dt>Checkpoint</dt><dd><${Checkpoint} ...${status.checkpoint} skew=${skew} /></dd>` : null}
      ${status.restarts ? html`<dt>Restarts</dt><dd>${status.restarts} of ${status.restarts_allowed}</dd>` : null}
      ${status.exit_code === null ? null : html`<dt>Exit code</dt><dd>${status.exit_code}</dd>`}
      ${status.results ? html`<dt>Results</dt><dd><code>${status.results}</code></dd>` : null}
    </dl>
    ${readOnly || trouble.unknown || !isHere ? null : html`<div class="buttons">
      ${canStop ? html`<button type="button" class="danger" onClick=${() => setAsking("stop")}>Stop</button>` : null}
      ${over ? html`<button type="button" class="danger" onClick=${() => setAsking("remove")}>Remove</button>` : null}</div>`}
    ${asking === "stop" ? html`<${Confirm} verb="Stop it" question=${`Stop run ${name}? ${isMade ? "No further step starts, and the ranks of those that run" : "Its ranks"} get SIGTERM, and SIGKILL ten seconds later.`}
      onNo=${() => setAsking(null)} onYes=${async () => { await post(`${path}/stop`); setAsking(null); }} />` : null}
    ${asking === "remove" ? html`<${Confirm} verb="Remove it" question=${`Remove run ${name}${isMade ? " and its steps" : ""}? It is forgotten and its name is free; its results stay.`}
      onNo=${() => setAsking(null)} onYes=${async () => { await post(`${path}/remove`); location.hash = "#/"; }} />` : null}
    <${Cause} cause=${status.root_cause} />
    ${isMade ? html`<${Steps} name=${name} steps=${steps} links=${run.links} skew=${skew} over=${over} objective=${status.objective} />`
      : html`<h2>Where the time went</h2><${Phases} phases=${run.phases} skew=${skew} over=${over} />`}
    ${isHere ? html`<${Body} ...${{ name, path, run, isMade, over, lines, curves, wanted, ask, choose }} />` : null}`;
}

// What it prints, measures and leaves.
function Body({ name, path, run, isMade, over, lines, curves, wanted, ask, choose }) {
  const { state, workers } = run.status;
  const ranks = isMade ? null : workers.flatMap((worker) => worker.ranks);
  return html`
    <h2>Curves</h2><${Curves} found=${curves} over=${over} ask=${(what) => ask(what, "charts")} />
    <h2>Output</h2>
    <${Lines} found=${lines} ranks=${ranks} wanted=${wanted} ask=${choose} />
    ${isMade ? null : html`<h2>Workers</h2><${Workers} workers=${workers} />`}
    <h2>Results</h2><${Results} path=${path} name=${name} state=${state} />
    <details><summary>What happened</summary><${Events} path=${path} state=${state} /></details>
    ${isMade ? null : html`<details><summary>Job file</summary><pre>${run.job || "It cannot be read."}</pre></details>`}`;
}

const LOOK = 10000; // milliseconds between two looks

// Who keeps the others waiting, and what slows a GPU down.
function Slow({ path }) {
  const [found, setFound] = useState([]);
  useEffect(() => {
    const look = () => get(`${path}/slow`).then(setFound, () => setFound([]));
    look();
    const timer = setInterval(look, LOOK);
    return () => clearInterval(timer);
  }, [path]);
  return html`<div role="status">${found.map((each) => html`<p class="slow">${plain(each.text)}</p>`)}</div>`;
}

function Took({ status, skew, over }) {
  useTick(!over);
  return html`${duration((status.ended ?? Date.now() / 1000 - skew) - status.created)}${over ? "" : " so far"}`;
}

const Progress = ({ done, text, rank }) => html`
  ${done === null ? null : html`<progress aria-label="progress" max="1" value=${done}></progress> `}${plain(text)}${rank ? ` (rank ${rank})` : ""}`;

// The newest checkpoint that the run's keeper has, and since when.
function Checkpoint({ path, size, kept_at, skew }) {
  useTick();
  return html`${plain(path)}, ${bytes(size)}, kept ${duration(Date.now() / 1000 - skew - kept_at)} ago`;
}

const Cause = ({ cause }) => cause ? html`
  <section class="cause" aria-label="root cause"><h2>Why it failed</h2>
    <p><strong>${plain(cause.summary)}</strong></p>
    ${cause.hint ? html`<p>${plain(cause.hint)}</p>` : null}
    ${cause.tail.length ? html`<p>The last lines${cause.rank === null ? "" : ` of rank ${cause.rank}`}:</p><pre>${cause.tail.map(plain).join("\n")}</pre>` : null}
    ${cause.others.length ? html`<p>${cause.others.length} more rank${cause.others.length === 1 ? "" : "s"} ended after it.</p>` : null}
  </section>` : null;

function Phases({ phases, skew, over }) {
  useTick(!over);
  const now = Date.now() / 1000 - skew;
  const took = (phase) => Math.max(0, (phase.end ?? now) - phase.start);
  const all = phases.reduce((sum, phase) => sum + took(phase), 0) || 1;
  return html`
    <div class="bar" aria-hidden="true">${phases.map((phase) =>
      html`<span class=${`phase ${phase.name}`} title=${`${phase.name}: ${duration(took(phase))}`} style=${{ flexGrow: took(phase) / all }}></span>`)}</div>
    <ol class="phases">${phases.map((phase) => html`<li><span class=${`phase ${phase.name}`} aria-hidden="true"></span>
      ${phase.name} ${duration(took(phase))}${phase.end === null && !over ? " so far" : ""}${phase.reason ? html` <small>${plain(phase.reason)}</small>` : null}</li>`)}</ol>`;
}

const MANY = 8; // workers on a node, beyond which it has the whole width

// Numbers that follow each other as the first and the last: ranks 0-7, 16.
function listed(what, values) {
  const spans = [];
  for (const value of values) {
    const last = spans[spans.length - 1];
    if (last && String(Number(last[1]) + 1) === String(value)) last[1] = value;
    else spans.push([value, value]);
  }
  return `${what}${values.length === 1 ? "" : "s"} ${spans.map(([first, last]) => first === last ? first : `${first}-${last}`).join(", ")}`;
}

function Workers({ workers }) {
  if (workers.length === 0) return html`<p>They have no place yet.</p>`;
  const nodes = new Map();
  workers.forEach((worker) => nodes.set(worker.node || "-", [...(nodes.get(worker.node || "-") || []), worker]));
  return html`<ul class="map">${[...nodes].map(([node, on]) => html`<li class=${on.length > MANY ? "many" : ""}><strong>${node}</strong><ul>${on.map((worker) => html`
    <li>worker ${worker.worker}${worker.role === "worker" ? "" : ` (${worker.role})`}: ${worker.state}
      <br />${listed("rank", worker.ranks)}${worker.gpus.length ? `, ${listed("GPU", worker.gpus)}` : ""}
      ${worker.reason ? html`<br /><small>${plain(worker.reason)}</small>` : null}</li>`)}</ul></li>`)}</ul>`;
}

function Results({ path, name, state }) {
  const [found, setFound] = useState(null);
  const look = () => get(`${path}/results`).then(setFound, (error) => setFound({ error: error.message, hint: error.hint }));
  useEffect(() => { look(); }, [path, state]);
  if (found === null) return html`<p>Looking …</p>`;
  if (found.error) return html`<${Trouble} ...${found} />`;
  return html`
    ${!found.here ? html`<p>They are not on this machine: <code>echelon get ${name}</code> brings them.</p>`
      : found.files.length === 0 ? html`<p>There are none so far.</p>`
      : html`<${Table} heads=${["File", "Size", "Changed"]} rows=${found.files.map((file) => ({ key: file.path, cells: [
          html`<a download href=${`${path}/results/${file.path.split("/").map(encodeURIComponent).join("/")}`}>${plain(file.path)}</a>`,
          bytes(file.bytes), html`<span class="time">${moment(file.changed)}</span>`] }))} />`}
    ${found.more ? html`<p>and more in <code>${found.folder}</code>.</p>` : null}
    <div class="buttons"><button type="button" onClick=${look}>Refresh</button></div>`;
}

function Events({ path, state }) {
  const [found, setFound] = useState([]);
  useEffect(() => { get(`${path}/events`).then(setFound, () => setFound([])); }, [path, state]);
  return html`<${Table} heads=${["Time", "Event", "Worker", "What"]} rows=${found.map((event, at) => ({ key: at, cells: [
    time(event.at), event.kind, event.worker ?? "-",
    plain(checkpointed(event) || event.reason || event.cause?.summary || event.outcome || changed(event.steps) || (event.exit_code === undefined ? "" : `exit code ${event.exit_code}`))] }))} />`;
}

// What became of a checkpoint; nothing for any other event.
function checkpointed({ kind, path, size, worker }) {
  if (kind === "checkpoint" && path !== undefined) return `checkpoint ${path}${size === undefined ? "" : ` (${bytes(size)})`} is with the keeper`;
  return kind === "restored" && path !== undefined ? `worker ${worker} got ${path} back` : "";
}

const changed = (steps) => (steps || []).map((step) => `${step.name}: ${step.state.replace("-", " ")}`).join(", ");
