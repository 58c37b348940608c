/** The left panel: the chapters, one button each. */

import type { Contents } from "@jupyterlab/services";
import { Widget } from "@lumino/widgets";
import { h } from "../core/dom";
import { type Chapter, type Course, findCourse } from "./chapters";
import { icon } from "./icon";
import type { Say } from "./words";

export class ChaptersPanel extends Widget {
  private readonly list = document.createElement("ol");
  private readonly hint = document.createElement("p");
  private readonly next = h("p", { class: "pl-chapters-next" });
  private open = "";
  private folder = "";
  private asked = 0;
  /** Whether the list is older than what may be on the disk: it is read when somebody looks, not while JupyterLab starts. */
  private old = true;

  constructor(
    private readonly contents: Contents.IManager,
    private readonly openPath: (path: string, exercise?: string) => void,
    private readonly say: Say,
  ) {
    super();
    this.id = "pitfall-lab-chapters";
    this.addClass("pl-chapters");
    this.title.icon = icon;
    this.title.caption = say("Pitfall Lab: chapters", "Pitfall Lab：章节");
    this.node.setAttribute("role", "navigation");
    this.node.setAttribute("aria-label", this.title.caption);
    const title = document.createElement("h2");
    title.className = "pl-chapters-title";
    title.textContent = "Pitfall Lab";
    this.hint.className = "pl-chapters-hint";
    this.list.className = "pl-chapters-list";
    this.node.append(title, this.hint, this.next, this.list);
  }

  /** Where the chapters are, as the settings say. */
  search(folder: string): void {
    if (folder !== this.folder) this.old = true;
    this.folder = folder;
    if (this.old && this.isVisible) void this.refresh();
  }

  /** Reads the list again: the learner may have added or renamed notebooks. */
  async refresh(): Promise<void> {
    const { folder } = this;
    this.old = false;
    const asked = (this.asked += 1);
    const course = await findCourse(this.contents, folder);
    const { chapters } = course;
    if (asked !== this.asked || this.isDisposed) return;
    this.list.replaceChildren(...chapters.map((chapter) => this.item(chapter)));
    this.hint.textContent = chapters.length
      ? this.say("Each chapter is a notebook: predict, run, look.", "每章是一个 notebook：先预测，再运行，然后观察。")
      : this.say(
          "No chapters here. They are notebooks named like 05-copies-and-views.ipynb.",
          "这里没有章节。章节是形如 05-copies-and-views.ipynb 的 notebook。",
        );
    this.showNext(course);
    this.mark(this.open);
  }

  private showNext({ next }: Course): void {
    this.next.hidden = !next;
    if (!next) return;
    const { chapter, exercise } = next;
    const click = (): void => this.openPath(chapter.path, exercise);
    const words = this.say(`Next exercise: ${exercise}`, `下一个练习：${exercise}`);
    this.next.replaceChildren(h("button", { type: "button", title: chapter.title, click }, words));
  }

  /** Shows which chapter is in front. */
  mark(path: string): void {
    this.open = path;
    for (const button of this.list.querySelectorAll<HTMLElement>("button")) {
      if (button.dataset.path === path) button.setAttribute("aria-current", "page");
      else button.removeAttribute("aria-current");
    }
  }

  private item(chapter: Chapter): HTMLElement {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "pl-chapters-item";
    button.dataset.path = chapter.path;
    button.title = chapter.path;
    const number = document.createElement("span");
    number.className = "pl-chapters-number";
    number.textContent = chapter.number;
    const title = document.createElement("span");
    title.textContent = chapter.title;
    button.append(number, title);
    const { say } = this;
    const { solved, exercises, minutes } = chapter;
    const about = h("span", { class: "pl-chapters-about" });
    if (solved.size > 0) {
      const all = exercises.length ? `/${exercises.length}` : "";
      about.append(h("span", { class: "pl-chapters-solved", title: say("exercises solved", "已解练习") }, `✓ ${solved.size}${all}`));
    }
    if (minutes) {
      const title = say(`takes about ${minutes} minutes`, `大约需要 ${minutes} 分钟`);
      about.append(h("span", { class: "pl-chapters-time", title }, say(`${minutes} min`, `${minutes} 分钟`)));
    }
    if (about.childElementCount) button.append(about);
    button.addEventListener("click", () => this.openPath(chapter.path));
    const item = document.createElement("li");
    item.append(button);
    return item;
  }

  protected override onAfterShow(): void {
    void this.refresh();
  }
}
