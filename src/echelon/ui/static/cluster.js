// The machine, or the cluster: devices, who holds what, the queue.

import { html, useState } from "/static/preact.js";
import { useLive } from "/static/server.js";
import { Notices, State, Table, useTitle } from "/static/parts.js";
import { bytes, duration, moment, plain } from "/static/words.js";

const MOST = 500; // nodes, or holders, at a time

// A run of another namespace, which has no page here, is called NAMESPACE/NAME.
const link = (name) => name.includes("/") ? name : html`<a href=${`#/run/${encodeURIComponent(name)}`}>${name}</a>`;

const when = (at) => html`<span class="time">${moment(at)}</span>`;

export function Cluster() {
  const [found, setFound] = useState(null);
  const [trouble, setTrouble] = useState({});
  const { connected } = useLive("page=cluster", (message) => {
    if (message.kind === "cluster") setFound(message.cluster);
    if (message.kind === "trouble") setTrouble(message);
  });
  useTitle("Devices");
  const usage = found?.usage;
  return html`
    <${Notices} connected=${connected} trouble=${trouble} />
    <h1>Devices and queue</h1>
    ${found === null ? html`<p role="status">Looking …</p>` : html`
      ${usage === null ? html`<p>What is used here is not known.</p>`
        : "load" in usage ? html`<${Machine} usage=${usage} />` : html`<${Nodes} usage=${usage} />`}
      <h2>Queue</h2>
      ${found.queue.length === 0 ? html`<p>No run is queued.</p>` : html`
        <${Table} heads=${["Position", "Run", "Priority", "GPUs", "Waits since", "Could start", "User", "Reason"]}
          rows=${found.queue.map((each) => ({ key: each.name, cells: [
            each.position || "-", link(each.name), each.priority, each.gpus, when(each.since),
            each.earliest ? when(each.earliest) : "-", each.user || "-", plain(each.reason || "-")] }))} />`}
      ${found.holding.length === 0 ? null : html`
        <h2>Runs that hold GPUs</h2>
        <${Table} heads=${["Run", "GPUs", "Ends by", "User"]} rows=${found.holding.map((each) => ({ key: each.name,
          cells: [link(each.name), each.gpus, each.ends ? when(each.ends) : "-", each.user || "-"] }))} />`}`}`;
}

const Machine = ({ usage }) => html`
  <p>${usage.cpus} CPUs, load ${usage.load.toFixed(2)}; memory ${bytes(usage.memory_used)} of ${bytes(usage.memory)}.</p>
  <h2>GPUs</h2>
  ${usage.gpus.length === 0 ? html`<p>This machine has none.</p>` : html`<ul class="map">${usage.gpus.map((gpu) => html`
    <li class=${gpu.user ? "held" : "free"}><strong>GPU ${gpu.gpu}</strong> ${gpu.model}<br />
      ${gpu.user ? html`held by ${plain(gpu.user)}` : "free"}<br />
      ${bytes(gpu.used)} of ${bytes(gpu.memory)}${gpu.utilization === null ? "" : `, ${gpu.utilization} % busy`}</li>`)}</ul>`}
  <h2>Runs</h2>
  ${usage.runs.length === 0 ? html`<p>No run is active.</p>` : html`
    <${Table} heads=${["Run", "State", "Processes", "CPUs", "Memory", "GPUs"]} rows=${usage.runs.map((run) => ({
      key: run.name, cells: [link(run.name), html`<${State} state=${run.state} />`, run.processes,
        run.cpus.toFixed(2), bytes(run.memory), run.gpus.join(", ") || "-"] }))} />`}`;

// A square for each GPU: the letter of who holds it on that node, or empty where it is free.
function Gpus({ node }) {
  const held = Object.values(node.users || {}).flatMap((count, at) => Array(count).fill(letter(at)));
  const used = node.gpus_used ?? 0;
  const squares = [...held, ...Array(Math.max(0, used - held.length)).fill("?")].slice(0, node.gpus);
  return html`<span class="gpus" role="img" aria-label=${`${node.gpus_used ?? "an unknown number"} of ${node.gpus} GPUs used`}>
    ${squares.map((text) => html`<span class="gpu held">${text}</span>`)}
    ${Array(node.gpus - squares.length).fill(null).map(() => html`<span class="gpu"></span>`)}</span>`;
}

const known = (usage, name) => usage.runs.some((run) => run.name === name) ? link(name) : name;
const letter = (at) => at < 26 ? String.fromCharCode(65 + at) : "+";

const Nodes = ({ usage }) => html`
  <h2>Nodes</h2>
  ${usage.nodes === null ? html`<p>You may not list them; <code>echelon doctor --on k8s</code> says what is missing.</p>` : html`
    <ul class="map">${usage.nodes.slice(0, MOST).map((node) => html`
      <li class=${node.state === "ready" ? "free" : "held"}><strong>${node.node}</strong> ${node.state}<br />
        ${node.model ? html`${node.model}<br />` : null}
        ${node.gpus ? html`<${Gpus} node=${node} />` : null}
        ${node.cpus_used ?? "?"} of ${node.cpus} CPUs, ${node.memory_used === null ? "?" : bytes(node.memory_used)} of ${bytes(node.memory)}
        ${Object.entries(node.users || {}).map(([name, count], at) => html`<br /><span class="gpu held">${letter(at)}</span> ${known(usage, name)}: ${count} GPU${count === 1 ? "" : "s"}`)}</li>`)}</ul>
    ${usage.nodes.length > MOST ? html`<p>and ${usage.nodes.length - MOST} more nodes: <code>echelon top --on k8s</code> lists them.</p>` : null}`}
  ${!usage.holders.some((each) => each.gpus) ? null : html`<h2>Who holds GPUs</h2>
    <${Table} heads=${["Node", "Held by", "Pod", "GPUs", "For", "State"]} rows=${usage.holders.filter((each) => each.gpus).slice(0, MOST).map((each) => ({
      key: each.node + each.pod + each.name, cells: [each.node, known(usage, each.name), each.pod || "-", each.gpus,
        each.since === null ? "?" : duration(Date.now() / 1000 - each.since),
        each.state === "lingering" ? "idle: its run is over, its results are not fetched" : each.state] }))} />`}
  <h2>Runs</h2>
  ${usage.runs.length === 0 ? html`<p>No run is active.</p>` : html`
    <${Table} heads=${["Run", "State", "Workers", "CPUs", "Memory", "GPUs", "Nodes"]} rows=${usage.runs.map((run) => ({
      key: run.name, cells: [link(run.name), html`<${State} state=${run.state} />`, run.workers || "-", run.cpus,
        bytes(run.memory), run.gpus || "-", run.nodes.join(", ") || "-"] }))} />`}`;
