// Small parts that all files share: elements, and questions to the server.

export function make(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else if (value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

let fields = 0;

export function labelled(text, field, more = null) {
  field.id = field.id || `echelon-field-${++fields}`;
  const label = make("label", {}, text);
  label.htmlFor = field.id;
  return make("div", { className: "echelon-field" }, label, field, more);
}

// What the server refused: `text` and `hint`, with the cell where there is one.
export class Refused extends Error {
  constructor(problem) {
    super(problem.text);
    this.hint = problem.hint || "";
  }
}

const AGAIN = 1000;  // ms until a question is repeated whose connection broke, as when a laptop changes networks

export function asker(ServerConnection) {
  return async (what, body) => {
    const settings = ServerConnection.makeSettings();
    const base = settings.baseUrl.endsWith("/") ? settings.baseUrl : `${settings.baseUrl}/`;
    const asked = { method: "POST", body: JSON.stringify(body) };
    const send = () => ServerConnection.makeRequest(`${base}echelon/${what}`, asked, settings);
    const answer = await send().catch(async error => {
      if (what === "run") throw error;  // it may have begun
      await new Promise(resolve => { setTimeout(resolve, AGAIN); });
      return send();
    });
    const found = await answer.json().catch(() => ({}));
    if (answer.ok) return found;
    if (answer.status === 422) throw new Refused(found);
    const hint = answer.status === 404 ? "Is echelon installed where the Jupyter server runs? `echelon doctor` tells." : "";
    throw new Refused({ text: found.message || `the server answered ${answer.status}`, hint });
  };
}
