/** The findings beside the one that is shown: one line each, and a click brings one up. */

import { h } from "./dom";
import type { ExplorerModel } from "./model";
import { prose } from "./prose";
import type { Story } from "./story";
import { say } from "./words";

const LIST_LIMIT = 12;
const SIGNS = { error: "✕", warning: "▲", info: "ⓘ" };

export function severity(model: ExplorerModel, story: Story): HTMLElement {
  const words = { error: model.t("error", "错误"), warning: model.t("warning", "警告"), info: model.t("worth knowing", "值得了解") };
  return h("span", { class: `pl-${story.severity}` }, `${SIGNS[story.severity] ?? SIGNS.info} ${words[story.severity] ?? words.info}`);
}

export function others(model: ExplorerModel, chosen: Story, choose: (story: Story) => void): HTMLElement | null {
  const rest = model.stories.filter((story) => story !== chosen);
  if (!rest.length) return null;
  const rows = rest
    .slice(0, LIST_LIMIT)
    .map((story) =>
      h(
        "li",
        {},
        h("button", { click: () => choose(story) }, severity(model, story), h("span", {}, ...prose(say(story.message, model.language)))),
      ),
    );
  const left = rest.length - rows.length;
  if (left > 0) rows.push(h("li", { class: "pl-nothing" }, model.t(`and ${left} more`, `另有 ${left} 条`)));
  return h("ul", { class: "pl-others", label: model.t("Other findings", "其他发现") }, ...rows);
}
