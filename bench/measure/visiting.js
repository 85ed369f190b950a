// How a page is used: each step acts, and is answered when `seen` says so, in a frame that is drawn. Milliseconds.
() => {
  const box = document.querySelector(".lines");
  const [rank, search] = document.querySelectorAll(".filters select, .filters input");
  const status = document.querySelector(".filters [role=status]");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const at = (part) => {
    box.scrollIntoView({ block: "center" }); // curves may have come above it
    const { x, y } = box.getBoundingClientRect();
    return document.elementFromPoint(x + 50, y + 5 + part * (box.clientHeight - 10))?.closest(".line");
  };
  const full = () => at(0) && at(0.5) && at(1);
  const all = (isWanted) => {
    const found = [...box.querySelectorAll(".line")].map((line) => line.textContent);
    return found.length > 0 && found.every(isWanted);
  };
  const set = (element, value, kind) => {
    element.value = value;
    element.dispatchEvent(new Event(kind, { bubbles: true }));
  };
  const step = async (act, seen) => {
    await frame();
    const began = performance.now();
    act();
    do { await frame(); } while (!seen() && performance.now() - began < 60000);
    if (!seen()) throw new Error(`no answer to ${act}: ${status.textContent}, ${box.scrollTop} of ${box.scrollHeight}`);
    return performance.now() - began;
  };
  const count = () => {
    window.most = Math.max(window.most, document.querySelectorAll("*").length);
    requestAnimationFrame(count);
  };
  window.most = 0;
  count();
  window.visit = {
    scroll: (part) => step(() => { box.scrollTop = part * (box.scrollHeight - box.clientHeight); }, full),
    key: (key) => {
      const before = at(0.5)?.textContent;
      const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
      return step(() => box.dispatchEvent(event), () => full() && at(0.5).textContent !== before);
    },
    rank: (number) => step(() => set(rank, number, "change"), () => all((text) => text.includes(`[${number}]`))),
    search: (words) => step(() => set(search, words, "input"), () => all((text) => text.includes(words))),
    everything: async () => {
      await step(() => set(rank, "", "change"), () => rank.value === "");
      await step(() => set(search, "", "input"), () => !status.textContent.includes(" of "));
    },
    middle: () => at(0.5).textContent,
  };
}
