// From the address to a page.

import { html, render, useEffect, useState } from "/static/preact.js";
import { enter, get } from "/static/server.js";
import { Cluster } from "/static/cluster.js";
import { Pipeline } from "/static/pipeline.js";
import { Run } from "/static/run.js";
import { Runs } from "/static/runs.js";
import { Trouble } from "/static/parts.js";

function Page({ about }) {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => { setHash(location.hash); document.querySelector("main").focus(); scrollTo(0, 0); };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const [, kind, name] = /^#\/(run|pipeline)\/([^/]+)$/.exec(hash) || [];
  const here = kind || (hash === "#/cluster" ? "cluster" : "runs");
  const current = (page) => here === page ? "page" : undefined;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>To the content</a>
    <header><nav aria-label="pages"><strong>echelon</strong>
      <a href="#/" aria-current=${current("runs")}>Runs</a>
      <a href="#/cluster" aria-current=${current("cluster")}>Devices and queue</a></nav>
      <span>${about.place}${about.read_only ? ", only to look" : ""}</span></header>
    <main tabindex="-1">${kind === "run" ? html`<${Run} key=${name} name=${decodeURIComponent(name)} readOnly=${about.read_only} />`
      : kind === "pipeline" ? html`<${Pipeline} key=${name} name=${decodeURIComponent(name)} />`
      : here === "cluster" ? html`<${Cluster} />` : html`<${Runs} />`}</main>`;
}

const place = document.getElementById("page");
try {
  await enter();
  const about = await get("/api/about");
  place.replaceChildren();
  render(html`<${Page} about=${about} />`, place);
} catch (error) {
  place.replaceChildren();
  render(html`<main><h1>echelon</h1><${Trouble} error=${error.message}
    hint=${error.hint || "open the address that \`echelon ui\` printed"} /></main>`, place);
}
