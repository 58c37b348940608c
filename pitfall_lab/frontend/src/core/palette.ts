/**
 * One storage = one hue. The hues are Okabe and Ito's without yellow and black, which stay apart under
 * every common colour-vision deficiency when drawn with an outline. Only six storages get a hue: the rest are grey.
 */

export const HUES = ["#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"] as const;
export const GREY = "#8A8A8A";

/** S1 → 0. Labels count from 1 in order of birth. */
function order(storage: string): number {
  const number = /^S(\d+)$/.exec(storage);
  return number ? Number(number[1]) - 1 : -1;
}

/** `chosen` are the storages that matter most, as Python picked them for all views; without it, the first six by birth. */
export function hue(storage: string, chosen?: readonly string[]): string {
  return HUES[chosen ? chosen.indexOf(storage) : order(storage)] ?? GREY;
}

/** The text colour that can be read on a hue: at least 4.5 to 1 on each. */
export function inkOn(colour: string): string {
  return colour === "#0072B2" ? "#FFFFFF" : "#000000";
}
