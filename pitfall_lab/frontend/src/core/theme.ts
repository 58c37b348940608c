/** Jupyter's themes say nothing about dark or light to a shadow root, so the background's brightness decides. */

function isDark(root: HTMLElement): boolean {
  const numbers = getComputedStyle(root)
    .backgroundColor.match(/[\d.]+/g)
    ?.map(Number) ?? [255, 255, 255];
  const scale = getComputedStyle(root).backgroundColor.startsWith("color(") ? 255 : 1;
  const [r = 255, g = 255, b = 255] = numbers.map((one) => one * scale);
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}

/** Keeps the class `pl-dark` right while the theme changes; returns what stops it. */
export function watchTheme(root: HTMLElement): () => void {
  let later = 0;
  const look = (): void => void root.classList.toggle("pl-dark", isDark(root));
  const lookTwice = (): void => {
    look();
    // Jupyter announces a theme before its colours have arrived.
    window.clearTimeout(later);
    later = window.setTimeout(look, 400);
  };
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  const body = new MutationObserver(lookTwice);
  body.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "class", "style"] });
  media.addEventListener("change", lookTwice);
  lookTwice();
  return () => {
    window.clearTimeout(later);
    body.disconnect();
    media.removeEventListener("change", lookTwice);
  };
}
