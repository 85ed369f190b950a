// What a person would stumble over who does not see the page, or not well.
() => {
  const found = [];
  const all = (query) => [...document.querySelectorAll(query)].filter((each) => each.checkVisibility());
  const said = (each) => (each.getAttribute("aria-label") || each.labels?.[0]?.textContent || each.textContent || each.title || "").trim();
  const of = (each) => each.outerHTML.slice(0, 90);

  if (!document.documentElement.lang) found.push("the page has no language");
  if (all("main").length !== 1) found.push("there is not one main");
  if (all("h1").length !== 1) found.push(`there are ${all("h1").length} h1`);
  let level = 0;
  for (const each of all("h1, h2, h3, h4")) {
    const now = Number(each.tagName[1]);
    if (now > level + 1) found.push(`${each.tagName} after h${level}: ${each.textContent}`);
    level = now;
  }
  for (const each of all("a, button, input, select, summary, progress, [role=img], [role=log], [role=group]")) {
    if (!said(each)) found.push(`no name: ${of(each)}`);
  }
  for (const each of all("a:not([href])")) found.push(`a link to nowhere: ${of(each)}`);
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  if (new Set(ids).size !== ids.length) found.push("an id is there twice");
  for (const each of all("table")) {
    if (!each.querySelector("th[scope=col]") && !each.matches(".u-legend")) found.push(`a table without headings: ${of(each)}`);
  }
  for (const each of all("button, select, input")) {
    const box = each.getBoundingClientRect();
    if (box.height < 24 && each.type !== "checkbox") found.push(`${Math.round(box.height)} pixels tall: ${of(each)}`);
  }

  const rgba = (text) => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const behind = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((part) => part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const each of all("body *")) {
    const text = [...each.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!text || each.closest("svg, noscript, option, .skip")) continue;
    const [more, less] = [light(rgba(getComputedStyle(each).color)), light(behind(each))].sort((a, b) => b - a);
    const ratio = (more + 0.05) / (less + 0.05);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${of(each)}`);
  }
  for (const each of all("*")) {
    const style = getComputedStyle(each);
    if (style.animationName !== "none" || parseFloat(style.transitionDuration) > 0) found.push(`it moves: ${of(each)}`);
  }
  return found;
}
