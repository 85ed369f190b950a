// From the address to a page.

import { html, render, useEffect, useState } from "/static/preact.js";
import { enter, get } from "/static/server.js";
import { Compare } from "/static/compare.js";
import { Cluster } from "/static/cluster.js";
import { Run } from "/static/run.js";
import { Runs } from "/static/runs.js";
import { Missing, Trouble, setPlace } from "/static/parts.js";

// What a fragment names: people cut, mend and mistype addresses. A pipeline is a run; older addresses call it one.
function read(hash) {
  const several = /^#\/compare\/([\w.,-]{1,2000})$/.exec(hash);
  if (several) return { kind: "compare", names: several[1].split(",").filter(Boolean) };
  const [, kind, coded] = /^#\/(run|pipeline)\/(.*)$/s.exec(hash) || [];
  if (!kind) return { kind: { "#/cluster": "cluster", "#/": "runs", "#": "runs", "": "runs" }[hash] || "nothing" };
  try {
    return { kind: "run", name: decodeURIComponent(coded.replace(/\/$/, "")) };
  } catch { // a % that is not an escape
    return { kind: "run", name: coded };
  }
}

function Page({ about }) {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => { setHash(location.hash); document.querySelector("main").focus(); scrollTo(0, 0); };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const { kind, name, names } = read(hash);
  const current = (page) => kind === page ? "page" : page === "runs" && name !== undefined ? "true" : undefined;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>To the content</a>
    <header><nav aria-label="pages"><strong>echelon</strong>
      <a href="#/" aria-current=${current("runs")}>Runs</a>
      <a href="#/cluster" aria-current=${current("cluster")}>Devices and queue</a></nav>
      <span class="place">${placed(about)}${about.read_only ? ", only to look" : ""}</span></header>
    <main tabindex="-1">${kind === "nothing" ? html`<${Missing} what="page" />`
      : name !== undefined && !/^[\w.-]{1,128}$/.test(name) ? html`<${Missing} what=${kind} name=${name} />`
      : kind === "compare" ? html`<${Compare} key=${names.join()} names=${names} />`
      : kind === "run" ? html`<${Run} key=${name} name=${name} readOnly=${about.read_only} />`
      : kind === "cluster" ? html`<${Cluster} />` : html`<${Runs} about=${about} />`}</main>`;
}

const placed = ({ place, context, namespace }) =>
  [context && `context ${context}`, namespace && `namespace ${namespace}`].filter(Boolean).join(", ") || place;

const place = document.getElementById("page");
try {
  await enter();
  const about = await get("/api/about");
  setPlace(about);
  place.replaceChildren();
  render(html`<${Page} about=${about} />`, place);
} catch (error) {
  place.replaceChildren();
  render(html`<main><h1>echelon</h1><${Trouble} error=${error.message}
    hint=${error.hint || "open the address that \`echelon ui\` printed"} /></main>`, place);
}
