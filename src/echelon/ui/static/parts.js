// What several pages show.

import { html, useEffect, useRef, useState } from "/static/preact.js";
import { plain, sign } from "/static/words.js";

export const State = ({ state }) =>
  html`<span class=${`state ${state}`}><span aria-hidden="true">${sign(state)}</span> ${state.replace("-", " ")}</span>`;

export const Trouble = ({ error, hint }) =>
  error ? html`<p class="trouble" role="alert"><strong>${error}</strong>${hint ? html`<br />${hint}` : null}</p>` : null;

// The tab's name: with the cluster, since another tab may show a run of the same name elsewhere.
let where = "";
export function setPlace({ context, namespace }) {
  where = [context, namespace].filter(Boolean).join("/");
}
export function useTitle(text) {
  useEffect(() => { document.title = [text, where, "echelon"].filter(Boolean).join(" · "); }, [text]);
}

// An address that leads nowhere.
export function Missing({ what, name }) {
  useTitle(`No such ${what}`);
  return html`<h1>No such ${what}</h1>
    <p>${name ? html`No ${what} is called <code>${shortened(name)}</code>.` : "There is nothing at this address."} <a href="#/">All runs</a></p>`;
}
// What this page has shown is no more.
const Removed = ({ name }) => html`<p class="trouble" role="alert"><strong>${name} was removed.</strong><br />
  This is what was seen of it last. <a href="#/">All runs</a></p>`;
const shortened = (text) => plain(text.length > 100 ? `${text.slice(0, 100)} …` : text);

const Away = ({ connected }) =>
  connected === false
    ? html`<p class="away" role="status">The server does not answer. If \`echelon ui\` was ended, start it again and open its new address; this page tries again by itself.</p>`
    : null;

// What stands above a page, in a place of its own: what comes and goes there must not move the rest, which would lose
// the focus, and where it was scrolled to.
export const Notices = ({ connected, trouble, name, more }) => html`<div class="notices"><${Away} connected=${connected} />
  ${trouble.unknown && name ? html`<${Removed} name=${name} />` : html`<${Trouble} ...${trouble} /><${Trouble} ...${more} />`}</div>`;

// A table that reads as cards on a narrow screen: each cell knows its heading.
export const Table = ({ heads, rows, caption }) => html`
  <table>
    ${caption ? html`<caption>${caption}</caption>` : null}
    <thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.key}>${row.cells.map((cell, at) =>
      html`<td data-head=${heads[at]} class=${cell === "-" ? "none" : undefined}>${cell}</td>`)}</tr>`)}</tbody>
  </table>`;

// Runs that are chosen to be laid beside each other: their names, in the order in which they were chosen.
export const Choice = ({ name, chosen, change }) => html`<input type="checkbox" aria-label=${`choose ${name}`} checked=${chosen.includes(name)}
  onChange=${() => change((was) => was.includes(name) ? was.filter((each) => each !== name) : [...was, name])} />`;

export const CompareLink = ({ chosen }) =>
  chosen.length > 1 ? html`<a href=${`#/compare/${chosen.join(",")}`}>Compare ${chosen.length} runs</a>` : null;

// A question before something is done that cannot be undone.
export function Confirm({ question, verb, onYes, onNo }) {
  const dialog = useRef(null);
  const [busy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState(null);
  useEffect(() => { dialog.current.showModal(); }, []);
  const yes = async () => {
    setBusy(true);
    try {
      await onYes();
    } catch (error) {
      setRefusal(error);
      setBusy(false);
    }
  };
  return html`
    <dialog ref=${dialog} onCancel=${(event) => { event.preventDefault(); onNo(); }}>
      <p>${question}</p>
      ${refusal ? html`<${Trouble} error=${refusal.message} hint=${refusal.hint} />` : null}
      <div class="buttons">
        <button type="button" onClick=${onNo} autofocus>No</button>
        <button type="button" class="danger" disabled=${busy} onClick=${yes}>${verb}</button>
      </div>
    </dialog>`;
}
