/** The JupyterLab extension: the chapters in the left panel, and "Explain this cell" for any notebook. */

import { ILabShell, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { INotebookTracker } from "@jupyterlab/notebook";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { ITranslator } from "@jupyterlab/translation";
import { answerPictures } from "./cell";
import { explainCell, rememberRuns } from "./explain";
import { icon } from "./icon";
import { ChaptersPanel } from "./panel";
import { sayIn, type Say } from "./words";

const PLUGIN = "pitfall-lab:plugin";
const EXPLAIN = "pitfall-lab:explain-cell";
const OPEN_PANEL = "pitfall-lab:open-panel";
const OPEN_FILE = "docmanager:open";

function addPanel(app: JupyterFrontEnd, shell: ILabShell | null, say: Say): ChaptersPanel {
  const open = (path: string): void => void app.commands.execute(OPEN_FILE, { path });
  const panel = new ChaptersPanel(app.serviceManager.contents, open, say);
  app.shell.add(panel, "left", { rank: 150 });
  if (shell) shell.currentPathChanged.connect((_, change) => panel.mark(change.newValue));
  return panel;
}

function addCommands(app: JupyterFrontEnd, tracker: INotebookTracker | null, panel: ChaptersPanel, say: Say): void {
  app.commands.addCommand(EXPLAIN, {
    label: say("Explain this cell", "解释这个单元格"),
    caption: say("Explain this cell: run it again, watched, and show what happened to its tensors", "解释这个单元格：在观察下重新运行，并显示张量发生了什么"),
    icon,
    describedBy: { args: { type: "object", properties: {} } },
    isEnabled: () => tracker?.currentWidget != null,
    execute: async () => {
      if (tracker?.currentWidget) await explainCell(tracker.currentWidget, say);
    },
  });
  app.commands.addCommand(OPEN_PANEL, {
    label: say("Open Pitfall Lab panel", "打开 Pitfall Lab 面板"),
    icon,
    describedBy: { args: { type: "object", properties: {} } },
    execute: async () => {
      app.shell.activateById(panel.id);
      await panel.refresh();
    },
  });
  tracker?.currentChanged.connect(() => app.commands.notifyCommandChanged(EXPLAIN));
}

async function followSettings(registry: ISettingRegistry | null, panel: ChaptersPanel): Promise<void> {
  const settings = await registry?.load(PLUGIN).catch(() => null);
  const read = (): Promise<void> => panel.refresh(String(settings?.get("folder").composite ?? ""));
  settings?.changed.connect(() => void read());
  await read();
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: "The chapters of Pitfall Lab, and an explanation for any cell.",
  autoStart: true,
  optional: [INotebookTracker, ICommandPalette, ISettingRegistry, ITranslator, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker | null,
    palette: ICommandPalette | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null,
    shell: ILabShell | null,
  ) => {
    const say = sayIn(translator);
    const panel = addPanel(app, shell, say);
    rememberRuns();
    answerPictures(tracker);
    addCommands(app, tracker, panel, say);
    for (const command of [EXPLAIN, OPEN_PANEL]) palette?.addItem({ command, category: "Pitfall Lab" });
    void app.restored.then(() => followSettings(registry, panel));
  },
};

export default plugin;
