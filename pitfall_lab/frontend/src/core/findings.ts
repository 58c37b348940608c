/** The findings: what is wrong, its story as steps that can be clicked, why, and what helps. */

import type { SceneFix } from "./contract";
import { h } from "./dom";
import { dot, mark } from "./marks";
import type { ExplorerModel } from "./model";
import type { Beat, Story } from "./story";
import { say } from "./words";

const OPEN_LIMIT = 3;

function lineText(model: ExplorerModel, line: number | null): string {
  const text = line === null ? "" : (model.trace.sources[0]?.text.split(/\r\n|\r|\n/)[line - 1] ?? "");
  return text.trim();
}

function beatButton(model: ExplorerModel, beat: Beat, go: (beat: Beat) => void): HTMLElement {
  const place = beat.line === null ? "" : model.t(` · line ${beat.line}`, ` · 第 ${beat.line} 行`);
  const button = h(
    "button",
    { "data-step": beat.step ?? "", "data-role": beat.role, click: () => go(beat), title: say(beat.text, model.language) },
    mark(beat.role),
    h("span", {}, say(beat.title, model.language) + place),
    h("code", {}, lineText(model, beat.line)),
  );
  button.disabled = beat.step === null;
  return h("li", {}, button);
}

/** The edit as a small diff against the first source. */
function diff(model: ExplorerModel, fix: SceneFix): HTMLElement {
  const lines = (model.trace.sources[0]?.text ?? "").split(/\r\n|\r|\n/);
  const rows: HTMLElement[] = [];
  for (const { line, end_line, text } of fix.edits ?? []) {
    for (const old of lines.slice(line - 1, end_line)) rows.push(h("div", { class: "pl-old" }, `− ${old}`));
    const added = text.replace(/\r?\n$/, "");
    if (text !== "") for (const now of added.split("\n")) rows.push(h("div", { class: "pl-new" }, `+ ${now}`));
  }
  return h("div", { class: "pl-diff", role: "group", tabindex: "-1", "aria-label": model.t("the edit", "修改内容") }, ...rows);
}

function fixBox(model: ExplorerModel, fix: SceneFix): HTMLElement {
  const tried = fix.verified
    ? h("span", { class: "pl-ok" }, "✓", model.t("tried: it works on both engines", "已验证：在两个引擎上都通过"))
    : h("span", { class: "pl-untried" }, model.t("not tried", "未验证"));
  return h("div", { class: "pl-fix" }, h("p", {}, say(fix.title, model.language), tried), diff(model, fix));
}

function severity(model: ExplorerModel, story: Story): HTMLElement {
  const words = {
    error: model.t("error", "错误"),
    warning: model.t("warning", "警告"),
    info: model.t("worth knowing", "值得了解"),
  };
  const sign = { error: "✕", warning: "▲", info: "ⓘ" }[story.severity] ?? "ⓘ";
  return h("span", { class: `pl-${story.severity}` }, `${sign} ${words[story.severity] ?? words.info}`);
}

function body(model: ExplorerModel, story: Story, go: (beat: Beat) => void): HTMLElement[] {
  const quoted = story.rule === "" && typeof story.message === "string";
  const parts = [
    h("p", { class: quoted ? "pl-message pl-quoted" : "pl-message" }, say(story.message, model.language)),
    h("ol", { class: "pl-story", "aria-label": model.t("The story", "经过") }, ...story.beats.map((beat) => beatButton(model, beat, go))),
  ];
  const why = say(story.explanation, model.language);
  if (why) parts.push(h("p", { class: "pl-why" }, why));
  if (story.fixes.length) parts.push(h("div", { class: "pl-fixes" }, ...story.fixes.map((fix) => fixBox(model, fix))));
  return parts;
}

export function findings(model: ExplorerModel, stories: Story[], go: (story: Story, beat: Beat) => void): HTMLElement {
  const box = h("section", { class: "pl-findings", "aria-label": model.t("Findings", "发现") });
  for (const story of stories.slice(0, OPEN_LIMIT)) {
    const title = h("h3", {}, severity(model, story), h("code", {}, [story.rule, story.name].filter(Boolean).join(" ")));
    if (story.predicted) {
      const before = model.t("predicted before torch ran it", "在 torch 运行之前已预测");
      title.append(h("span", { class: "pl-tag" }, dot("m", model.t("computed by the shadow engine", "由影子引擎算出")), before));
    }
    box.append(h("article", { class: "pl-finding" }, title, ...body(model, story, (beat) => go(story, beat))));
  }
  const more = stories.length - OPEN_LIMIT;
  if (more > 0) {
    const rest = stories.slice(OPEN_LIMIT).map((story) => `${story.rule} ${story.name}`.trim()).join(", ");
    box.append(h("p", { class: "pl-finding" }, model.t(`${more} more: ${rest}`, `另有 ${more} 条：${rest}`)));
  }
  return box;
}
