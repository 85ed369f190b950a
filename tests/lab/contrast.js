// The texts and signs of the panel, and those that it puts at cells, that lack contrast with what is behind them.
([least, graphics]) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = text => {  // whatever way the browser writes a colour
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map(at => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
  const behind = node => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = colour => {
    const [r, g, b] = colour.slice(0, 3).map(each => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (text, below) => {
    const [more, less] = [light(over(text, below)), light(below)].sort((a, b) => b - a);
    return (more + 0.05) / (less + 0.05);
  };
  const found = [];
  const check = (what, colour, below, needed) => {
    const ratio = contrast(rgba(colour), below);
    if (ratio < needed) found.push(`${what}: ${ratio.toFixed(2)} (${colour} on ${below.slice(0, 3).map(Math.round)})`);
  };
  const own = [...document.querySelectorAll(".echelon-panel, .echelon-panel *, [data-echelon-step], .echelon-notes *")];
  for (const node of own) {
    if (!node.checkVisibility() || node.disabled || node.tagName === "OPTION" || node.tagName === "TITLE") continue;
    const style = getComputedStyle(node);
    const text = [...node.childNodes].filter(each => each.nodeType === 3).map(each => each.data.trim()).join(" ").trim();
    const name = `${node.tagName.toLowerCase()} ${(text || node.value || node.placeholder || "").slice(0, 30)}`;
    if (node instanceof SVGElement) {
      const box = node.closest("g.step")?.querySelector("rect");
      const below = box ? over(rgba(getComputedStyle(box).fill), behind(document.querySelector(".echelon-graph")))
        : behind(document.querySelector(".echelon-graph"));
      if (node.tagName === "text") check(name, style.fill, below, least);
      const line = ["path", "line", "polyline"].includes(node.tagName) && style.fill === "none";
      if (line) check(name, style.stroke, behind(document.querySelector(".echelon-graph")), graphics);
      continue;
    }
    const shown = node.type === "checkbox" ? "" : node.value;
    if (text || shown || node.tagName === "SELECT") check(name, style.color, behind(node), least);
    if (node.placeholder && !node.value) check(name, getComputedStyle(node, "::placeholder").color, behind(node), least);
    const sign = getComputedStyle(node, "::before");
    if (!["none", "normal", ""].includes(sign.content)) check(`${name} ${sign.content}`, sign.color, behind(node), node.dataset.echelonStep ? least : graphics);
  }
  return found;
}
