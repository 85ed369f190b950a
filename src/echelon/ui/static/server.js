// Talking to the server: the token for a cookie, requests, and the page's one WebSocket.

import { useEffect, useRef, useState } from "/static/preact.js";

export async function enter() {
  const given = /^#token=([\w-]+)(\/.*)?$/.exec(location.hash);  // and the page to begin with
  if (given) {
    // The token does not stay in the address, where a screenshot or the history would show it.
    history.replaceState(null, "", `/#${given[2] || "/"}`);
    await post("/api/session", { token: given[1] });
  }
}

export async function get(path) {
  return read(await fetch(path, { credentials: "same-origin" }));
}

export async function post(path, body = {}) {
  return read(await fetch(path, {
    method: "POST",
    credentials: "same-origin",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  }));
}

async function read(answer) {
  const text = await answer.text();
  const data = text ? JSON.parse(text) : null;
  if (!answer.ok) throw new Refusal(answer.status, data);
  return data;
}

export class Refusal extends Error {
  constructor(status, data) {
    super(data?.error || `the server answered ${status}`);
    this.status = status;
    this.hint = data?.hint || "";
  }
}

// Messages of one page, for as long as it is shown. After a loss the server tells everything anew.
export function useLive(query, take) {
  const [connected, setConnected] = useState(null);
  const socket = useRef(null);
  const taking = useRef(take);
  const asked = useRef(null);
  taking.current = take;
  useEffect(() => {
    let left = false, timer = 0, pause = 500;
    const open = () => {
      const made = new WebSocket(`ws://${location.host}/api/live?${query}`);
      socket.current = made;
      made.onopen = () => {
        pause = 500;
        setConnected(true);
        if (asked.current) made.send(JSON.stringify(asked.current));
      };
      made.onmessage = (event) => taking.current(JSON.parse(event.data));
      made.onclose = () => {
        if (left) return;
        setConnected(false);
        timer = setTimeout(open, pause);
        pause = Math.min(pause * 1.5, 5000);
      };
    };
    open();
    return () => {
      left = true;
      clearTimeout(timer);
      socket.current.close();
    };
  }, [query]);
  const ask = (what) => {
    asked.current = what;
    if (socket.current?.readyState === WebSocket.OPEN) socket.current.send(JSON.stringify(what));
  };
  return { connected, ask };
}
