/** A line of code that may be too long for its place: it is broken where Python's syntax lets one, and inside a word only where nothing else fits. */

import { type Child, h } from "./dom";

/** Behind a comma or an opening bracket, before an operator or a dot; a number's own dot and the second half of `**` are no such place. */
const BREAKS = /(?<=[,([{])(?=[^\s)\]}])|(?<=[\w)\]}"'])(?=[.+*/@|&-])(?!(?<=\d)\.)/u;
/** A dotted name of so many letters (`self.log_variance`) stays whole: there is a better place near. */
const SHORT = 20;

/** Whether the dot at `at` is inside of a short dotted name. */
export function isWhole(code: string, at: number): boolean {
  if (code[at] !== "." || !/\w/.test(code[at - 1] ?? "")) return false;
  const [before = "", after = ""] = [/[\w.]*$/.exec(code.slice(0, at))?.[0], /^[\w.]*/.exec(code.slice(at))?.[0]];
  return before.length + after.length <= SHORT;
}

export function wrapped(code: string): Child[] {
  let at = 0;
  return code.split(BREAKS).flatMap((part) => {
    const broken = at > 0 && !isWhole(code, at);
    at += part.length;
    return broken ? [h("wbr", {}), part] : [part];
  });
}
