// Runs beside each other: what differs, and their curves in one chart for each metric. Its address can be kept.

import { html, useEffect, useState } from "/static/preact.js";
import { get } from "/static/server.js";
import { State, Table, Trouble, useTitle } from "/static/parts.js";
import { Chart } from "/static/curves.js";
import { duration, number, plain } from "/static/words.js";

export function Compare({ names }) {
  const [found, setFound] = useState(null);
  const [trouble, setTrouble] = useState({});
  useTitle(names.join(", "));
  useEffect(() => {
    get(`/api/compare?${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`)
      .then(setFound, (error) => setTrouble({ error: error.message, hint: error.hint }));
  }, []);
  if (found === null) return html`<${Trouble} ...${trouble} /><h1>Compare</h1>${trouble.error ? null : html`<p role="status">Looking …</p>`}`;
  const { runs, differences, metrics, code, unread } = found.compared;
  const values = metrics.filter((each) => each.figures.some(Boolean)).slice(0, MOST);
  const heads = ["Run", "State", "Took", ...differences.map((each) => plain(`${each.about} ${each.name}`.trim())),
    ...values.map((each) => plain([each.part, each.source, each.name].filter(Boolean).join(" ")))];
  const rows = runs.map((run, at) => ({ key: run.uri, cells: [
    html`<a href=${`#/run/${encodeURIComponent(names[at])}`}>${names[at]}</a>`, html`<${State} state=${run.state} />`,
    duration(run.seconds), ...differences.map((each) => plain(each.values[at] ?? "") || "-"),
    ...values.map((each) => each.figures[at] ? number(each.figures[at].last) : "-")] }));
  return html`
    <h1>Compare</h1>
    ${unread.map((text) => html`<${Trouble} error=${plain(text)} />`)}
    <${Table} heads=${heads} rows=${rows} />
    <h2>Code</h2>${code.map((each) => html`<${Code} first=${runs[0].name} code=${each} />`)}
    <h2>Curves</h2>
    ${found.charts.length ? null : html`<p>Nothing was measured.</p>`}
    <div class="charts">${found.charts.filter((chart) => chart.curves.some((curve) => curve.x.length)).map((chart) =>
      html`<${Chart} key=${chart.name} chart=${chart} over=${true} />`)}</div>`;
}

const MOST = 12; // metrics that have a column

const VERDICTS = { same: "the same", unknown: "not known whether it differs" };

const Code = ({ first, code }) => html`
  <p>${first} and ${code.run}: ${VERDICTS[code.verdict] || `${code.files.length} file${code.files.length === 1 ? " differs" : "s differ"}`}${code.reason ? `: ${plain(code.reason)}` : ""}</p>
  ${code.files.map((file) => html`<details key=${file.path}><summary><code>${plain(file.path)}</code> ${file.change}, +${file.added} -${file.removed}</summary>
    <pre>${file.diff.split("\n").map(plain).join("\n") || "Its lines are not shown."}</pre></details>`)}`;
