// What the ranks wrote: any of a million lines, and the last ones as they come. The page holds the lines around
// those that it shows; the server finds them, by their places among those that are wanted (ui/spool.py).

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "/static/preact.js";
import { count as grouped, plain, time } from "/static/words.js";

const TALLEST = 8e6; // pixels; browsers cut what is much taller, so beyond it a pixel is more than one
const MARGIN = 30; // lines beyond those in sight that should be there
const [NUMBER, AT, RANK, WORKER, STREAM, TEXT, STEP] = [0, 1, 2, 3, 4, 5, 6];

export const NO_LINES = { lines: [], start: 0, first: 0, end: 0, count: 0, complete: true, at: null };

// Lines after a message of the server, which leaves out those that are as they were.
export const taken = (now, message) => ({ ...message, lines: message.lines ?? now.lines });

// Most steps have one rank.
function who(line) {
  if (line[STEP]) return `[${line[STEP]}${line[RANK] ? ` ${line[RANK]}` : ""}]`;
  return line[RANK] === null ? `agent ${line[WORKER]}` : `[${line[RANK]}]`;
}

// `ranks` to choose from; none of a run that is made of runs.
export function Lines({ found, ranks, wanted, ask }) {
  const { lines, start, first, end, count } = found;
  const box = useRef(null);
  const shown = useRef(null);
  const [text, setText] = useState(wanted.search);
  const [size, setSize] = useState({ line: 20, box: 384 });
  const [top, setTop] = useState(null); // the place of the line at the top of the box; null: the last ones are followed
  const following = top === null;

  const inSight = size.box / size.line;
  const whole = Math.max(size.box, (end - first) * size.line);
  const tall = Math.min(whole, TALLEST);
  const scale = tall > size.box ? (whole - size.box) / (tall - size.box) : 1;
  const lowest = Math.max(first, end - inSight);
  const place = following ? lowest : Math.min(Math.max(first, top), lowest);
  const scrolled = (place - first) * size.line / scale;

  const move = (to) => setTop(to >= lowest ? null : Math.max(first, to));
  const put = useRef(0); // where this page has scrolled to by itself
  useLayoutEffect(() => {
    // Where the user has scrolled, and may go on, the page does not scroll: its event is here, or on its way.
    // But a box whose place in the document changes, when something comes above it, is at 0 without any event.
    const now = box.current.scrollTop;
    const forgotten = now === 0 && put.current !== 0;
    if (!forgotten && (Math.abs(scrolled - put.current) < 1 || Math.abs(now - put.current) >= 2)) return;
    box.current.scrollTop = scrolled;
    put.current = box.current.scrollTop;
  });
  useLayoutEffect(() => {
    const measure = () => {
      const line = shown.current?.firstElementChild?.getBoundingClientRect().height || size.line;
      const height = box.current.clientHeight;
      if (line !== size.line || height !== size.box) setSize({ line, box: height });
    };
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [lines.length > 0, size]);

  // The lines that are asked for, when those in sight come near to the end of what is here.
  const lacks = !following && (start > Math.max(first, place - MARGIN) ||
    start + lines.length < Math.min(end, place + inSight + MARGIN));
  let at = wanted.at;
  if (following) at = null;
  else if (at === null) at = start; // these stay, whatever comes
  else if (lacks && found.at === at) at = Math.floor(place + inSight / 2 - lines.length / 2);
  useEffect(() => {
    if (at !== wanted.at) ask({ at });
  }, [at, wanted.at]);

  const onScroll = () => {
    const now = box.current.scrollTop;
    if (Math.abs(now - put.current) < 2) return;
    put.current = now;
    move(now >= tall - size.box - 1 ? end : first + now * scale / size.line);
  };
  const onWheel = (event) => {
    const to = place + (event.deltaMode === 1 ? event.deltaY : event.deltaY / size.line);
    if (scale === 1 || event.ctrlKey || !event.deltaY || (to > lowest && following) || (to < first && place === first)) return;
    event.preventDefault();
    move(to);
  };
  const onKeyDown = (event) => {
    const page = Math.max(1, Math.floor(inSight) - 1);
    const to = { ArrowUp: place - 1, ArrowDown: place + 1, PageUp: place - page, PageDown: place + page, Home: first, End: end }[event.key];
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    move(to);
  };
  const choose = (what) => { setTop(null); ask({ ...what, at: null }); };

  const rows = useMemo(() => lines.map((line) => html`<div key=${line[NUMBER]} class=${`line ${line[STREAM]}`}>
    <span class="who">${time(line[AT])} ${who(line)}${line[STREAM] === "stderr" ? "!" : " "}</span>
    <span class="text">${plain(line[TEXT])}</span></div>`), [lines]);
  const offset = scrolled - (place - start) * size.line;
  const filtered = wanted.search || wanted.rank !== null;
  const many = end - first;
  return html`
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      ${ranks === null ? null : html`<label>Rank <select value=${wanted.rank ?? ""} onChange=${(event) =>
        choose({ rank: event.target.value === "" ? null : Number(event.target.value) })}>
        <option value="">all</option>${ranks.map((rank) => html`<option value=${rank}>${rank}</option>`)}
      </select></label>`}
      <label>Search <input type="search" value=${text} maxlength="200" onInput=${(event) => {
        setText(event.target.value);
        choose({ search: event.target.value });
      }} /></label>
      <label><input type="checkbox" checked=${following} onChange=${(event) => setTop(event.target.checked ? null : place)} /> follow</label>
      <span role="status">${filtered ? `${grouped(many)} of ` : ""}${grouped(count)} ${count === 1 ? "line" : "lines"}${found.complete ? "" : ", searching …"}</span>
    </form>
    <div class="lines" ref=${box} tabindex="0" role="log" aria-live="off" aria-label="output of the ranks"
      onScroll=${onScroll} onWheel=${onWheel} onKeyDown=${onKeyDown}>
      ${many === 0 && found.complete ? html`<p>${filtered ? "No line is like that." : "Nothing was written so far."}</p>` : null}
      <div class="tall" style=${{ height: `${many === 0 ? 0 : tall}px` }}>
        <div ref=${shown} style=${{ transform: `translateY(${offset}px)` }}>${rows}</div></div>
    </div>`;
}
