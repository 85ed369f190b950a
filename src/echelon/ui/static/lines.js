// What the ranks wrote: the last lines, live, and earlier ones on demand. The page never holds more than MOST.

import { html, useEffect, useRef, useState } from "/static/preact.js";
import { get } from "/static/server.js";
import { clock, plain } from "/static/words.js";

const MOST = 2000;
const [NUMBER, AT, RANK, WORKER, STREAM, TEXT] = [0, 1, 2, 3, 4, 5];

// Lines after a message of the server.
export function taken(lines, message) {
  return message.anew ? message.lines : [...lines, ...message.lines].slice(-MOST);
}

export function Lines({ name, lines, setLines, count, ranks, wanted, ask }) {
  const box = useRef(null);
  const [following, setFollowing] = useState(true);
  const [text, setText] = useState(wanted.search);
  const [trouble, setTrouble] = useState("");
  useEffect(() => {
    if (following) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, following]);
  useEffect(() => {
    if (text === wanted.search) return undefined;
    const timer = setTimeout(() => ask({ ...wanted, search: text }), 200);
    return () => clearTimeout(timer);
  }, [text]);
  const earlier = async () => {
    const query = new URLSearchParams({ before: lines.length ? lines[0][NUMBER] : count, search: wanted.search });
    if (wanted.rank !== null) query.set("rank", wanted.rank);
    try {
      const found = await get(`/api/runs/${encodeURIComponent(name)}/logs?${query}`);
      setFollowing(false);
      setTrouble(found.lines.length ? "" : "There are no earlier lines.");
      setLines((now) => [...found.lines, ...now].slice(0, MOST));
      box.current.scrollTop = 0;
    } catch (error) {
      setTrouble(error.message);
    }
  };
  const follow = (on) => {
    setFollowing(on);
    if (on) ask({ ...wanted }); // earlier lines make way for the newest
  };
  return html`
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Rank <select value=${wanted.rank ?? ""} onChange=${(event) =>
        ask({ ...wanted, rank: event.target.value === "" ? null : Number(event.target.value) })}>
        <option value="">all</option>${ranks.map((rank) => html`<option value=${rank}>${rank}</option>`)}
      </select></label>
      <label>Search <input type="search" value=${text} maxlength="200" onInput=${(event) => setText(event.target.value)} /></label>
      <label><input type="checkbox" checked=${following} onChange=${(event) => follow(event.target.checked)} /> follow</label>
      <button type="button" onClick=${earlier}>Earlier lines</button>
      <span role="status">${trouble || `${count} lines in all`}</span>
    </form>
    <div class="lines" ref=${box} tabindex="0" role="log" aria-live="off" aria-label="output of the ranks">
      ${lines.length === 0 ? html`<p>${wanted.search || wanted.rank !== null ? "No line is like that." : "Nothing was written so far."}</p>` : null}
      ${lines.map((line) => html`<div key=${line[NUMBER]} class=${line[STREAM]}>
        <span class="who">${clock(line[AT])} ${line[RANK] === null ? `agent ${line[WORKER]}` : `[${line[RANK]}]`}${line[STREAM] === "stderr" ? "!" : " "}</span>
        <span class="text">${plain(line[TEXT])}</span></div>`)}
    </div>`;
}
