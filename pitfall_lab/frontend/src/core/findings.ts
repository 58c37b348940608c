/** The findings: what is wrong and its story as steps that can be clicked (above the views); why, and what helps (below). */

import { h } from "./dom";
import { mark, dot } from "./marks";
import type { ExplorerModel } from "./model";
import { prose } from "./prose";
import type { Beat, Fix, Story } from "./story";
import { say } from "./words";

const LIST_LIMIT = 12;
const FIX_LIMIT = 4;
const SIGNS = { error: "✕", warning: "▲", info: "ⓘ" };

export interface StoryActions {
  choose(story: Story): void;
  go(beat: Beat): void;
}

function beatButton(model: ExplorerModel, beat: Beat, go: (beat: Beat) => void): HTMLElement {
  const place = beat.line === null ? "" : model.t(` · line ${beat.line}`, ` · 第 ${beat.line} 行`);
  const text = say(beat.text, model.language);
  const button = h(
    "button",
    { "data-step": beat.step ?? "", "data-role": beat.role, click: () => go(beat) },
    h("span", { class: "pl-role" }, mark(beat.role), say(beat.title, model.language) + place),
    beat.code && h("code", {}, beat.code),
    text && h("span", { class: "pl-beat-text" }, ...prose(text)),
  );
  button.disabled = beat.step === null;
  return h("li", {}, button);
}

function severity(model: ExplorerModel, story: Story): HTMLElement {
  const words = { error: model.t("error", "错误"), warning: model.t("warning", "警告"), info: model.t("worth knowing", "值得了解") };
  return h("span", { class: `pl-${story.severity}` }, `${SIGNS[story.severity] ?? SIGNS.info} ${words[story.severity] ?? words.info}`);
}

function title(model: ExplorerModel, story: Story): HTMLElement {
  const head = h("h3", {}, severity(model, story), h("code", {}, [story.rule, story.name].filter(Boolean).join(" ")));
  if (!story.predicted) return head;
  const who = model.t("computed by the shadow engine", "由影子引擎算出");
  head.append(h("span", { class: "pl-tag" }, dot("m", who), model.t("predicted before torch got there", "在 torch 运行到之前已预测")));
  return head;
}

function told(model: ExplorerModel, story: Story, go: (beat: Beat) => void): HTMLElement {
  const quoted = story.rule === "" && typeof story.message === "string";
  const message = say(story.message, model.language);
  return h(
    "article",
    { class: "pl-finding" },
    title(model, story),
    h("p", { class: quoted ? "pl-message pl-quoted" : "pl-message" }, ...(quoted ? [message] : prose(message))),
    h("ol", { class: "pl-story", label: model.t("The story", "经过") }, ...story.beats.map((beat) => beatButton(model, beat, go))),
  );
}

/** The other findings, one line each: a click brings one up. */
function others(model: ExplorerModel, stories: Story[], chosen: Story | undefined, choose: (story: Story) => void): HTMLElement | null {
  const rest = stories.filter((story) => story !== chosen);
  if (!rest.length) return null;
  const rows = rest.slice(0, LIST_LIMIT).map((story) =>
    h("li", {}, h("button", { click: () => choose(story) }, severity(model, story), h("span", {}, ...prose(say(story.message, model.language))))),
  );
  const left = rest.length - rows.length;
  if (left > 0) rows.push(h("li", { class: "pl-nothing" }, model.t(`and ${left} more`, `另有 ${left} 条`)));
  return h("ul", { class: "pl-others", label: model.t("Other findings", "其他发现") }, ...rows);
}

export function findings(model: ExplorerModel, stories: Story[], chosen: Story | undefined, actions: StoryActions): HTMLElement {
  const box = h("section", { class: "pl-findings", group: model.t("Findings", "发现") });
  if (chosen) box.append(told(model, chosen, actions.go));
  const rest = others(model, stories, chosen, actions.choose);
  if (rest) box.append(rest);
  return box;
}

const ROWS = { " ": "pl-kept", "−": "pl-old", "+": "pl-new" };

function fixBox(model: ExplorerModel, fix: Fix): HTMLElement {
  const tried = fix.verified
    ? h("span", { class: "pl-ok" }, model.t("✓ verified: applied and run again on both engines", "✓ 已验证：修改后在两个引擎上重新运行"))
    : h("span", { class: "pl-untried" }, model.t("not tried here", "此处未验证"));
  const rows = fix.rows.map(([sign, text]) => h("div", { class: ROWS[sign] }, `${sign} ${text}`));
  const label = model.t("the edit", "修改内容");
  return h("li", { class: "pl-fix" }, h("p", {}, ...prose(say(fix.title, model.language))), tried, h("div", { class: "pl-diff", group: label }, ...rows));
}

/** Why it is so, and the edits that help. */
export function remedies(model: ExplorerModel, story: Story | undefined): HTMLElement | null {
  const why = say(story?.explanation, model.language);
  if (!story || (!why && !story.fixes.length)) return null;
  const box = h("section", { class: "pl-remedies", group: model.t("Why, and what helps", "原因与办法") });
  if (why) box.append(h("div", {}, h("h3", {}, model.t("Why", "原因")), h("p", { class: "pl-why" }, ...prose(why))));
  // Once some edits were tried, those that failed are no help; before that, all are only ideas.
  const tried = story.fixes.filter((fix) => fix.verified);
  const shown = (tried.length ? tried : story.fixes).slice(0, FIX_LIMIT);
  if (shown.length) box.append(h("div", {}, h("h3", {}, model.t("What helps", "办法")), h("ol", { class: "pl-fixes" }, ...shown.map((fix) => fixBox(model, fix)))));
  return box;
}
