// The list of runs.

import { html, useEffect, useState } from "/static/preact.js";
import { useLive } from "/static/server.js";
import { Away, State, Table, Trouble } from "/static/parts.js";
import { duration, isOver, moment, plain } from "/static/words.js";

const MOST = 300; // rows at a time

export function Runs() {
  const [runs, setRuns] = useState(null);
  const [trouble, setTrouble] = useState({});
  const [text, setText] = useState("");
  const [going, setGoing] = useState(false);
  const [everybody, setEverybody] = useState(false);
  const [, setTick] = useState(0);
  const { connected } = useLive("page=runs", (message) => {
    if (message.kind === "runs") setRuns(message.runs);
    if (message.kind === "trouble") setTrouble(message);
  });
  useEffect(() => {
    const timer = setInterval(() => setTick((tick) => tick + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => { document.title = "Runs · echelon"; }, []);
  const now = Date.now() / 1000;
  const wanted = (runs || []).filter((run) =>
    (everybody || run.own) && !(going && isOver(run.state)) &&
    (!text || `${run.name} ${run.command} ${run.state} ${run.owner}`.toLowerCase().includes(text.toLowerCase())));
  const others = (runs || []).some((run) => !run.own);
  return html`
    <${Away} connected=${connected} /><${Trouble} ...${trouble} />
    <h1>Runs</h1>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Find <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <label><input type="checkbox" checked=${going} onChange=${(event) => setGoing(event.target.checked)} /> only those that go on</label>
      ${others ? html`<label><input type="checkbox" checked=${everybody} onChange=${(event) => setEverybody(event.target.checked)} /> everybody's</label>` : null}
    </form>
    ${runs === null ? html`<p role="status">Looking …</p>`
      : wanted.length === 0 ? html`<p>${runs.length ? "No run is like that." : html`No runs yet: <code>echelon run train.py</code> starts one.`}</p>`
      : html`<${Table} heads=${["Run", "State", "Workers", "GPUs", "Age", "Took", "Command", "Reason"]}
          rows=${wanted.slice(0, MOST).map((run) => ({
            key: run.uri + run.created,
            cells: [
              html`<a href=${`#/run/${encodeURIComponent(run.name)}`}>${run.name}</a>`,
              html`<${State} state=${run.state} />`, run.workers, run.gpus || "-",
              html`<span title=${moment(run.created)}>${duration(now - run.created)}</span>`,
              duration((run.ended ?? now) - run.created),
              html`<code>${plain(run.command)}</code>`, plain(run.reason || ""),
            ],
          }))} />`}
    ${wanted.length > MOST ? html`<p>and ${wanted.length - MOST} more: find them by name.</p>` : null}`;
}
