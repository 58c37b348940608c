"use strict";(self.rspackChunkpitfall_lab=self.rspackChunkpitfall_lab||[]).push([[183],{646(e,l,r){var o=r(601),i=r.n(o),n=r(314),t=(r.n(n))()(i());t.push([e.id,`.pl-chapters {
  display: flex;
  flex-direction: column;
  min-width: 200px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  overflow: auto;
  padding: 12px 0;
}

.pl-chapters-title {
  font-size: var(--jp-ui-font-size2);
  font-weight: 600;
  margin: 0;
  padding: 4px 16px;
}

.pl-chapters-hint {
  color: var(--jp-ui-font-color2);
  margin: 0;
  padding: 4px 16px 12px;
  line-height: 1.5;
}

.pl-chapters-list {
  list-style: none;
  margin: 0;
  padding: 0;
}

.pl-chapters-item {
  display: grid;
  grid-template-columns: 2.4em minmax(0, 1fr);
  gap: 0 8px;
  width: 100%;
  min-height: 32px;
  padding: 6px 16px;
  border: 0;
  background: none;
  color: inherit;
  font: inherit;
  line-height: 1.4;
  text-align: start;
  cursor: pointer;
}

.pl-chapters-item:hover {
  background: var(--jp-layout-color2);
}

.pl-chapters-item:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.pl-chapters-number {
  color: var(--jp-ui-font-color2);
  font-variant-numeric: tabular-nums;
  text-align: end;
}

.pl-chapters-item[aria-current="page"] {
  background: var(--jp-layout-color2);
  box-shadow: inset 3px 0 var(--jp-brand-color1);
}

.pl-chapters-item[aria-current="page"] .pl-chapters-number {
  color: inherit;
}

.pl-chapters-about {
  display: flex;
  gap: 12px;
  grid-column: 2;
  color: var(--jp-ui-font-color2);
  font-variant-numeric: tabular-nums;
}

.pl-chapters-next {
  margin: 0;
  padding: 0 16px 12px;
}

.pl-chapters-next button {
  min-height: 28px;
  padding: 0 12px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 3px;
  background: none;
  color: inherit;
  font: inherit;
  cursor: pointer;
}

.pl-chapters-next button:hover {
  background: var(--jp-layout-color2);
}

.pl-chapters-next button:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: 1px;
}
`,""]),r.d(l,{},{A:t})},794(e,l,r){var o=r(601),i=r.n(o),n=r(314),t=(r.n(n))()(i());t.push([e.id,`/* The live panel, the line under a cell, and the folded traceback. Colours are JupyterLab's. */

.pl-live {
  container: pl-live / inline-size;
  display: flex;
  flex-direction: column;
  min-width: 240px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);
  line-height: 1.4;
}

.pl-live [hidden] {
  display: none !important;
}

.pl-live button,
.pl-live-notice button,
.pl-live-hint button,
.pl-fold button {
  border: 0;
  background: none;
  color: inherit;
  font: inherit;
  cursor: pointer;
}

.pl-live :focus-visible,
.pl-live-notice :focus-visible,
.pl-live-hint :focus-visible,
.pl-fold :focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -1px;
}

.pl-live code,
.pl-live-notice code,
.pl-live-hint code {
  font-family: var(--jp-code-font-family);
  font-size: 0.95em;
  background: none;
  color: inherit;
  padding: 0;
}

.pl-live-tools {
  display: flex;
  gap: 6px;
  padding: 8px;
}

.pl-live-tools input,
.pl-live-tools select {
  min-width: 0;
  height: 26px;
  padding: 0 6px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 3px;
  background: var(--jp-layout-color0);
  color: inherit;
  font: inherit;
}

.pl-live-tools input {
  flex: 1;
}

.pl-live-says {
  margin: 0;
  padding: 8px 12px;
  color: var(--jp-ui-font-color2);
}

/* ---- warnings */

.pl-live-warnings {
  flex: 0 1 auto;
  min-height: 72px;
  max-height: 45%;
  overflow: auto;
  border-block-end: 1px solid var(--jp-border-color2);
}

.pl-live-warning {
  padding: 8px 12px;
  border-inline-start: 3px solid var(--jp-border-color1);
}

.pl-live-warning + .pl-live-warning {
  border-block-start: 1px solid var(--jp-border-color2);
}

.pl-live-warning h3 {
  display: flex;
  justify-content: space-between;
  margin: 0 0 2px;
  font-size: inherit;
  font-weight: 600;
}

.pl-live-warning h3 span,
.pl-live-rule {
  color: var(--jp-ui-font-color2);
  font-weight: 400;
}

.pl-live-warning p {
  margin: 0 0 4px;
}

.pl-live-warning.pl-live-error {
  border-inline-start-color: var(--jp-error-color1);
}

.pl-live-warning.pl-live-error h3 {
  color: var(--jp-error-color0, var(--jp-error-color1));
}

.pl-live-warning.pl-live-silent {
  border-inline-start-color: var(--jp-warn-color1);
}

.pl-live-cells {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 4px;
}

.pl-live .pl-live-cell,
.pl-live-notice .pl-live-cell,
.pl-live .pl-live-past button {
  min-height: 24px;
  padding: 0 8px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 12px;
  color: var(--jp-ui-font-color1);
  white-space: nowrap;
}

.pl-live-cell span {
  color: var(--jp-ui-font-color2);
}

.pl-live .pl-live-cell:hover:enabled,
.pl-live-notice .pl-live-cell:hover:enabled,
.pl-live .pl-live-past button:hover {
  background: var(--jp-layout-color2);
}

.pl-live .pl-live-cell:disabled {
  cursor: default;
  opacity: 0.6;
}

.pl-live .pl-live-more {
  min-height: 28px;
  padding: 0 12px;
  color: var(--jp-content-link-color, var(--jp-brand-color1));
}

/* ---- an earlier cell */

.pl-live-past {
  display: flex;
  flex: none;
  align-items: center;
  justify-content: space-between;
  gap: 8px;
  padding: 4px 12px;
  background: var(--jp-layout-color2);
}

/* ---- the rows */

.pl-live-table {
  display: flex;
  flex: 1 1 120px;
  flex-direction: column;
  min-height: 136px;
  outline-offset: -2px;
}

.pl-live-body {
  flex: 1;
  overflow: hidden auto;
}

.pl-live-space {
  position: relative;
  overflow: hidden;
}

.pl-live-row {
  --pl-columns: minmax(0, 1.25fr) minmax(0, 0.9fr) minmax(0, 1fr);
  display: grid;
  grid-template-columns: var(--pl-columns);
  column-gap: 6px;
  align-items: center;
  box-sizing: border-box;
  width: 100%;
  height: 26px;
  padding-inline: 6px;
  border-inline-start: 2px solid transparent;
  cursor: default;
}

.pl-live-space .pl-live-row {
  position: absolute;
  inset-inline: 0;
}

.pl-live-head {
  border-block-end: 1px solid var(--jp-border-color2);
}

.pl-live-head button {
  width: 100%;
  height: 24px;
  padding: 0;
  overflow: hidden;
  color: var(--jp-ui-font-color2);
  text-align: start;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.pl-live-row > * {
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.pl-live-space .pl-live-row > * {
  font: 12px / 1.5 var(--jp-code-font-family);
}

.pl-live-space .pl-live-row > :not(.pl-live-name, .pl-live-state) {
  color: var(--jp-ui-font-color2);
}

.pl-live-dtype,
.pl-live-bytes,
.pl-live-device,
.pl-live-saved {
  display: none;
}

.pl-live-bytes {
  text-align: end;
}

.pl-live-head .pl-live-bytes button {
  text-align: end;
}

/* A narrow panel keeps the state whole: what is cut has its end where it is pointed at. */
@container pl-live (max-width: 339px) {
  .pl-live-row {
    --pl-columns: minmax(0, 1fr) minmax(0, 0.75fr) 7.4em;
    column-gap: 4px;
  }

  .pl-live-space .pl-live-row > * {
    font-size: 11px;
  }

  .pl-live-has {
    display: none;
  }
}

@container pl-live (min-width: 440px) {
  .pl-live-row {
    --pl-columns: minmax(0, 1.5fr) minmax(0, 1fr) minmax(0, 1.5fr) minmax(0, 0.7fr) minmax(0, 0.8fr);
  }

  .pl-live-dtype,
  .pl-live-bytes {
    display: block;
  }
}

@container pl-live (min-width: 640px) {
  .pl-live-row {
    --pl-columns: minmax(0, 1.7fr) minmax(0, 1fr) minmax(0, 1.7fr) minmax(0, 0.7fr) minmax(0, 0.7fr) minmax(0, 0.5fr) minmax(0, 1.4fr);
  }

  .pl-live-device,
  .pl-live-saved {
    display: block;
  }
}

.pl-live-space .pl-live-row:hover {
  background: var(--jp-layout-color2);
}

.pl-live-space .pl-live-row.pl-live-tied {
  background: color-mix(in srgb, var(--jp-brand-color1) 9%, transparent);
}

.pl-live-space .pl-live-row.pl-live-selected {
  background: color-mix(in srgb, var(--jp-brand-color1) 20%, transparent);
}

.pl-live-space .pl-live-row.pl-live-error {
  border-inline-start-color: var(--jp-error-color1);
  background: color-mix(in srgb, var(--jp-error-color1) 14%, transparent);
}

.pl-live-space .pl-live-row.pl-live-silent {
  border-inline-start-color: var(--jp-warn-color1);
}

.pl-live-row .pl-live-name {
  display: flex;
  align-items: center;
}

.pl-live-name > span:not([class]) {
  overflow: hidden;
  text-overflow: ellipsis;
}

.pl-live-changed .pl-live-name > span:not([class]) {
  font-weight: 600;
}

.pl-live-name > .pl-live-end {
  flex: none;
}

.pl-live-handle {
  flex: none;
  width: 14px;
  color: var(--jp-ui-font-color2);
}

.pl-live-folds {
  cursor: pointer;
}

.pl-live-swatch {
  flex: none;
  min-width: 12px;
  margin-inline-end: 5px;
  padding: 0 2px;
  border-radius: 3px;
  font: 10px / 14px var(--jp-ui-font-family);
  text-align: center;
}

.pl-live-mark {
  flex: none;
  width: 6px;
  height: 6px;
  margin-inline: 6px 2px;
  border-radius: 50%;
  background: var(--jp-brand-color1);
}

.pl-live-moved {
  font-weight: 600;
}

.pl-live-grad {
  margin-inline-start: 0.7em;
  color: var(--jp-ui-font-color2);
}

/* ---- the selected row */

.pl-live-details {
  flex: 0 1 auto;
  max-height: 50%;
  overflow: auto;
  padding: 8px 12px 12px;
  border-block-start: 1px solid var(--jp-border-color1);
}

.pl-live-about {
  display: flex;
  align-items: baseline;
  gap: 8px;
}

.pl-live-details h3 {
  min-width: 0;
  margin: 0;
  overflow: hidden;
  font: 600 var(--jp-code-font-size) / 1.6 var(--jp-code-font-family);
  text-overflow: ellipsis;
  white-space: nowrap;
}

.pl-live-about > span {
  flex: 1;
  color: var(--jp-ui-font-color2);
}

.pl-live .pl-live-close,
.pl-live-notice .pl-live-close {
  min-width: 24px;
  height: 24px;
  padding: 0;
  font-size: 16px;
  line-height: 1;
}

.pl-live-details dl {
  display: grid;
  grid-template-columns: 6.5em minmax(0, 1fr);
  gap: 2px 12px;
  align-items: baseline;
  margin: 4px 0 8px;
}

.pl-live-details dt {
  color: var(--jp-ui-font-color2);
}

.pl-live-details dd {
  margin: 0;
  overflow-wrap: anywhere;
  font: 12px / 1.5 var(--jp-code-font-family);
}

.pl-live-views {
  display: inline-flex;
  flex-wrap: wrap;
  border: 1px solid var(--jp-border-color1);
  border-radius: 3px;
}

.pl-live .pl-live-views button {
  min-height: 26px;
  padding: 0 10px;
}

.pl-live .pl-live-views button[aria-pressed="true"] {
  background: var(--jp-layout-color3);
}

.pl-live-warning summary,
.pl-live-picture summary {
  min-height: 24px;
  cursor: pointer;
}

.pl-live-picture p {
  overflow-wrap: anywhere;
  margin: 8px 0 0;
  white-space: pre-wrap;
}

.pl-live-sheet {
  max-height: 300px;
  margin-block: 8px 6px;
  overflow: auto;
}

.pl-live-sheet img {
  display: block;
}

.pl-live-large {
  overflow: auto;
  padding: 16px;
  background: var(--jp-layout-color1);
}

/* A picture in an <img> follows the theme through this. */
body[data-jp-theme-light="false"] :is(.pl-live-picture, .pl-live-large) img {
  color-scheme: dark;
}

body[data-jp-theme-light="true"] :is(.pl-live-picture, .pl-live-large) img {
  color-scheme: light;
}

/* ---- the cells so far */

.pl-live-foot {
  display: flex;
  flex: none;
  align-items: center;
  gap: 8px;
  padding: 4px 12px;
  border-block-start: 1px solid var(--jp-border-color2);
  color: var(--jp-ui-font-color2);
}

.pl-live-foot input {
  flex: 1;
  min-width: 0;
  accent-color: var(--jp-brand-color1);
}

.pl-live-count {
  margin-inline-start: auto;
  font-variant-numeric: tabular-nums;
  white-space: nowrap;
}

/* ---- the badge on the icon, the line under a cell, and the mark of a cell that was gone to */

.pl-live-badge {
  position: relative;
}

.pl-live-badge::before {
  content: "";
  position: absolute;
  inset-block-start: 6px;
  inset-inline-end: 6px;
  z-index: 1;
  width: 8px;
  height: 8px;
  border-radius: 50%;
  background: var(--jp-warn-color1);
}

.pl-live-badge.pl-live-failing::before {
  background: var(--jp-error-color1);
}

.pl-live-notice,
.pl-live-hint {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 4px 12px;
  padding: 4px 8px;
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);
  line-height: 1.5;
}

.pl-live-notice {
  margin: 4px 0 4px calc(var(--jp-cell-prompt-width) + 2 * var(--jp-cell-padding));
  border-inline-start: 3px solid var(--jp-warn-color1);
}

.pl-live-notice.pl-live-error {
  border-inline-start-color: var(--jp-error-color1);
}

.pl-live-notice p,
.pl-live-hint p {
  flex: 1 1 24em;
  margin: 0;
}

.pl-live-rule {
  margin-inline-start: 0.7em;
}

.pl-live-notice .pl-live-fix {
  display: block;
  color: var(--jp-ui-font-color2);
}

.pl-live-notice.pl-live-note {
  border-inline-start-color: var(--jp-border-color1);
}

.pl-live .pl-live-explain,
.pl-live-notice .pl-live-explain,
.pl-live-hint .pl-live-explain {
  min-height: 28px;
  padding: 0 12px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 3px;
}

.pl-live .pl-live-explain:hover,
.pl-live-notice .pl-live-explain:hover,
.pl-live-hint .pl-live-explain:hover {
  background: var(--jp-layout-color2);
}

.pl-live-together {
  display: flex;
  flex: 1 0 100%;
  flex-wrap: wrap;
  gap: 4px 12px;
  align-items: center;
}

.pl-live-together span {
  flex: 1 1 24em;
  color: var(--jp-ui-font-color2);
}

[data-command="pitfall-lab:record-always"] .jp-ToolbarButtonComponent-label,
[data-command="pitfall-lab:explain-cell"] .jp-ToolbarButtonComponent-label {
  margin-inline-start: 4px;
}

.pl-live-here {
  animation: pl-live-here 1.2s ease-out;
}

@keyframes pl-live-here {
  from {
    background: color-mix(in srgb, var(--jp-brand-color1) 25%, transparent);
  }
}

@media (prefers-reduced-motion: reduce) {
  .pl-live-here {
    animation-timing-function: step-end;
  }
}

/* ---- the folded traceback */

.pl-folded-error {
  background: var(--jp-rendermime-error-background);
}

.pl-folded-error .jp-RenderedText[data-mime-type] {
  background: none;
}

.pl-fold-line {
  min-height: 24px;
  padding: 0 0.5em;
  color: var(--jp-ui-font-color1) !important;
  font: var(--jp-code-font-size) / 1.5 var(--jp-code-font-family) !important;
}

.pl-fold-line::before {
  content: "▸ ";
}

.pl-fold-line[aria-expanded="true"]::before {
  content: "▾ ";
}
`,""]),r.d(l,{},{A:t})},472(e,l,r){var o=r(601),i=r.n(o),n=r(314),t=(r.n(n))()(i());t.push([e.id,`/* Marks in the editor: the sign in the gutter, the underline, and the card above it. */

.pl-signs {
  min-width: 14px;
}

.pl-sign {
  display: block;
  width: 14px;
  text-align: center;
  font-family: var(--jp-ui-font-family);
  cursor: default;
}

.pl-sign-error,
.pl-card-error h3 {
  color: var(--jp-error-color0, var(--jp-error-color1));
}

.pl-sign-silent,
.pl-card-silent h3 {
  color: var(--jp-warn-color0, var(--jp-warn-color1));
}

.pl-sign-note {
  color: var(--jp-ui-font-color2);
}

.pl-marked {
  text-decoration: underline wavy var(--jp-border-color0) 1px;
  text-underline-offset: 3px;
  text-decoration-skip-ink: none;
}

.pl-marked-error {
  text-decoration-color: var(--jp-error-color1);
}

.pl-marked-silent {
  text-decoration-color: var(--jp-warn-color1);
}

.cm-tooltip.cm-tooltip-hover:has(.pl-card) {
  border: 1px solid var(--jp-border-color1);
  background: var(--jp-layout-color1);
  box-shadow: var(--jp-elevation-z6);
}

.pl-card {
  max-width: min(560px, 80vw);
  padding: 8px 12px;
  color: var(--jp-ui-font-color1);
  font: var(--jp-ui-font-size1) / 1.5 var(--jp-ui-font-family);
  white-space: normal;
}

.pl-card section + section {
  margin-block-start: 8px;
  padding-block-start: 8px;
  border-block-start: 1px solid var(--jp-border-color2);
}

.pl-card h3,
.pl-card p {
  margin: 0;
  font-size: inherit;
}

.pl-card code {
  font-family: var(--jp-code-font-family);
  font-size: 0.95em;
  background: none;
  color: inherit;
  padding: 0;
}

.pl-card-remedy {
  margin-block-start: 6px;
}

.pl-card-remedy button {
  min-height: 26px;
  margin-inline-end: 8px;
  padding: 0 12px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 3px;
  background: var(--jp-layout-color1);
  color: inherit;
  font: inherit;
  cursor: pointer;
}

.pl-card-remedy button:hover {
  background: var(--jp-layout-color2);
}

.pl-card-remedy span,
.pl-card-answer {
  color: var(--jp-ui-font-color2);
}
`,""]),r.d(l,{},{A:t})},314(e){e.exports=function(e){var l=[];return l.toString=function(){return this.map(function(l){var r="",o=void 0!==l[5];return l[4]&&(r+="@supports (".concat(l[4],") {")),l[2]&&(r+="@media ".concat(l[2]," {")),o&&(r+="@layer".concat(l[5].length>0?" ".concat(l[5]):""," {")),r+=e(l),o&&(r+="}"),l[2]&&(r+="}"),l[4]&&(r+="}"),r}).join("")},l.i=function(e,r,o,i,n){"string"==typeof e&&(e=[[null,e,void 0]]);var t={};if(o)for(var a=0;a<this.length;a++){var p=this[a][0];null!=p&&(t[p]=!0)}for(var c=0;c<e.length;c++){var d=[].concat(e[c]);o&&t[d[0]]||(void 0!==n&&(void 0===d[5]||(d[1]="@layer".concat(d[5].length>0?" ".concat(d[5]):""," {").concat(d[1],"}")),d[5]=n),r&&(d[2]&&(d[1]="@media ".concat(d[2]," {").concat(d[1],"}")),d[2]=r),i&&(d[4]?(d[1]="@supports (".concat(d[4],") {").concat(d[1],"}"),d[4]=i):d[4]="".concat(i)),l.push(d))}},l}},601(e){e.exports=function(e){return e[1]}},72(e){var l=[];function r(e){for(var r=-1,o=0;o<l.length;o++)if(l[o].identifier===e){r=o;break}return r}function o(e,o){for(var i={},n=[],t=0;t<e.length;t++){var a=e[t],p=o.base?a[0]+o.base:a[0],c=i[p]||0,d="".concat(p," ").concat(c);i[p]=c+1;var s=r(d),v={css:a[1],media:a[2],sourceMap:a[3],supports:a[4],layer:a[5]};if(-1!==s)l[s].references++,l[s].updater(v);else{var u=function(e,l){var r=l.domAPI(l);return r.update(e),function(l){l?(l.css!==e.css||l.media!==e.media||l.sourceMap!==e.sourceMap||l.supports!==e.supports||l.layer!==e.layer)&&r.update(e=l):r.remove()}}(v,o);o.byIndex=t,l.splice(t,0,{identifier:d,updater:u,references:1})}n.push(d)}return n}e.exports=function(e,i){var n=o(e=e||[],i=i||{});return function(e){e=e||[];for(var t=0;t<n.length;t++){var a=r(n[t]);l[a].references--}for(var p=o(e,i),c=0;c<n.length;c++){var d=r(n[c]);0===l[d].references&&(l[d].updater(),l.splice(d,1))}n=p}}},659(e){var l={};e.exports=function(e,r){var o=function(e){if(void 0===l[e]){var r=document.querySelector(e);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(e){r=null}l[e]=r}return l[e]}(e);if(!o)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");o.appendChild(r)}},540(e){e.exports=function(e){var l=document.createElement("style");return e.setAttributes(l,e.attributes),e.insert(l,e.options),l}},56(e,l,r){e.exports=function(e){var l=r.nc;l&&e.setAttribute("nonce",l)}},825(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var l=e.insertStyleElement(e);return{update:function(r){var o,i,n;o="",r.supports&&(o+="@supports (".concat(r.supports,") {")),r.media&&(o+="@media ".concat(r.media," {")),(i=void 0!==r.layer)&&(o+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),o+=r.css,i&&(o+="}"),r.media&&(o+="}"),r.supports&&(o+="}"),(n=r.sourceMap)&&"u">typeof btoa&&(o+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(n))))," */")),e.styleTagTransform(o,l,e.options)},remove:function(){var e;null===(e=l).parentNode||e.parentNode.removeChild(e)}}}},113(e){e.exports=function(e,l){if(l.styleSheet)l.styleSheet.cssText=e;else{for(;l.firstChild;)l.removeChild(l.firstChild);l.appendChild(document.createTextNode(e))}}},573(e,l,r){var o=r(72),i=r.n(o),n=r(825),t=r.n(n),a=r(659),p=r.n(a),c=r(56),d=r.n(c),s=r(540),v=r.n(s),u=r(113),f=r.n(u),x=r(646),m={};m.styleTagTransform=f(),m.setAttributes=d(),m.insert=p().bind(null,"head"),m.domAPI=t(),m.insertStyleElement=v(),i()(x.A,m),x.A&&x.A.locals&&x.A.locals;var h=r(794),g={};g.styleTagTransform=f(),g.setAttributes=d(),g.insert=p().bind(null,"head"),g.domAPI=t(),g.insertStyleElement=v(),i()(h.A,g),h.A&&h.A.locals&&h.A.locals;var b=r(472),w={};w.styleTagTransform=f(),w.setAttributes=d(),w.insert=p().bind(null,"head"),w.domAPI=t(),w.insertStyleElement=v(),i()(b.A,w),b.A&&b.A.locals&&b.A.locals}}]);