// Values as words. What runs wrote is always set as text; here it loses what would only disturb.

import { useEffect, useState } from "/static/preact.js";

const SIGNS = {
  succeeded: "✓", failed: "✗", lost: "✗", damaged: "✗", "timed-out": "✗", stopped: "■", running: "▶",
  queued: "…", recorded: "…", starting: "↑", restarting: "↻", stopping: "■",
  cached: "✓", kept: "✓", waiting: "…", "ended-early": "■", "not-reached": "○",
};

export const sign = (state) => SIGNS[state] || "·";
export const isOver = (state) => ["succeeded", "failed", "stopped", "timed-out", "lost"].includes(state);

const COLOURS = /\x1b\[[0-9;:]*m|\x1b\[[0-2]?K/g;
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

// A rank's line: colours go, a bar that overwrote itself is its last state, all else is shown as what it is.
export function plain(text) {
  const kept = text.replace(COLOURS, "").replace(/\r+$/, "");
  return kept.slice(kept.lastIndexOf("\r") + 1).replace(CONTROLS, visible);
}

function visible(found) {
  const code = found.charCodeAt(0).toString(16);
  return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : `\\u${code.padStart(4, "0")}`;
}

export function duration(seconds) {
  const whole = Math.max(0, seconds);
  if (whole < 10) return `${whole.toFixed(1)} s`;
  if (whole < 60) return `${Math.floor(whole)} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${Math.floor(whole % 60)} s`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} days`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at && count < 100 ? Number(count.toFixed(1)) : Math.round(count)} ${units[at]}`;
}

// Draw again every second, for times that go on.
export function useTick(on = true) {
  const [, setTick] = useState(0);
  useEffect(() => {
    if (!on) return undefined;
    const timer = setInterval(() => setTick((tick) => tick + 1), 1000);
    return () => clearInterval(timer);
  }, [on]);
}

// Times are those of the browser's zone.
const day = (date) => date.toLocaleDateString("en-CA");
const clock = (date) => date.toTimeString().slice(0, 8);
export const moment = (at) => at ? `${day(new Date(at * 1000))} ${clock(new Date(at * 1000))}` : "";
// The same in short: the day only where it is another than today.
export function time(at) {
  if (!at) return "--:--:--";
  const date = new Date(at * 1000);
  return day(date) === day(new Date()) ? clock(date) : moment(at);
}
export const count = (value) => value.toLocaleString("en-US");
// What JSON cannot say as a number comes as a text: nan, inf, -inf.
export const number = (value) => typeof value === "number" ? Number(value.toPrecision(6)).toString() : value ?? "nan";
