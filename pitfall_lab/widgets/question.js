// The Question: choose what happens and why, then commit or skip; judged in the browser, so it also works while the kernel is busy.
// Text enters the page by textContent only.

const STYLE = `
.pl-question { border: 1px solid var(--jp-border-color1, #bbb); border-left: 6px solid #0072B2; border-radius: 3px; padding: 8px 14px; margin: 6px 0;
  max-width: 64em; box-sizing: border-box; color: var(--jp-content-font-color1, #1a1a1a); font-family: var(--jp-content-font-family, sans-serif); line-height: 1.5 }
.pl-question pre { background: var(--jp-layout-color2, #f3f3f3); padding: 6px 10px; overflow-x: auto; margin: 4px 0; font-family: var(--jp-code-font-family, monospace); font-size: 13px }
.pl-question .pl-number { color: var(--jp-content-font-color2, #595959); user-select: none }
.pl-question fieldset { border: 0; padding: 0; margin: 8px 0 }
.pl-question legend { font-weight: 600; padding: 0 }
.pl-question label { display: flex; gap: 8px; align-items: baseline; min-height: 28px; padding: 2px 4px; cursor: pointer; overflow-wrap: anywhere }
.pl-question label:focus-within { outline: 2px solid #0072B2 }
.pl-question button { min-height: 28px; padding: 2px 14px; margin-right: 8px; cursor: pointer; font: inherit; color: inherit;
  background: var(--jp-layout-color1, #fff); border: 1px solid var(--jp-border-color1, #888); border-radius: 3px }
.pl-question button:focus-visible { outline: 2px solid #0072B2; outline-offset: 2px }
.pl-question button:disabled { opacity: 0.6; cursor: default }
.pl-question .pl-mark { flex: none; font-weight: 600 }
.pl-question .pl-refutation { border-left: 3px dashed var(--jp-border-color1, #888); padding: 2px 12px; margin: 8px 0 }
.pl-question .pl-refutation p { margin: 4px 0 }
`;

// Keeps the notebook from taking arrow keys and letters. JupyterLab looks for it from the focused element upwards, and its own
// selectors match that element first: an ancestor that carries the attribute comes too late.
const OWN_KEYS = "data-lm-suppress-shortcuts";

function add(parent, tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (tag === "input" || tag === "button" || "tabindex" in attributes) node.setAttribute(OWN_KEYS, "true");
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}

// The program with line numbers, because the answers speak of lines; the numbers are not part of a selection.
function listing(parent, program) {
  const pre = add(parent, "pre", undefined, { tabindex: "0" });
  program.split("\n").forEach((line, index) => {
    add(pre, "span", String(index + 1).padStart(2), { class: "pl-number" });
    pre.append(`  ${line}\n`);
  });
}

// One group of radio buttons; returns the chosen index (or -1) and a way to lock it and to mark each row.
function group(form, legend, rows, name) {
  const box = add(form, "fieldset");
  add(box, "legend", legend);
  const inputs = rows.map((row, index) => {
    const label = add(box, "label");
    const input = add(label, "input", undefined, { type: "radio", name, value: String(index) });
    add(label, "span", row.text);
    return input;
  });
  return {
    inputs,
    chosen: () => inputs.findIndex((input) => input.checked),
    lock(right, yours) {
      inputs.forEach((input, index) => {
        input.disabled = true;
        const said = [];
        if (rows[index].right) said.push(right);
        if (input.checked) said.push(yours);
        if (said.length) add(input.parentElement, "span", said.join(" · "), { class: "pl-mark" });
      });
    },
  };
}

function refute(parent, refutation, words) {
  const box = add(parent, "div", undefined, { class: "pl-refutation" });
  add(box, "p", `“${refutation.belief}”`);
  add(box, "p", `${words.tempting} ${refutation.tempting}`);
  add(box, "p", `${words.fact} ${refutation.fact}`);
  add(box, "p", words.check);
  add(box, "pre", refutation.check, { tabindex: "0" });
}

function verdict(content, choice, reason) {
  const words = content.words;
  if (choice < 0) return words.skipped;
  if (!content.choices[choice].right) return words.wrong;
  if (!content.reasons.length) return words.right;
  return reason >= 0 && content.reasons[reason].right ? words.right_reason : words.wrong_reason;
}

function render({ model, el }) {
  const content = JSON.parse(model.get("_content"));
  const words = content.words;
  const name = `pl-${Math.random().toString(36).slice(2)}`;
  add(el, "style", STYLE);
  const root = add(el, "div", undefined, { class: "pl-question", lang: content.language, role: "group", "aria-label": words.title, [OWN_KEYS]: "true" });
  add(root, "div", words.title, { style: "font-weight:600" });
  listing(root, content.program);
  const form = add(root, "form");
  const what = group(form, words.what, content.choices, `${name}-what`);
  const why = content.reasons.length ? group(form, words.because, content.reasons, `${name}-why`) : null;
  const commit = add(form, "button", words.commit, { type: "submit" });
  const skip = add(form, "button", words.skip, { type: "button" });
  const answer = add(root, "div", undefined, { "aria-live": "polite" });
  commit.disabled = true;

  // Both parts must be chosen before a prediction counts as one.
  const complete = () => what.chosen() >= 0 && (!why || why.chosen() >= 0);
  form.addEventListener("change", () => { commit.disabled = !complete(); });

  function reveal(choice, reason, skipped) {
    what.lock(words.torch, words.yours);
    if (why) why.lock(words.decides, words.yours);
    commit.disabled = true;
    skip.disabled = true;
    add(answer, "p", verdict(content, choice, reason), { style: "font-weight:600" });
    if (content.message) add(answer, "pre", content.message, { tabindex: "0" });
    if (choice >= 0) content.choices[choice].refutations.forEach((refutation) => refute(answer, refutation, words));
    if (!skipped) record({ choice, reason, committed: true });
  }
  // The kernel only keeps the answer; when it is gone, the question has been answered all the same.
  function record(answered) {
    try {
      for (const [key, value] of Object.entries(answered)) model.set(key, value);
      model.save_changes();
    } catch (error) {
      console.debug("pitfall_lab: the answer was not kept", error);
    }
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!commit.disabled && complete()) reveal(what.chosen(), why ? why.chosen() : -1, false);
  });
  skip.addEventListener("click", () => {
    record({ skipped: true });
    reveal(-1, -1, true);
  });
  root.addEventListener("keydown", (event) => { if (event.key === "Escape") document.activeElement?.blur(); });
  if (model.get("committed")) restore(what, why, model, reveal);
  else if (model.get("skipped")) reveal(-1, -1, true);
}

// A second view of the same question (or the same page reloaded) shows what was answered.
function restore(what, why, model, reveal) {
  const [choice, reason] = [model.get("choice"), model.get("reason")];
  if (choice >= 0) what.inputs[choice].checked = true;
  if (why && reason >= 0) why.inputs[reason].checked = true;
  reveal(choice, reason, true);
}

export default { render };
