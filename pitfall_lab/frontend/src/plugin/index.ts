/** The JupyterLab extension: the chapters on the left, live tensors on the right, and "Explain this cell" for any notebook. */

import { ILabShell, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { CommandToolbarButton, ICommandPalette, IToolbarWidgetRegistry } from "@jupyterlab/apputils";
import type { CodeCell } from "@jupyterlab/cells";
import { IEditorExtensionRegistry } from "@jupyterlab/codemirror";
import { ILauncher } from "@jupyterlab/launcher";
import { INotebookTracker, type NotebookPanel } from "@jupyterlab/notebook";
import { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { ITranslator } from "@jupyterlab/translation";
import { answerPictures } from "./cell";
import { findCourse } from "./chapters";
import { explainCell, isRecorded, rememberRuns } from "./explain";
import { offerFrontEnd } from "./front_end";
import { icon } from "./icon";
import { addLivePanel, OPEN_LIVE } from "./live";
import type { Notebooks } from "./live/notebooks";
import { addMarks } from "./marks";
import { errorFactory, hintFactory } from "./outputs";
import { ChaptersPanel } from "./panel";
import { addRecording, RECORD } from "./record";
import { Settings } from "./settings";
import { followRuns } from "./sight";
import { showStored } from "./stored";
import { type Say, sayIn } from "./words";

const PLUGIN = "pitfall-lab:plugin";
const EXPLAIN = "pitfall-lab:explain-cell";
const OPEN_PANEL = "pitfall-lab:open-panel";
const START = "pitfall-lab:start";
const OPEN_FILE = "docmanager:open";
/** Before JupyterLab's own way to show an error (110), which shows its parts. */
const BEFORE_ERRORS = 105;

/** Opens a chapter; `exercise` is brought into sight. */
async function openChapter(app: JupyterFrontEnd, path: string, exercise = ""): Promise<void> {
  const opened = (await app.commands.execute(OPEN_FILE, { path })) as NotebookPanel | undefined;
  if (!exercise || !opened?.context) return;
  await opened.context.ready;
  const { content } = opened;
  const place = content.widgets.findIndex((cell) => new RegExp(`^%%exercise ${exercise}\\b`).test(cell.model.sharedModel.getSource()));
  if (place < 0) return;
  content.activeCellIndex = place;
  await content.scrollToItem(place, "smart");
}

function addPanel(app: JupyterFrontEnd, shell: ILabShell | null, say: Say): ChaptersPanel {
  const open = (path: string, exercise?: string): void => void openChapter(app, path, exercise);
  const panel = new ChaptersPanel(app.serviceManager.contents, open, say);
  app.shell.add(panel, "left", { rank: 150 });
  if (shell) shell.currentPathChanged.connect((_, change) => panel.mark(change.newValue));
  return panel;
}

function addCommands(app: JupyterFrontEnd, tracker: INotebookTracker | null, panel: ChaptersPanel, say: Say): void {
  app.commands.addCommand(EXPLAIN, {
    label: say("Explain this cell", "解释这个单元格"),
    caption: say(
      "Explain this cell: run it again, watched, and show what happened to its tensors",
      "解释这个单元格：在观察下重新运行，并显示张量发生了什么",
    ),
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

/** The launcher's card: the first chapter, or where there is none the panel that says what chapters are. */
function addCard(app: JupyterFrontEnd, launcher: ILauncher | null, panel: ChaptersPanel, settings: Settings, say: Say): void {
  app.commands.addCommand(START, {
    label: "Pitfall Lab",
    caption: say("Start with the first chapter of Pitfall Lab", "从 Pitfall Lab 的第一章开始"),
    icon,
    describedBy: { args: { type: "object", properties: {} } },
    execute: async () => {
      const [first] = (await findCourse(app.serviceManager.contents, settings.folder)).chapters;
      if (first) await app.commands.execute(OPEN_FILE, { path: first.path });
      else app.shell.activateById(panel.id);
    },
  });
  launcher?.add({ command: START, category: "Other", rank: 9 });
}

/** Explains the cell in whose output something was clicked, together with runs of `earlier` cells. */
function explainAround(place: Node, earlier: number[], tracker: INotebookTracker | null, say: Say): void {
  tracker?.forEach((panel) => {
    const cell = panel.content.widgets.find((one) => one.node.contains(place));
    if (cell?.model.type === "code") void explainCell(panel, say, cell as CodeCell, earlier);
  });
}

/** The buttons in a notebook's toolbar with a word beside the icon: it is where most people meet them first. */
function addButtons(app: JupyterFrontEnd, toolbars: IToolbarWidgetRegistry | null, say: Say): void {
  const add = (name: string, id: string, label: string): void =>
    void toolbars?.addFactory<NotebookPanel>("Notebook", name, ({ toolbar }) => {
      const { noFocusOnClick } = toolbar as { noFocusOnClick?: boolean };
      return new CommandToolbarButton({ commands: app.commands, id, label, noFocusOnClick });
    });
  add("pitfall-lab-explain", EXPLAIN, say("Explain", "解释"));
  add("pitfall-lab-record", RECORD, say("Record", "记录"));
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: "The chapters of Pitfall Lab, live tensors, and an explanation for any cell.",
  autoStart: true,
  optional: [
    INotebookTracker,
    ICommandPalette,
    ISettingRegistry,
    ITranslator,
    ILabShell,
    IRenderMimeRegistry,
    ILauncher,
    IEditorExtensionRegistry,
    IToolbarWidgetRegistry,
  ],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker | null,
    palette: ICommandPalette | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null,
    shell: ILabShell | null,
    rendermime: IRenderMimeRegistry | null,
    launcher: ILauncher | null,
    editors: IEditorExtensionRegistry | null,
    toolbars: IToolbarWidgetRegistry | null,
  ) => {
    offerFrontEnd();
    const say = sayIn(translator);
    const settings = new Settings();
    const panel = addPanel(app, shell, say);
    const notebooks: Notebooks | null = tracker && addLivePanel(app, shell, tracker, say);
    if (editors && tracker && notebooks) addMarks(editors, tracker, notebooks, say);
    if (tracker) addRecording(app, tracker, say);
    rememberRuns();
    followRuns(isRecorded);
    answerPictures(tracker);
    showStored(tracker);
    addCommands(app, tracker, panel, say);
    addButtons(app, toolbars, say);
    addCard(app, launcher, panel, settings, say);
    rendermime?.addFactory(
      hintFactory((place, earlier) => explainAround(place, earlier, tracker, say), say),
      0,
    );
    rendermime?.addFactory(
      errorFactory(() => settings.fold, say),
      BEFORE_ERRORS,
    );
    for (const command of [EXPLAIN, OPEN_PANEL, ...(notebooks ? [OPEN_LIVE, RECORD] : [])])
      palette?.addItem({ command, category: "Pitfall Lab" });
    const changed = (): void => {
      panel.search(settings.folder);
      notebooks?.configure(settings.live, settings.stale);
    };
    void app.restored.then(() => settings.follow(registry, changed, say));
  },
};

export default plugin;
