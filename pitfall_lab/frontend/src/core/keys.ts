/** The keyboard: one tab stop for each part of the Explorer, arrows from control to control, Esc to leave. */

const STOPS = "button:not(:disabled),input,[tabindex],a[href],summary";

/** Keeps exactly one element of each part (`data-part`) in the tab order: few stops, and every part is reached forwards. */
export class Roving {
  readonly #current = new WeakMap<Element, HTMLElement>();

  readonly #root: HTMLElement;

  constructor(root: HTMLElement) {
    this.#root = root;
    root.addEventListener("focusin", (event) => this.#take(event.target as HTMLElement));
  }

  #parts(): Element[] {
    const parts = [...this.#root.querySelectorAll("[data-part]")];
    return parts.length ? parts : [this.#root];
  }

  #stops(part: Element): HTMLElement[] {
    return [...part.querySelectorAll<HTMLElement>(STOPS)].filter((stop) => (stop.closest("[data-part]") ?? this.#root) === part);
  }

  /** Call after anything was drawn: new controls join the order, and a part's stop moves to its home when its control is gone. */
  sweep(): void {
    for (const part of this.#parts()) {
      const stops = this.#stops(part);
      const known = this.#current.get(part);
      const here =
        known && stops.includes(known) && visible(known)
          ? known
          : (stops.find((stop) => stop.matches("[data-home]") && visible(stop)) ?? stops.find(visible));
      for (const stop of stops) stop.tabIndex = stop === here ? 0 : -1;
      if (here) this.#current.set(part, here);
    }
  }

  #take(element: HTMLElement): void {
    const part = element.closest("[data-part]") ?? this.#root;
    if (!element.matches(STOPS) || !this.#root.contains(part)) return;
    const known = this.#current.get(part);
    if (known && known !== element) known.tabIndex = -1;
    this.#current.set(part, element);
    element.tabIndex = 0;
  }

  /** To the next control, over the borders of parts, and round again at the end. */
  move(by: 1 | -1, from: Element | null): void {
    const stops = this.#parts()
      .flatMap((part) => this.#stops(part))
      .filter(visible);
    const at = stops.indexOf(from as HTMLElement);
    stops[(at + by + stops.length) % stops.length]?.focus();
  }
}

/** What is hidden by `visibility` has its room but takes no focus: the arrows must not stop in front of it. */
function visible(element: Element): boolean {
  return element.checkVisibility({ visibilityProperty: true });
}
