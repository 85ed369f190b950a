// Metrics as curves.

import { html, useEffect, useRef, useState } from "/static/preact.js";
import { count, number, plain } from "/static/words.js";

const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]]; // curves differ without colour, too
const COLOURS = ["--curve-1", "--curve-2", "--curve-3", "--curve-4"];

const AT_ONCE = 48; // charts, unless more are asked for

export const NO_CURVES = { metrics: [], found: 0, count: 0, full: false };

export function Curves({ found, over, ask }) {
  const [text, setText] = useState("");
  const [most, setMost] = useState(AT_ONCE);
  const choose = (search, many) => { setText(search); setMost(many); ask({ charts: search, most: many }); };
  const charts = found.metrics;
  if (found.count === 0) return html`<p>Nothing was measured${over ? "" : " so far"}: a line such as <code>step=3 loss=0.53</code> is a metric.</p>`;
  const many = found.count > AT_ONCE;
  return html`
    ${many || text ? html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Find a metric <input type="search" value=${text} maxlength="200" onInput=${(event) => choose(event.target.value, AT_ONCE)} /></label>
      <span role="status">${count(charts.length)} of ${count(found.count)} metrics are drawn${text ? `; ${count(found.found)} have that in their name` : ""}</span>
    </form>` : null}
    ${found.full ? html`<p>There are more curves than this page keeps; <code>echelon metrics</code> lists them all.</p>` : null}
    <div class="charts">${charts.map((chart) => chart.curves.some((curve) => curve.x.length)
    ? html`<${Chart} key=${chart.name} chart=${chart} over=${over} />`
    : html`<figure key=${`${chart.name} without points`}><${Caption} chart=${chart} over=${over} /><p>No value that could be drawn.</p></figure>`)}</div>
    ${charts.length < found.found ? html`<p class="buttons"><button type="button" onClick=${() => choose(text, most + AT_ONCE)}>
      Show ${Math.min(AT_ONCE, found.found - charts.length)} more</button></p>` : null}`;
}

const Caption = ({ chart, over }) => html`<figcaption><strong>${plain(chart.name)}</strong> ${over ? "last" : "now"} ${number(chart.last)}</figcaption>`;

// Whether the user's screen is dark: a drawing has its colours for good, and is made again.
function useDark() {
  const asked = matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(asked.matches);
  useEffect(() => {
    const changed = () => setDark(asked.matches);
    asked.addEventListener("change", changed);
    return () => asked.removeEventListener("change", changed);
  }, []);
  return dark;
}

export function Chart({ chart, over }) {
  const dark = useDark();
  const place = useRef(null);
  const drawn = useRef(null);
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const grid = { stroke: style.getPropertyValue("--line").trim(), width: 1 };
    const tables = chart.curves.map((curve) => aligned(curve));
    const data = tables.length === 1 ? tables[0] : window.uPlot.join(tables);
    const shape = chart.curves.map((curve) => curve.label).join("\n") + chart.axis + dark;
    if (drawn.current?.shape === shape) {
      drawn.current.plot.setData(data);
      return;
    }
    drawn.current?.plot.destroy();
    const plot = new window.uPlot({
      width: place.current.clientWidth || 320, height: 200,
      scales: { x: { time: false } },
      axes: [{ stroke: ink, grid, label: chart.axis, labelSize: 18, size: 34 }, { stroke: ink, grid, size: 62, values: (_, places) => places.map(number) }],
      series: [{ label: chart.axis }, ...chart.curves.map((curve, at) => ({
        label: plain(curve.label) || plain(chart.name), width: 2, spanGaps: true,
        stroke: style.getPropertyValue(COLOURS[at % COLOURS.length]).trim(), dash: DASHES[at % DASHES.length],
        points: { show: curve.x.length < 40 },
      }))],
      legend: { show: chart.curves.length > 1 },
    }, data, place.current);
    drawn.current = { plot, shape };
  }, [chart, dark]);
  useEffect(() => {
    const fit = new ResizeObserver(() => {
      drawn.current?.plot.setSize({ width: place.current.clientWidth || 320, height: 200 });
    });
    fit.observe(place.current);
    return () => { fit.disconnect(); drawn.current?.plot.destroy(); drawn.current = null; };
  }, []);
  const name = plain(chart.name);
  return html`<figure>
    <${Caption} chart=${chart} over=${over} />
    <div ref=${place} role="img" aria-label=${`curve of ${name}, last value ${number(chart.last)}`}></div>
  </figure>`;
}

// uPlot wants each place once; of values at the same place the last counts.
function aligned({ x, y }) {
  const xs = [], ys = [];
  x.forEach((place, at) => {
    if (xs.length && xs[xs.length - 1] === place) ys[ys.length - 1] = y[at];
    else { xs.push(place); ys.push(y[at]); }
  });
  return [xs, ys];
}
