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

const SILENCE = 20000; // milliseconds after which a connection is dead: the server says something every five seconds

// Messages of one page, for as long as it is shown. After a loss the server tells everything anew. A connection
// may end without a word, while a laptop sleeps or its way to the server is gone: it is made again, too.
export function useLive(query, take) {
  const [connected, setConnected] = useState(null);
  const socket = useRef(null);
  const taking = useRef(take);
  const asked = useRef(new Map()); // the last of each kind
  taking.current = take;
  useEffect(() => {
    let left = false, timer = 0, pause = 500, newest = Date.now();
    const open = () => {
      newest = Date.now();
      const made = new WebSocket(`ws://${location.host}/api/live?${query}`);
      socket.current = made;
      made.onopen = () => {
        pause = 500;
        setConnected(true);
        for (const what of asked.current.values()) made.send(JSON.stringify(what));
      };
      made.onmessage = (event) => {
        newest = Date.now();
        taking.current(JSON.parse(event.data));
      };
      made.onclose = () => {
        if (left || socket.current !== made) return;
        setConnected(false);
        timer = setTimeout(open, pause);
        pause = Math.min(pause * 1.5, 5000);
      };
    };
    const lost = () => {
      const dead = socket.current;
      if (dead.readyState > WebSocket.OPEN || Date.now() - newest < SILENCE) return;
      setConnected(false);
      open();
      dead.close(); // its own end changes nothing any more
    };
    const watch = setInterval(lost, SILENCE / 4);
    addEventListener("online", lost);
    open();
    return () => {
      left = true;
      clearTimeout(timer);
      clearInterval(watch);
      removeEventListener("online", lost);
      socket.current.close();
    };
  }, [query]);
  const ask = (what, kind = "lines") => {
    asked.current.set(kind, what);
    if (socket.current?.readyState === WebSocket.OPEN) socket.current.send(JSON.stringify(what));
  };
  return { connected, ask };
}
