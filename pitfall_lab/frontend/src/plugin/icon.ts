import { LabIcon } from "@jupyterlab/ui-components";

/** A ball in a pit. No `fill` attribute on the line: Jupyter's themes colour whatever has one. */
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
<path class="jp-icon3" style="fill:none" stroke="#616161" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" d="M1 4.5h3.6v8h6.8v-8H15"/>
<circle class="jp-icon3" fill="#616161" cx="8" cy="9.4" r="1.8"/></svg>`;

/** Rows, each with the colour of its memory. */
const LIVE = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
<path class="jp-icon3" style="fill:none" stroke="#616161" stroke-width="1.6" stroke-linecap="round" d="M6.4 3.4h8M6.4 8h8M6.4 12.6h5"/>
<circle class="jp-icon3" fill="#616161" cx="2.8" cy="3.4" r="1.5"/><circle class="jp-icon3" fill="#616161" cx="2.8" cy="8" r="1.5"/>
<circle class="jp-icon3" fill="#616161" cx="2.8" cy="12.6" r="1.5"/></svg>`;

/** The pit with a ring that stays open, or a red one that records. */
const RECORD = (ball: string): string => `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
<path class="jp-icon3" style="fill:none" stroke="#616161" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" d="M1 8h1.6v6.4h10.8V8H15"/>${ball}</svg>`;
const OPEN = `<circle class="jp-icon3" style="fill:none" stroke="#616161" stroke-width="1.6" cx="8" cy="6.6" r="3.2"/>`;
const RED = `<circle style="fill:var(--jp-error-color1)" cx="8" cy="6.6" r="4"/>`;

export const icon = new LabIcon({ name: "pitfall-lab:icon", svgstr: SVG });
export const liveIcon = new LabIcon({ name: "pitfall-lab:live", svgstr: LIVE });
export const recordIcon = new LabIcon({ name: "pitfall-lab:record", svgstr: RECORD(OPEN) });
export const recordingIcon = new LabIcon({ name: "pitfall-lab:recording", svgstr: RECORD(RED) });
