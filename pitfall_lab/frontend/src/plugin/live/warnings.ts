/** What was found between the cells, in sentences: what will fail in red, and each cell a click away. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import { h } from "../../core/dom";
import { prose } from "../../core/prose";
import { offered } from "../marks/card";
import { remedies } from "../marks/remedy";
import { togetherAhead } from "../together";
import { languageOf, type Say } from "../words";
import { cellButton } from "./cells";
import type { Level, Warning } from "./protocol";

const FEW = 3;

export function levelName({ level, failed }: { level: Level; failed: boolean }, say: Say): string {
  if (failed) return say("Failed", "已出错");
  if (level === "error") return say("Will fail", "将会出错");
  return level === "silent" ? say("Silently wrong", "悄悄出错") : say("Worth knowing", "值得了解");
}

export class Warnings {
  readonly node = h("section", { class: "pl-live-warnings", "aria-live": "polite" });
  private all = false;

  constructor(
    private readonly reveal: (row: string) => void,
    private readonly say: Say,
  ) {
    this.node.setAttribute("aria-label", say("Warnings", "警告"));
  }

  show(warnings: Warning[], notebook: NotebookPanel | null): void {
    this.node.hidden = !warnings.length;
    if (!notebook || !warnings.length) return this.node.replaceChildren();
    const worst = (level: Level): Warning[] => warnings.filter((one) => one.level === level);
    const sorted = [...worst("error"), ...worst("silent"), ...worst("note")];
    const shown = sorted.slice(0, this.all ? sorted.length : FEW);
    const toggle = (): void => {
      this.all = !this.all;
      this.show(warnings, notebook);
    };
    const rest = sorted.length - FEW;
    const words = this.all ? this.say("Show fewer", "收起") : this.say(`Show ${rest} more`, `再显示 ${rest} 条`);
    this.node.replaceChildren(
      ...shown.map((one) => this.card(one, notebook)),
      rest > 0 ? h("button", { class: "pl-live-more", type: "button", click: toggle }, words) : "",
    );
  }

  private card(warning: Warning, notebook: NotebookPanel): HTMLElement {
    const { say } = this;
    const language = languageOf(say);
    const { row, rule } = warning;
    const show =
      row === null
        ? null
        : h("button", { class: "pl-live-cell", type: "button", click: () => this.reveal(row) }, say("Show the row", "显示该行"));
    const cells = warning.cells.map((cell) => cellButton(notebook, cell, say));
    const fix = warning.fix ? h("p", { class: "pl-live-fix" }, h("b", {}, say("Fix: ", "修改：")), ...prose(warning.fix[language])) : null;
    return h(
      "article",
      { class: `pl-live-warning pl-live-${warning.level}`, "data-warning": warning.id },
      h(
        "h3",
        {},
        levelName(warning, say),
        rule ? h("span", { title: say("The rule's name: see `pitfall-lab explain`", "规则名：见 `pitfall-lab explain`") }, rule) : null,
      ),
      h("p", {}, ...prose(warning.sentence[language])),
      warning.explanation[language]
        ? h("details", {}, h("summary", {}, say("Why", "为什么")), h("p", {}, ...prose(warning.explanation[language])))
        : null,
      fix,
      ...remedies(notebook, warning).map((one) => offered(one, say)),
      ...togetherAhead(notebook, warning, say),
      h("div", { class: "pl-live-cells" }, ...cells, show),
    );
  }
}
