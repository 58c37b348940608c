/**
 * One storage = one hue, one letter. The hues are Okabe and Ito's without yellow and black, which stay apart under
 * every common colour-vision deficiency when drawn with an outline. Only six storages get a hue: the rest are grey.
 */

export const HUES = ["#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"] as const;
export const GREY = "#8A8A8A";

/** S1 → 0. Labels count from 1 in order of birth. */
function order(storage: string): number {
  const number = /^S(\d+)$/.exec(storage);
  return number ? Number(number[1]) - 1 : -1;
}

/** A … Z, AA, AB …: letters as spreadsheets count their columns. */
export function letter(storage: string): string {
  let index = order(storage);
  if (index < 0) return "?";
  let text = "";
  for (index += 1; index > 0; index = Math.floor((index - 1) / 26)) text = String.fromCharCode(65 + ((index - 1) % 26)) + text;
  return text;
}

/** Hues go to the storages in `chosen` order of importance; see `Model.hue`. */
export function hue(storage: string, chosen: readonly string[]): string {
  const index = chosen.indexOf(storage);
  return index < 0 || index >= HUES.length ? GREY : (HUES[index] as string);
}
