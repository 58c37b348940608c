/** The marks in an editor: a sign in the gutter, an underline, and where one points at it, the sentence with the edit that helps. */

import { Compartment, type EditorState, type Extension, RangeSet, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, GutterMarker, gutter, hoverTooltip, type Tooltip, ViewPlugin } from "@codemirror/view";
import { h } from "../../core/dom";
import type { Level } from "../live/protocol";
import type { Say } from "../words";
import { card } from "./card";
import { forget, type Mark, marksOf, watch } from "./marks";

interface Place {
  from: number;
  to: number;
  mark: Mark;
}

const SIGNS: Record<Level, string> = { error: "✕", silent: "≠", note: "ⓘ" };
const WORST: Level[] = ["error", "silent", "note"];
const place = StateEffect.define<Place[]>();

/** Where the marks are, as long as the marked text stays as it is. */
const places = StateField.define<Place[]>({
  create: () => [],
  update(value, { changes, docChanged, effects }) {
    const sent = effects.find((effect) => effect.is(place));
    if (sent) return sent.value as Place[];
    if (!docChanged) return value;
    return value.flatMap(({ from, to, mark }) =>
      changes.touchesRange(from, to) ? [] : [{ from: changes.mapPos(from, 1), to: changes.mapPos(to, -1), mark }],
    );
  },
  provide: (field) => EditorView.decorations.from(field, underlined),
});

function underlined(all: Place[]): DecorationSet {
  return Decoration.set(
    all.map(({ from, to, mark }) => Decoration.mark({ class: `pl-marked pl-marked-${mark.level}` }).range(from, to)),
    true,
  );
}

class Sign extends GutterMarker {
  constructor(
    private readonly mark: Mark,
    private readonly say: Say,
  ) {
    super();
  }

  override toDOM(): Node {
    const label = this.say(this.mark.sentence.en, this.mark.sentence.zh);
    return h("span", { class: `pl-sign pl-sign-${this.mark.level}`, role: "img", label, title: label }, SIGNS[this.mark.level]);
  }
}

function signs(view: EditorView, say: Say): RangeSet<GutterMarker> {
  const lines = new Map<number, Mark>();
  for (const { from, mark } of view.state.field(places)) {
    const { from: at } = view.state.doc.lineAt(from);
    const known = lines.get(at);
    if (!known || WORST.indexOf(mark.level) < WORST.indexOf(known.level)) lines.set(at, mark);
  }
  return RangeSet.of(
    [...lines].map(([at, mark]) => new Sign(mark, say).range(at)),
    true,
  );
}

/** Without its indentation and what follows it; a mark of what no longer stands there has no place. */
function placeOf(state: EditorState, mark: Mark): Place[] {
  if (mark.line < 1 || mark.line > state.doc.lines) return [];
  const { text, from } = state.doc.line(mark.line);
  const code = text.trim();
  if (!code || code !== mark.code.trim()) return [];
  const begin = from + text.indexOf(code);
  return [{ from: begin, to: begin + code.length, mark }];
}

/** What an editor needs to show the marks of `cell`, its shared model. */
export function markedEditor(cell: object, say: Say): Extension {
  const column = new Compartment();
  const found = gutter({ class: "pl-signs", markers: (view) => signs(view, say) });
  // Editors without marks have no column for them.
  const show = (view: EditorView): void => {
    const all = marksOf(cell).flatMap((mark) => placeOf(view.state, mark));
    if (!all.length && !view.state.field(places).length) return;
    view.dispatch({ effects: [place.of(all), column.reconfigure(all.length ? found : [])] });
  };
  const follow = ViewPlugin.define((view) => {
    const soon = (): void => void Promise.resolve().then(() => view.dom.isConnected && show(view));
    const stop = watch(cell, soon);
    window.setTimeout(soon);
    return {
      update({ docChanged, state, startState }) {
        const now = state.field(places);
        if (!docChanged || now === startState.field(places)) return;
        const still = new Set(now.map(({ mark }) => mark));
        for (const { mark } of startState.field(places)) if (!still.has(mark)) forget(cell, mark);
        for (const { from, mark } of now) mark.line = state.doc.lineAt(from).number;
      },
      destroy: stop,
    };
  });
  const hover = hoverTooltip(
    (view, at): Tooltip | null => {
      const here = view.state.field(places).filter(({ from, to }) => from <= at && at <= to);
      const [first] = here;
      return first
        ? {
            pos: first.from,
            end: first.to,
            above: true,
            create: () => ({
              dom: card(
                here.map(({ mark }) => mark),
                say,
              ),
            }),
          }
        : null;
    },
    { hoverTime: 200 },
  );
  return [places, column.of([]), follow, hover];
}
