/** Marks in the editors of notebooks, from what was warned of and from what was explained. */

import { EditorExtensionRegistry, type IEditorExtensionRegistry } from "@jupyterlab/codemirror";
import type { INotebookTracker } from "@jupyterlab/notebook";
import type { Notebooks } from "../live/notebooks";
import type { Say } from "../words";
import { markedEditor } from "./editor";
import { markFindings } from "./explained";
import { rememberTexts } from "./remedy";
import { markWarnings } from "./warned";

export function addMarks(registry: IEditorExtensionRegistry, tracker: INotebookTracker, notebooks: Notebooks, say: Say): void {
  registry.addExtension({
    name: "pitfall-lab:marks",
    // Cells only: an editor of a file has no runs.
    factory: ({ inline, model }) =>
      inline ? EditorExtensionRegistry.createImmutableExtension(markedEditor(model.sharedModel, say)) : null,
  });
  rememberTexts();
  markFindings(tracker);
  notebooks.heard.connect((_, { live, what }) => {
    if (what === "warnings") markWarnings(live);
  });
}
