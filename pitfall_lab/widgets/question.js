// The Question: choose what happens and why, then commit or skip; judged in the browser, so it also works while the kernel is busy.
// Text enters the page by textContent only.

const STYLE = `
.pl-question { border: 1px solid var(--jp-border-color1, #bbb); border-left: 6px solid #0072B2; border-radius: 3px; padding: 8px 14px; margin: 6px 0;
  max-width: 64em; box-sizing: border-box; color: var(--jp-content-font-color1, #1a1a1a); font-family: var(--jp-content-font-family, sans-serif); line-height: 1.5 }
.pl-question pre, .pl-question .pl-lines { background: var(--jp-layout-color2, #f3f3f3); padding: 6px 10px; overflow-x: auto; margin: 4px 0;
  font-family: var(--jp-code-font-family, monospace); font-size: 13px }
.pl-question .pl-number { color: var(--jp-content-font-color2, #595959); user-select: none }
.pl-question .pl-code { white-space: pre }
.pl-question fieldset { border: 0; padding: 0; margin: 8px 0; min-width: 0 }
.pl-question legend { font-weight: 600; padding: 0 }
.pl-question label { display: flex; gap: 8px; align-items: baseline; min-height: 28px; padding: 2px 4px; cursor: pointer; overflow-wrap: anywhere }
.pl-question label:focus-within { outline: 2px solid #0072B2 }
.pl-question .pl-cells { display: grid; gap: 2px; overflow-x: auto; margin: 4px 0 }
.pl-question .pl-cells label { border: 1px solid var(--jp-border-color1, #888); font-family: var(--jp-code-font-family, monospace); font-size: 13px; white-space: nowrap }
.pl-question button { min-height: 28px; padding: 2px 14px; margin-right: 8px; cursor: pointer; font: inherit; color: inherit;
  background: var(--jp-layout-color1, #fff); border: 1px solid var(--jp-border-color1, #888); border-radius: 3px }
.pl-question button:focus-visible, .pl-question summary:focus-visible { outline: 2px solid #0072B2; outline-offset: 2px }
.pl-question button:disabled { opacity: 0.6; cursor: default }
.pl-question summary { cursor: pointer; min-height: 24px; padding: 2px 0 }
.pl-question .pl-mark { flex: none; font-weight: 600 }
.pl-question .pl-refutation { border-left: 3px dashed var(--jp-border-color1, #888); padding: 2px 12px; margin: 8px 0 }
.pl-question .pl-refutation p { margin: 4px 0 }
.pl-question .pl-worlds { overflow-x: auto; margin: 4px 0 }
.pl-question table { border-collapse: collapse; font-size: 13px; margin: 0 }
.pl-question th, .pl-question td { padding: 2px 10px; text-align: left; border: 1px solid var(--jp-border-color1, #888);
  font-family: var(--jp-code-font-family, monospace); background: none }
.pl-question td.pl-ghost { border-style: dashed; font-style: italic }
.pl-question .pl-row { display: flex; flex-wrap: wrap; gap: 0 16px; justify-content: space-between; white-space: pre }
.pl-question .pl-came { flex: none; max-width: 100%; min-width: 14em; min-height: 1.2em; margin: 1px 0 1px auto; padding: 0 6px; box-sizing: border-box;
  white-space: pre-wrap; overflow-wrap: anywhere; user-select: none; border-left: 2px solid var(--jp-border-color1, #888) }
.pl-question .pl-lines label { flex-wrap: wrap }
.pl-question p code, .pl-question label code, .pl-question legend code { font-family: var(--jp-code-font-family, monospace) }
.pl-question .pl-legend { margin: 4px 0; font-size: 0.9em; opacity: 0.85; }
.pl-question .pl-came.pl-hidden { border-left-color: transparent;
  background: repeating-linear-gradient(-45deg, transparent 0 4px, var(--jp-border-color1, #bbb) 4px 6px) }
.pl-question .pl-came.pl-parts { font-weight: 600 }
.pl-question .pl-came .pl-ghost { display: block; font-weight: 400; font-style: italic; border: 1px dashed var(--jp-border-color1, #888); padding: 0 4px }
`;

// Keeps the notebook from taking arrow keys and letters. JupyterLab looks for it from the focused element upwards, and its own
// selectors match that element first: an ancestor that carries the attribute comes too late.
const OWN_KEYS = "data-lm-suppress-shortcuts";

function add(parent, tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (["input", "button", "summary"].includes(tag) || "tabindex" in attributes) node.setAttribute(OWN_KEYS, "true");
  if (text !== undefined) {
    if (SENTENCES.has(tag)) say(node, text);
    else node.textContent = text;
  }
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}

// What stands between backticks in a sentence is code.
const SENTENCES = new Set(["p", "legend", "h4", "li"]);

function say(node, text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) node.append(text);
  else parts.forEach((part, index) => { if (index % 2) add(node, "code", part); else node.append(part); });
}

const number = (line) => String(line).padStart(2);

// The program with line numbers, because the answers speak of lines; the numbers are not part of a selection. Beside each statement
// of the `future` is a place for what comes of it.
function listing(parent, program, future = null) {
  const pre = add(parent, "pre", undefined, { tabindex: "0" });
  program.split("\n").forEach((line, index) => {
    const row = add(pre, "div", undefined, { class: "pl-row" });
    const code = add(row, "span");
    add(code, "span", number(index + 1), { class: "pl-number" });
    code.append(`  ${line}`);
    future?.place(row, index + 1);
  });
  return pre;
}

// What comes of each statement: hatched until the learner has predicted, then shown up to the first that contradicts the prediction,
// which stays there as a ghost; the rest when it is asked for.
function hatched(content) {
  const { words } = content;
  const steps = new Map(content.story.map((step) => [step.line, step.came]));
  const cells = new Map();
  const fill = (cell, line) => {
    cell.classList.remove("pl-hidden");
    cell.removeAttribute("aria-hidden");
    cell.textContent = steps.get(line).join("\n") || "—";
  };
  return {
    place(row, line) {
      if (steps.has(line)) cells.set(line, add(row, "span", undefined, { class: "pl-came pl-hidden", title: words.hidden, "aria-hidden": "true" }));
    },
    reveal(prediction, more) {
      const until = prediction?.until ?? Infinity;
      const rest = [...cells].filter(([line]) => line > until);
      cells.forEach((cell, line) => {
        if (line > until) return;
        fill(cell, line);
        cell.removeAttribute("title");
        if (line !== until) return;
        cell.classList.add("pl-parts");
        (prediction.rows ?? []).forEach(([what, yours]) => add(cell, "span", `${words.yours}: ${what} = ${yours}`, { class: "pl-ghost" }));
      });
      if (!rest.length) return;
      const button = add(more, "button", words.rest, { type: "button" });
      button.addEventListener("click", () => {
        rest.forEach(([line, cell]) => fill(cell, line));
        button.remove();
      });
    },
  };
}

// One group of choices, of which one (radio buttons) or several (boxes; the last excludes the others) can be taken; returns the
// chosen indices and a way to lock the group and to mark its rows. Rows with a line stand in the program itself.
function group(form, legend, rows, name, { many = false, columns = 0, program = null, future = null } = {}) {
  const box = add(form, "fieldset");
  add(box, "legend", legend);
  // What scrolls can be focused: its choices cannot any more once they are locked.
  const scrolls = { tabindex: "0", role: "group", "aria-label": legend };
  const cells = columns ? add(box, "div", undefined, { class: "pl-cells", ...scrolls, style: `grid-template-columns: repeat(${columns}, max-content)` }) : box;
  const lines = program ? add(box, "div", undefined, { class: "pl-lines", ...scrolls }) : box;
  const place = (index) => (rows[index].line ? lines : columns && index < rows.length - 1 ? cells : box);
  const code = program ? program.split("\n") : [];
  const starts = new Map(rows.map((row) => [row.line, row]));
  const inputs = [];
  const option = (index) => {
    const row = rows[index];
    const label = add(place(index), "label");
    const input = add(label, "input", undefined, { type: many ? "checkbox" : "radio", name, value: String(index) });
    if (row.line) {
      input.setAttribute("aria-label", `${row.text}: ${code[row.line - 1].trim()}`);
      add(label, "span", number(row.line), { class: "pl-number" });
      add(label, "span", code[row.line - 1], { class: "pl-code" });
      future?.place(label, row.line);
    } else say(add(label, "span"), row.text);
    inputs[index] = input;
  };
  // Lines that no statement begins on are shown between the choices.
  code.forEach((line, at) => {
    if (starts.has(at + 1)) option(rows.indexOf(starts.get(at + 1)));
    else {
      const idle = add(lines, "div", undefined, { style: "padding: 2px 4px 2px 28px" });
      add(idle, "span", `${number(at + 1)} `, { class: "pl-number" });
      add(idle, "span", line, { class: "pl-code" });
      future?.place(idle, at + 1);
    }
  });
  rows.forEach((row, index) => { if (!row.line) option(index); });
  if (many) {
    const none = inputs.length - 1;
    box.addEventListener("change", (event) => {
      if (!event.target.checked) return;
      if (event.target === inputs[none]) inputs.slice(0, none).forEach((input) => { input.checked = false; });
      else inputs[none].checked = false;
    });
  }
  return {
    inputs,
    chosen: () => inputs.flatMap((input, index) => (input.checked ? [index] : [])),
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

function table(parent, head, rows, caption) {
  const frame = add(parent, "div", undefined, { class: "pl-worlds", tabindex: "0", role: "group", "aria-label": caption });
  const grid = add(frame, "table");
  const top = add(add(grid, "thead"), "tr");
  head.forEach((text) => add(top, "th", text, { scope: "col" }));
  const body = add(grid, "tbody");
  for (const [what, yours, torch] of rows) {
    const row = add(body, "tr");
    add(row, "th", what, { scope: "row" });
    add(row, "td", yours, { class: "pl-ghost" });
    add(row, "td", torch);
  }
}

// What differs after the first line on which the believed world and torch's part; the prediction stays as a ghost beside torch's.
function worlds(parent, prediction, content) {
  const { words } = content;
  add(parent, "p", words.until.replace("{line}", prediction.line), { style: "font-weight:600" });
  table(parent, [words.after.replace("{line}", prediction.line), words.your_world, words.torch_world], prediction.rows, words.until);
}

// Why the reason that was picked does not hold: what does, and the belief in whose world it would, unless the answer has shown one.
function weigh(answer, reason, prediction, content) {
  const { words } = content;
  if (!reason || reason.right || !reason.instead) return;
  if (prediction?.denied && !reason.said && !reason.refutations.length) add(answer, "p", words.denied);
  add(answer, "p", `${words.instead} ${reason.instead}`);
  // What is answered to another misreading than the one behind the answer would speak of what nobody has thought.
  if (reason.said && (reason.own || !prediction?.without?.said)) add(answer, "p", reason.said);
  if (!prediction?.refutations.length) reason.refutations.forEach((one) => refute(answer, one, words));
}

// Whether nothing known explains the answer beside the reason: of who gives the right one it is not said that a line was overlooked.
const unexplained = (prediction, rightly) => rightly && (!prediction || (prediction.against && prediction.without && !prediction.without.said));

// Of the beliefs that predict an answer, those that the wrong reason beside it leaves: who gives a reason that is false in the world
// of a belief does not hold it. With one left nothing is to be told apart; with none, nothing known gives this answer for this reason.
function narrowed(prediction, picked) {
  if (!picked || picked.right || !prediction?.refutations.length || prediction.both) return prediction;
  const told = prediction.refutations.filter((one) => picked.fits.includes(one.belief));
  if (!told.length) return { ...prediction, refutations: [], separating: null, rows: null, until: null, denied: true };
  return told.length === 1 ? { ...prediction, refutations: told, separating: null } : prediction;
}

// What a wrong answer tells: the belief it fits and where its world ends, or the program that tells several beliefs apart.
function diagnose(answer, prediction, content, rightly) {
  const { words } = content;
  if (unexplained(prediction, rightly)) add(answer, "p", words.follows);
  if (!prediction || unexplained(prediction, rightly)) return;
  if (prediction.against && rightly) add(answer, "p", prediction.without?.said ? words.another : words.beside);
  if (prediction.places) add(answer, "p", prediction.places);
  if (prediction.both) add(answer, "p", words.both, { style: "font-weight:600" });
  if (prediction.without) {
    const { line, call, taken_for, said } = prediction.without;
    const read = taken_for ? words.slip_line.replace("{text}", () => taken_for) : call ? words.slip_call : words.slip;
    add(answer, "p", said ?? read.replace("{line}", line).replace("{call}", call));
  }
  if (prediction.rows) worlds(answer, prediction, content);
  if (prediction.refutations.length > 1 && !prediction.both) add(answer, "p", words.several, { style: "font-weight:600" });
  prediction.refutations.forEach((refutation) => refute(answer, refutation, words));
  if (!prediction.separating) return;
  add(answer, "p", words.apart, { style: "font-weight:600" });
  listing(answer, prediction.separating.program);
  const fold = add(answer, "details");
  add(fold, "summary", words.open);
  const rows = prediction.separating.endings.map(([belief, ending]) => [`“${belief}”`, ending, prediction.separating.torch]);
  table(fold, [words.who, words.your_world, words.torch_world], rows, words.apart);
}

const same = (a, b) => a.length === b.length && a.every((one) => b.includes(one));
const rightOf = (content) => content.choices.flatMap((choice, index) => (choice.right ? [index] : []));

function verdict(content, marks, reason, prediction) {
  const { words } = content;
  if (!marks.length) return words.skipped;
  const rightly = reason >= 0 && content.reasons[reason].right;
  if (!same(marks, rightOf(content))) return prediction || rightly ? words.wrong : `${words.wrong} ${words.unknown}`;
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
  const inLines = content.kind === "line";
  const future = hatched(content);
  const legend = content.story.length ? add(root, "p", words.legend, { class: "pl-legend" }) : null;
  if (!inLines) listing(root, content.program, future);
  const form = add(root, "form");
  const many = content.kind === "changes";
  const what = group(form, words.what, content.choices, `${name}-what`, { many, columns: content.columns, program: inLines ? content.program : null, future });
  const why = content.reasons.length ? group(form, words.because, content.reasons, `${name}-why`) : null;
  const commit = add(form, "button", words.commit, { type: "submit" });
  const skip = add(form, "button", words.skip, { type: "button" });
  const answer = add(root, "div", undefined, { "aria-live": "polite" });
  commit.disabled = true;

  // Both parts must be chosen before a prediction counts as one.
  const complete = () => what.chosen().length > 0 && (!why || why.chosen().length > 0);
  form.addEventListener("change", () => { commit.disabled = !complete(); });

  function reveal(marks, reason, kept) {
    what.lock(words.torch, words.yours);
    if (why) why.lock(words.decides, words.yours);
    commit.disabled = true;
    skip.disabled = true;
    const picked = content.reasons[reason];
    const prediction = narrowed(content.predictions.find((one) => same(one.marks, marks)), picked);
    add(answer, "p", verdict(content, marks, reason, prediction), { style: "font-weight:600" });
    const rightly = Boolean(picked?.right) && marks.length > 0 && !same(marks, rightOf(content));
    future.reveal(unexplained(prediction, rightly) ? null : prediction, answer);
    legend?.remove();
    if (content.message) add(answer, "pre", content.message, { tabindex: "0" });
    diagnose(answer, prediction, content, rightly);
    weigh(answer, picked, prediction, content);
    if (!kept) record({ marks, choice: many ? -1 : marks[0], reason, committed: true });
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
    if (!commit.disabled && complete()) reveal(what.chosen(), why ? why.chosen()[0] : -1, false);
  });
  skip.addEventListener("click", () => {
    record({ skipped: true });
    reveal([], -1, true);
  });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.activeElement?.blur();
    // Enter in a box does not commit by itself in every browser.
    if (event.key === "Enter" && event.target.type === "checkbox" && !commit.disabled) { event.preventDefault(); form.requestSubmit(commit); }
  });
  if (model.get("committed")) restore(what, why, model, reveal);
  else if (model.get("skipped")) reveal([], -1, true);
}

// A second view of the same question (or the same page reloaded) shows what was answered.
function restore(what, why, model, reveal) {
  const marks = model.get("marks");
  const reason = model.get("reason");
  marks.forEach((index) => { what.inputs[index].checked = true; });
  if (why && reason >= 0) why.inputs[reason].checked = true;
  reveal(marks, reason, true);
}

export default { render };
