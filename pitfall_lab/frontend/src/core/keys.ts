/** The keyboard: one tab stop for the whole Explorer, arrows inside, Esc to leave. */

/** Every key, what it does in both languages, and the action that its button shares. */
export const KEYS: [key: string, en: string, zh: string][] = [
  ["← →", "previous, next step", "上一步、下一步"],
  ["Home End", "to the start, to the end", "到开头、到结尾"],
  ["[ ]", "previous, next event of the focused storage", "所选存储的上一个、下一个事件"],
  ["E", "saved → changed → raised, and round again", "保存 → 改写 → 报错，循环"],
  ["↑ ↓", "previous, next control", "上一个、下一个控件"],
  ["1 … 9", "a view, when there is room for one only", "窄屏时切换视图"],
  ["T", "everything as text", "文字视图"],
  ["?", "this help", "本帮助"],
  ["Esc", "leave", "离开"],
];

const STOPS = "button:not(:disabled),input,[tabindex],a[href],summary";

/** Keeps exactly one element of `root` in the tab order. */
export class Roving {
  #current: HTMLElement | SVGElement | null = null;

  readonly #root: HTMLElement;
  readonly #home: () => HTMLElement;

  constructor(root: HTMLElement, home: () => HTMLElement) {
    this.#root = root;
    this.#home = home;
    root.addEventListener("focusin", (event) => this.#take(event.target as HTMLElement));
  }

  #stops(): HTMLElement[] {
    return [...this.#root.querySelectorAll<HTMLElement>(STOPS)];
  }

  /** Call after anything was drawn: new controls join the order, and the tab stop moves home when its control is gone. */
  sweep(): void {
    const home = this.#home();
    if (this.#current !== home && (!this.#current?.isConnected || !this.#visible(this.#current))) this.#current = home;
    for (const stop of this.#stops()) stop.tabIndex = stop === this.#current ? 0 : -1;
  }

  #visible(element: Element): boolean {
    return element.getClientRects().length > 0;
  }

  #take(element: HTMLElement | SVGElement): void {
    if (!element.matches(STOPS)) return;
    if (this.#current && this.#current !== element) this.#current.tabIndex = -1;
    this.#current = element;
    element.tabIndex = 0;
  }

  move(by: 1 | -1, from: Element | null): void {
    const stops = this.#stops().filter((stop) => this.#visible(stop));
    const at = stops.indexOf((from ?? this.#current) as HTMLElement);
    stops[(at + by + stops.length) % stops.length]?.focus();
  }
}
