// A claim: decide with one click, then see the program that decides it, then the verdict. Judged in the browser, so it also works while the
// kernel is busy. Text enters the page by textContent only.

const STYLE = `
.pl-decide { border: 1px solid var(--jp-border-color1, #bbb); border-left: 6px solid var(--jp-border-color1, #888); border-radius: 3px; padding: 8px 14px;
  margin: 6px 0; max-width: 64em; box-sizing: border-box; color: var(--jp-content-font-color1, #1a1a1a);
  font-family: var(--jp-content-font-family, sans-serif); line-height: 1.5 }
.pl-decide .pl-quiet { color: var(--jp-content-font-color2, #595959); font-size: 90% }
.pl-decide p { margin: 4px 0 }
.pl-decide pre { background: var(--jp-layout-color2, #f3f3f3); padding: 6px 10px; overflow-x: auto; margin: 4px 0;
  font-family: var(--jp-code-font-family, monospace); font-size: 13px; line-height: 1.35 }
.pl-decide code { font-family: var(--jp-code-font-family, monospace); font-size: 13px }
.pl-decide button { min-height: 28px; padding: 2px 14px; margin: 2px 8px 2px 0; cursor: pointer; font: inherit; color: inherit;
  background: var(--jp-layout-color1, #fff); border: 1px solid var(--jp-border-color1, #888); border-radius: 3px }
.pl-decide button:focus-visible, .pl-decide pre:focus-visible { outline: 2px solid #0072B2; outline-offset: 2px }
.pl-decide button[aria-pressed=true] { border-width: 2px; font-weight: 600; opacity: 1 }
.pl-decide button:disabled { opacity: 0.6; cursor: default }
`;
const OWN_KEYS = "data-lm-suppress-shortcuts";
const DECISIONS = ["right", "wrong", "depends"];

function add(parent, tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (["button", "pre"].includes(tag)) node.setAttribute(OWN_KEYS, "true");
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}

// What stands between backticks is code.
function prose(parent, text, attributes = {}) {
  const line = add(parent, "p", undefined, attributes);
  text.split("`").forEach((part, index) => { if (index % 2) add(line, "code", part); else line.append(part); });
  return line;
}

function render({ model, el }) {
  const content = JSON.parse(model.get("_content"));
  const { words } = content;
  add(el, "style", STYLE);
  const root = add(el, "div", undefined, { class: "pl-decide", lang: content.language, role: "group", "aria-label": words.ask, [OWN_KEYS]: "true" });
  add(root, "div", content.place, { class: "pl-quiet" });
  prose(root, `“${content.claim}”`, { lang: "en" });
  const row = add(root, "div", undefined, { role: "group", "aria-label": words.ask });
  add(row, "strong", `${words.ask} `);
  const answer = add(root, "div", undefined, { "aria-live": "polite" });
  const buttons = DECISIONS.map((decision) => {
    const button = add(row, "button", words[decision], { type: "button", "aria-pressed": "false" });
    button.addEventListener("click", () => { record(decision); decide(decision, true); });
    return button;
  });

  // The kernel only keeps the decision; when it is gone, the claim has been decided all the same.
  function record(decision) {
    try {
      model.set("decision", decision);
      model.save_changes();
    } catch (error) {
      console.debug("pitfall_lab: the decision was not kept", error);
    }
  }

  function decide(decision, asked) {
    buttons.forEach((button, index) => {
      button.disabled = true;
      if (DECISIONS[index] === decision) button.setAttribute("aria-pressed", "true");
    });
    add(answer, "p", words.program);
    add(answer, "pre", content.program, { tabindex: "0" });
    add(answer, "p", words.output);
    add(answer, "pre", content.output, { tabindex: "0" });
    add(answer, "div", content.ran, { class: "pl-quiet" });
    if (!asked) { conclude(decision); return; }
    const more = add(answer, "button", words.verdict, { type: "button" });
    more.addEventListener("click", () => { more.remove(); conclude(decision); });
    more.focus();
  }

  function conclude(decision) {
    add(answer, "p", content.fitting.includes(decision) ? words.fits : words.differs, { style: "font-weight:600" });
    add(answer, "p", content.verdict, { style: "font-weight:600" });
    prose(answer, content.truth, { lang: "en" });
  }

  root.addEventListener("keydown", (event) => { if (event.key === "Escape") document.activeElement?.blur(); });
  const kept = model.get("decision");
  if (DECISIONS.includes(kept)) decide(kept, false);
}

export default { render };
