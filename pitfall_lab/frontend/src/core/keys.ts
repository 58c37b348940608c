/** The keyboard: one tab stop for the whole Explorer, arrows inside, Esc to leave. */

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
