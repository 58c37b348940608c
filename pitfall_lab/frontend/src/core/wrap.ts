/** A line of code that may be too long for its place: it is broken where Python's syntax lets one, and inside a word only where nothing else fits. */

import { type Child, h } from "./dom";

/** Behind a comma or an opening bracket, before an operator or a dot; a number's own dot and the second half of `**` are no such place. */
const BREAKS = /(?<=[,([{])(?=[^\s)\]}])|(?<=[\w)\]}"'])(?=[.+*/@|&-])(?!(?<=\d)\.)/u;

export function wrapped(code: string): Child[] {
  return code.split(BREAKS).flatMap((part, at) => (at ? [h("wbr", {}), part] : [part]));
}
