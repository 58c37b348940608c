// Claims: decide with one click, then see the program that decides it and the verdict; several come one at a time. Judged in the browser,
// so it also works while the kernel is busy. Text enters the page by textContent only.

const STYLE = `
.pl-decide { border: 1px solid var(--jp-border-color1, #bbb); border-left: 6px solid var(--jp-border-color1, #888); border-radius: 3px; padding: 8px 14px;
  margin: 6px 0; max-width: 64em; box-sizing: border-box; color: var(--jp-content-font-color1, #1a1a1a);
  font-family: var(--jp-content-font-family, sans-serif); line-height: 1.5 }
.pl-decide .pl-quiet { color: var(--jp-content-font-color2, #595959); font-size: 90% }
.pl-decide .pl-head { display: flex; flex-wrap: wrap; align-items: center; justify-content: space-between; gap: 0 14px }
.pl-decide .pl-marks { letter-spacing: 3px; font-family: var(--jp-code-font-family, monospace); overflow-wrap: anywhere }
.pl-decide p { margin: 4px 0 }
.pl-decide ul { margin: 4px 0; padding-left: 22px }
.pl-decide summary { cursor: pointer; padding: 4px 0 }
.pl-decide pre { background: var(--jp-layout-color2, #f3f3f3); padding: 6px 10px; overflow-x: auto; margin: 4px 0;
  font-family: var(--jp-code-font-family, monospace); font-size: 13px; line-height: 1.35 }
.pl-decide code { font-family: var(--jp-code-font-family, monospace); font-size: 13px }
.pl-decide button { min-height: 28px; padding: 2px 14px; margin: 2px 8px 2px 0; cursor: pointer; font: inherit; color: inherit;
  background: var(--jp-layout-color1, #fff); border: 1px solid var(--jp-border-color1, #888); border-radius: 3px }
.pl-decide button.pl-plain { border-color: transparent; background: transparent; text-decoration: underline; padding: 2px 6px }
.pl-decide button:focus-visible, .pl-decide pre:focus-visible, .pl-decide summary:focus-visible { outline: 2px solid #0072B2; outline-offset: 2px }
.pl-decide button[aria-pressed=true] { border-width: 2px; font-weight: 600; opacity: 1 }
.pl-decide button:disabled { opacity: 0.6; cursor: default }
`;
const OWN_KEYS = "data-lm-suppress-shortcuts";
const DECISIONS = ["right", "wrong", "depends"];

function add(parent, tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (["button", "pre", "summary"].includes(tag)) node.setAttribute(OWN_KEYS, "true");
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}

// What stands between backticks is code.
function prose(parent, text, attributes = {}, tag = "p") {
  const line = add(parent, tag, undefined, attributes);
  text.split("`").forEach((part, index) => { if (index % 2) add(line, "code", part); else line.append(part); });
  return line;
}

function render({ model, el }) {
  const { words, claims, language } = JSON.parse(model.get("_content"));
  const several = claims.length > 1;
  const decided = (claim) => model.get("decisions")[claim.id];
  const fits = (claim) => claim.fitting.includes(decided(claim));
  const left = () => claims.filter((claim) => !decided(claim));
  add(el, "style", STYLE);
  const root = add(el, "div", undefined, { class: "pl-decide", lang: language, role: "group", "aria-label": words.ask, [OWN_KEYS]: "true" });
  draw();

  function button(parent, text, pressed, attributes = {}) {
    const made = add(parent, "button", text, { type: "button", ...attributes });
    made.addEventListener("click", pressed);
    return made;
  }

  // The kernel only keeps the decision; when it is gone, the claim has been decided all the same.
  function record(name, value) {
    try {
      model.set(name, value);
      model.save_changes();
    } catch (error) {
      console.debug("pitfall_lab: the decision was not kept", error);
    }
  }

  function go(to) {
    record("at", to);
    draw();
    (root.querySelector("button:enabled") ?? root).focus({ preventScroll: true });
    root.scrollIntoView({ block: "nearest" });
  }

  // The next claim that is not decided, in turn; behind the last one comes the summary.
  function following(at) {
    const free = claims.map((_, index) => (at + 1 + index) % claims.length).find((index) => !decided(claims[index]));
    return free ?? claims.length;
  }

  function draw() {
    root.replaceChildren();
    const at = model.get("at");
    if (at < claims.length) show(claims[at], at); else summarise();
  }

  function head(at) {
    const line = add(root, "div", undefined, { class: "pl-head" });
    add(line, "strong", words.count.replace("{n}", at + 1).replace("{all}", claims.length));
    add(line, "span", marks(at), { class: "pl-quiet pl-marks", "aria-hidden": "true" });
  }

  function marks(at) {
    return claims.map((claim, index) => (decided(claim) ? (fits(claim) ? "✓" : "≠") : index === at ? "●" : "·")).join("");
  }

  function show(claim, at) {
    if (several) head(at);
    add(root, "div", claim.place, { class: "pl-quiet" });
    prose(root, `“${claim.claim}”`, { lang: "en" });
    const row = add(root, "div", undefined, { role: "group", "aria-label": words.ask });
    add(row, "strong", `${words.ask} `);
    const answer = add(root, "div", undefined, { "aria-live": "polite" });
    const buttons = DECISIONS.map((decision) => button(row, words[decision], () => {
      record("decisions", { ...model.get("decisions"), [claim.id]: decision });
      answered(true);
    }, { "aria-pressed": "false" }));
    const ways = document.createElement("div");
    if (several) {
      root.append(ways);
      button(ways, words.skip, () => go(skipped(at)), { class: "pl-plain" });
      button(ways, words.leave, () => go(claims.length), { class: "pl-plain" });
    }
    if (DECISIONS.includes(decided(claim))) answered(false);

    function answered(asked) {
      buttons.forEach((one, index) => {
        one.disabled = true;
        one.setAttribute("aria-pressed", String(DECISIONS[index] === decided(claim)));
      });
      if (several) {
        root.querySelector(".pl-marks").textContent = marks(at);
        conclude(claim, answer);
        ways.replaceChildren();
        const next = button(ways, left().length ? words.next : words.end, () => go(following(at)));
        if (left().length) button(ways, words.leave, () => go(claims.length), { class: "pl-plain" });
        evidence(claim, add(root, "details", undefined, fits(claim) ? {} : { open: "" }));
        if (asked) next.focus({ preventScroll: true });
        return;
      }
      evidence(claim, answer);
      if (!asked) { conclude(claim, answer); return; }
      const more = button(answer, words.verdict, () => { more.remove(); conclude(claim, answer); });
      more.focus();
    }
  }

  // Whoever skips the last one that is left comes to the summary, not to the same claim again.
  function skipped(at) {
    const to = following(at);
    return to <= at ? claims.length : to;
  }

  function evidence(claim, parent) {
    add(parent, parent.tagName === "DETAILS" ? "summary" : "p", words.program);
    add(parent, "pre", claim.program, { tabindex: "0" });
    add(parent, "p", words.output);
    add(parent, "pre", claim.output, { tabindex: "0" });
    add(parent, "div", claim.ran, { class: "pl-quiet" });
  }

  function conclude(claim, parent) {
    add(parent, "p", fits(claim) ? words.fits : words.differs, { style: "font-weight:600" });
    add(parent, "p", claim.verdict, { style: "font-weight:600" });
    prose(parent, claim.truth, { lang: "en" });
    if (claim.beside) prose(parent, claim.beside, { class: "pl-quiet" });
  }

  function summarise() {
    const done = claims.filter(decided);
    const held = done.filter(fits).length;
    const said = words.summary.replace("{n}", done.length).replace("{all}", claims.length).replace("{held}", held);
    add(root, "p", said, { style: "font-weight:600" });
    if (held < done.length) {
      add(root, "p", words.otherwise);
      const list = add(root, "ul", undefined, { lang: "en" });
      for (const claim of done.filter((one) => !fits(one))) prose(list, `“${claim.claim}” ${claim.verdict}: ${claim.truth}`, {}, "li");
    }
    if (left().length) button(root, words.more, () => go(following(-1)));
  }

  root.addEventListener("keydown", (event) => { if (event.key === "Escape") document.activeElement?.blur(); });
}

export default { render };
