/** One view alone: a picture of live tensors, in a root of its own, without the rest of the Explorer. */

import type { Language, Scene, Trace, View } from "./contract";
import { h } from "./dom";
import { openRoot } from "./explorer";
import { Roving } from "./keys";
import { ExplorerModel } from "./model";
import { prose } from "./prose";
import { watchTheme } from "./theme";

/** Draws `view` into `host`. `edit` writes to the live tensors; what came of it arrives as another trace. */
export function createLook(
  host: HTMLElement,
  style: string,
  trace: Trace,
  scene: Scene,
  view: View,
  language: Language,
  edit: ExplorerModel["edit"],
): { model: ExplorerModel; destroy(): void } {
  const model = new ExplorerModel(trace, scene, language);
  model.edit = edit;
  model.step = model.last;
  const root = openRoot(host, style);
  const { title } = view;
  const body = h("div", { class: "pl-body" });
  root.setAttribute("aria-label", title[language]);
  root.lang = language === "zh" ? "zh-CN" : "en";
  const how = edit
    ? model.t("Double-click a cell, or press Enter on it, to write a number.", "双击单元，或在其上按 Enter，写入一个数。")
    : "";
  const said = h("p", { class: "pl-nothing", role: "status" }, ...prose(edit && model.last > 0 ? model.sentence(model.last) : how));
  root.append(h("section", { class: "pl-panel pl-chosen pl-look" }, h("h3", {}, title[language]), body, said));
  const mounted = view.mount(body, model);
  const cell = root.querySelector<HTMLElement>("td[tabindex]");
  // A grid of cells has one tab stop; sliders and buttons are stops of their own.
  const roving = cell && new Roving(root);
  if (cell) cell.dataset.home = "";
  const update = (): void => (mounted.update(), roving?.sweep());
  update();
  const stops = [model.onChange(update), watchTheme(root)];
  return {
    model,
    destroy() {
      for (const stop of stops) stop();
      mounted.destroy();
      root.replaceChildren();
    },
  };
}
