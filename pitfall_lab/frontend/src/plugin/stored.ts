/** A notebook that is opened again has our outputs, but no widget behind them: it shows the page that is stored beside each. */

import type { INotebookTracker } from "@jupyterlab/notebook";
import type { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Panel, type Widget } from "@lumino/widgets";

const OURS = "application/vnd.pitfall-lab.look+json";
const LIVE = "application/vnd.jupyter.widget-view+json";
const PAGE = "text/html";
/** Before widgets (-10), which say of a missing one only that it is missing. */
const RANK = -20;
/**
 * So many milliseconds a widget may take before its page is shown in its place; it still replaces the page when it comes. In a page
 * that is loaded anew the renderer may be there before the notebook's widget manager, which finds only renderers that are not inside
 * of others: one that is made later has it.
 */
const PATIENCE = [1500, 2000, 4000, 8000];

export function showStored(tracker: INotebookTracker | null): void {
  const add = (rendermime: IRenderMimeRegistry): void =>
    // Not safe: in an untrusted notebook JupyterLab takes the page, sanitised, as if we were not here.
    rendermime.addFactory({ safe: false, mimeTypes: [OURS], createRenderer: () => new LiveOrStored(rendermime) }, RANK);
  tracker?.forEach((panel) => add(panel.content.rendermime));
  tracker?.widgetAdded.connect((_, panel) => add(panel.content.rendermime));
}

class LiveOrStored extends Panel implements IRenderMime.IRenderer {
  private page: IRenderMime.IRenderer | null = null;
  /** The live widget, and the model that it is of. */
  private live: IRenderMime.IRenderer | null = null;
  private shown = "";
  private turn = 0;

  constructor(private readonly rendermime: IRenderMimeRegistry) {
    super();
    this.addClass("pl-live-or-stored");
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    // A new page beside the same widget is only stored: the reader's Explorer stays as it is.
    const of = JSON.stringify(model.data[LIVE] ?? null);
    if (this.live && !this.live.isDisposed && !this.live.isHidden && of === this.shown) return;
    this.live = null;
    while (this.widgets.length) (this.widgets[0] as Widget).dispose();
    this.page = null;
    if (!(LIVE in model.data) || !this.rendermime.getFactory(LIVE)) return this.stored(model);
    this.shown = of;
    const mine = (this.turn += 1);
    for (const patience of PATIENCE) {
      const live = this.rendermime.createRenderer(LIVE);
      this.live = live;
      const rendered = await this.draw(live, model, patience);
      if (this.isDisposed || mine !== this.turn) return;
      if (live.isHidden && !this.page) await this.stored(model);
      if (rendered || mine !== this.turn) return;
      live.dispose();
    }
  }

  /** Shows the widget as soon as it is there; returns whether its renderer has done what it can in time. */
  private async draw(live: IRenderMime.IRenderer, model: IRenderMime.IMimeModel, patience: number): Promise<boolean> {
    live.hide();
    this.insertWidget(0, live);
    const settle = (): void => {
      const there = !live.isDisposed && live.node.querySelector(".jupyter-widgets, .lm-Widget") !== null;
      live.setHidden(!there);
      this.page?.setHidden(there);
    };
    const seen = new MutationObserver(settle);
    seen.observe(live.node, { childList: true });
    live.disposed.connect(() => seen.disconnect());
    const rendered = live.renderModel(model).then(() => true);
    const inTime = await Promise.race([rendered, new Promise<false>((end) => window.setTimeout(end, patience, false))]);
    settle();
    return inTime;
  }

  private async stored(model: IRenderMime.IMimeModel): Promise<void> {
    if (!(PAGE in model.data)) return;
    this.page = this.rendermime.createRenderer(PAGE);
    this.addWidget(this.page);
    await this.page.renderModel(model);
  }
}
