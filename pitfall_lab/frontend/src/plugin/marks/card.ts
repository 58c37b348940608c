/** What is said of a marked line: the sentence, and the edit that helps with the way back. */

import { h } from "../../core/dom";
import { prose } from "../../core/prose";
import { languageOf, type Say } from "../words";
import type { Mark, Remedy } from "./marks";

const FEW = 3;

export function card(marks: Mark[], say: Say): HTMLElement {
  return h("div", { class: "pl-card", "data-lm-suppress-shortcuts": "true" }, ...marks.slice(0, FEW).map((mark) => said(mark, say)));
}

function said({ level, title, sentence, remedies }: Mark, say: Say): HTMLElement {
  const language = languageOf(say);
  return h(
    "section",
    { class: `pl-card-${level}` },
    h("h3", {}, title[language]),
    h("p", {}, ...prose(sentence[language])),
    ...remedies.slice(0, FEW).map((remedy) => offered(remedy, say)),
  );
}

export function offered(remedy: Remedy, say: Say): HTMLElement {
  const language = languageOf(say);
  const answer = h("p", { class: "pl-card-answer", role: "status" });
  const button = h("button", { type: "button" }, say("Apply", "应用"));
  let applied = false;
  button.addEventListener("click", () => {
    const refused = applied ? remedy.undo() : remedy.apply();
    if (!refused) applied = !applied;
    button.textContent = applied ? say("Undo", "撤销") : say("Apply", "应用");
    const done = applied
      ? say("Applied. Run the cells again to see that it holds.", "已应用。重新运行这些单元格即可看到效果。")
      : say("As it was.", "已恢复原样。");
    answer.textContent = refused ? refused[language] : done;
  });
  const tried = remedy.tried
    ? say("✓ verified: the edited program was run", "✓ 已验证：修改后的程序运行过")
    : say("not run yet", "尚未运行");
  return h(
    "div",
    { class: "pl-card-remedy" },
    h("p", {}, ...prose(remedy.title[language])),
    h("div", {}, button, h("span", {}, tried)),
    answer,
  );
}
