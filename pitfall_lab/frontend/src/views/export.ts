/** A view as a picture for slides: its drawing alone as SVG, or as PNG; nothing in either refers to the page. */

const VARIABLES = [
  "--pl-bg",
  "--pl-ink",
  "--pl-line",
  "--pl-accent",
  "--pl-red",
  "--pl-green",
  "--pl-dim",
  "--pl-wash",
  "--pl-tint",
  "--pl-code-font",
];
const SVG = "http://www.w3.org/2000/svg";

/** The content of a view's box as one SVG: its own SVG where it is one, else its elements inside a `foreignObject`. */
export function asSvg(box: HTMLElement): { text: string; width: number; height: number } {
  const style = getComputedStyle(box);
  const values = VARIABLES.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";");
  const alone = box.querySelectorAll("svg").length === 1 ? box.querySelector<SVGSVGElement>(":scope > svg") : null;
  const [width, height] = alone
    ? [alone.viewBox.baseVal.width, alone.viewBox.baseVal.height]
    : [box.scrollWidth + 16, box.scrollHeight + 16];
  const outer = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({
    xmlns: SVG,
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    class: "plv",
    style: `${values};background:${style.getPropertyValue("--pl-bg")};color:${style.getPropertyValue("--pl-ink")}`,
  }))
    outer.setAttribute(name, String(value));
  const sheet = document.createElementNS(SVG, "style");
  sheet.textContent = (box.getRootNode() as ShadowRoot).querySelector("style")?.textContent ?? "";
  outer.append(sheet);
  if (alone) {
    const copy = alone.cloneNode(true) as SVGSVGElement;
    copy.setAttribute("width", String(width));
    copy.setAttribute("height", String(height));
    outer.append(copy);
  } else {
    const room = document.createElementNS(SVG, "foreignObject");
    room.setAttribute("width", "100%");
    room.setAttribute("height", "100%");
    const copy = box.cloneNode(true) as HTMLElement;
    copy.style.cssText = `${values};max-height:none;overflow:visible;padding:8px;font:13px/1.35 ${style.fontFamily}`;
    room.append(copy);
    outer.append(room);
  }
  return { text: new XMLSerializer().serializeToString(outer), width, height };
}

async function asPng(picture: { text: string; width: number; height: number }): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture.text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [picture.width * 2, picture.height * 2];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"));
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** PNG goes to the clipboard where the page may write to it, else both are saved as files. */
export async function take(box: HTMLElement, kind: "svg" | "png", name: string): Promise<void> {
  const picture = asSvg(box);
  if (kind === "svg") return save(new Blob([picture.text], { type: "image/svg+xml" }), `${name}.svg`);
  const blob = await asPng(picture);
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
  } catch {
    save(blob, `${name}.png`);
  }
}
