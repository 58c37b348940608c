/** The live panel as a part of JupyterLab: its place, its commands, its badge. */

import type { ILabShell, JupyterFrontEnd } from "@jupyterlab/application";
import type { INotebookTracker } from "@jupyterlab/notebook";
import { liveIcon } from "../icon";
import { languageOf, type Say } from "../words";
import { Notebooks } from "./notebooks";
import { giveNotice, takeNotice } from "./notice";
import { badge, LivePanel } from "./panel";

export const OPEN_LIVE = "pitfall-lab:open-live-panel";

export function addLivePanel(app: JupyterFrontEnd, shell: ILabShell | null, tracker: INotebookTracker, say: Say): Notebooks {
  const notebooks = new Notebooks(tracker, languageOf(say));
  const panel = new LivePanel(notebooks, (widget) => app.shell.add(widget, "main", { mode: "split-right" }), say);
  app.shell.add(panel, "right", { rank: 150 });
  const show = (row: string | null): void => {
    app.shell.activateById(panel.id);
    if (row !== null) panel.reveal(row);
  };
  const mark = (): void => badge(panel, panel.isVisible ? [] : (notebooks.current?.warned.warnings ?? []), say);
  notebooks.moved.connect(() => {
    mark();
    if (panel.isVisible && notebooks.current) takeNotice(notebooks.current);
  });
  notebooks.heard.connect((_, { live, what }) => {
    if (what !== "warnings") return;
    mark();
    if (panel.isVisible && live === notebooks.current) takeNotice(live);
    else giveNotice(live, show, say);
  });
  app.commands.addCommand(OPEN_LIVE, {
    label: say("Show live tensors", "显示实时张量"),
    caption: say(
      "Pitfall Lab: every tensor, array, module and optimizer of the notebook's kernel",
      "Pitfall Lab：内核中的所有张量、数组、模块与优化器",
    ),
    icon: liveIcon,
    describedBy: { args: { type: "object", properties: {} } },
    isToggled: () => panel.isVisible,
    execute: () => {
      if (panel.isVisible && shell) shell.collapseRight();
      else app.shell.activateById(panel.id);
    },
  });
  return notebooks;
}
