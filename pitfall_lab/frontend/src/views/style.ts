/** The style of the pictures. Colours come from the Explorer's variables; red is kept for "torch raised" and "the value is wrong". */

export const VIEW_CSS = `
.plv{max-height:440px;overflow:auto;position:relative;font-size:13px;line-height:1.35}
.plv svg text{fill:var(--pl-ink);font:12px var(--pl-code-font)}.plv svg .v-sans{font:12px var(--jp-ui-font-family,system-ui,"Noto Sans CJK SC",sans-serif)}
.plv svg .v-b{font-weight:600}.plv svg .v-dim,.plv .v-dim{fill:var(--pl-dim);color:var(--pl-dim)}.plv svg .v-red{fill:var(--pl-red);font-weight:700}
.plv .v-away{visibility:hidden}
.v-card>rect.v-face{fill:var(--pl-bg);stroke:var(--pl-dim);stroke-width:1.3}.v-card{cursor:pointer}
.v-card.v-now>rect.v-face{stroke:var(--pl-ink);stroke-width:3.2}.v-card.v-focus>rect.v-face{fill:var(--pl-tint)}
.v-card.v-bad>rect.v-face{stroke:var(--pl-red);stroke-width:3}.v-card .v-past text{fill:var(--pl-dim)}
.v-notch path{fill:var(--pl-bg);stroke-width:2}.v-notch line{stroke:var(--pl-ink);stroke-width:2}.v-notch.v-bad line{stroke:var(--pl-red)}
.v-notch.v-freed path{fill:none;stroke-dasharray:3 3}.v-notch.v-freed text{opacity:.7}
.v-edge{fill:none;stroke:var(--pl-dim);stroke-width:1.5}.v-back{fill:none;stroke:var(--pl-ink);stroke-width:1.6;stroke-dasharray:6 4}.v-tip{fill:var(--pl-ink)}
.plv [role=button]{cursor:pointer}.v-tools{display:flex;flex-wrap:wrap;gap:2px 6px;align-items:center;margin-bottom:6px;font-size:12px;color:var(--pl-dim)}
.v-block{margin:0 0 18px;padding-inline-start:8px;border-inline-start:4px solid transparent}.v-block.v-focus{border-color:var(--pl-accent)}
.v-title{display:flex;flex-wrap:wrap;gap:4px 8px;align-items:center;margin:0 0 4px;font-size:13px;font-weight:600}
.v-letter{display:inline-grid;place-items:center;min-width:20px;height:20px;padding:0 3px;border:1.5px solid var(--pl-ink);border-radius:3px;font:600 12px/1 var(--pl-code-font)}
.v-badge{display:inline-block;min-width:6ch;text-align:center;white-space:nowrap;border:1.5px solid var(--v-hue,var(--pl-dim));border-radius:9px;padding:0 6px;font:12px/18px var(--pl-code-font)}
.v-badge.v-double{border-style:double;border-width:4.5px;border-radius:10px;line-height:15px}.v-badge.v-array{border-radius:0;border-style:dashed}
.v-grid{width:max-content;border-collapse:separate;border-spacing:2px;font:12px var(--pl-code-font)}
.v-grid th{font-weight:400;text-align:start;padding:0 8px 0 0;white-space:nowrap;font-family:inherit}.v-grid th:first-child{position:sticky;left:0;background:var(--pl-bg);text-align:start;max-width:min(46cqw,240px);overflow:hidden;text-overflow:ellipsis}.v-grid th .v-dim{white-space:normal}.plv svg{display:block}.v-grid .v-hit th:first-child{background:var(--pl-tint)}.v-grid thead th{text-align:center;padding:0;color:var(--pl-dim)}
.v-grid td{min-width:44px;height:28px;text-align:center;padding:0 4px;white-space:nowrap}
.v-grid .v-cell{border:1.5px solid var(--v-hue);cursor:pointer}.v-grid .v-written{outline:3px solid var(--pl-ink);outline-offset:-2px}
.v-grid .v-brush{border:1.5px solid var(--v-hue);border-radius:8px;background:color-mix(in srgb,var(--v-hue) 16%,var(--pl-bg))}
.v-grid .v-gap{background:repeating-linear-gradient(90deg,var(--v-hue) 0 4px,transparent 4px 8px) center/100% 2px no-repeat}
.v-grid .v-hole{min-width:16px;color:var(--pl-dim)}.v-grid .v-dead .v-brush{background:none;border-style:dashed;opacity:.75}
.v-grid .v-hit{background:var(--pl-tint)}.v-ghosted .v-cell{border-style:dashed;background:none}
.v-name{font-weight:600}.v-detail{min-height:1.35em;color:var(--pl-dim);margin-top:2px}
.v-detail button,.v-link{min-height:24px;min-width:24px;padding:0 6px;border:1px solid var(--pl-line);font-size:12px;color:var(--pl-ink)}
.v-case{margin:0 0 18px;padding-inline-start:8px;border-inline-start:4px solid transparent}.v-case.v-here{border-color:var(--pl-accent)}.v-case.v-later{opacity:1;filter:grayscale(1);border-inline-start:4px dotted var(--pl-line)}
.v-dims{border-collapse:separate;border-spacing:3px;font:13px var(--pl-code-font)}.v-dims th{font-weight:400;text-align:start;padding-inline-end:10px;white-space:nowrap}
.v-dims td{text-align:center;min-width:40px;height:28px;border:1.5px solid var(--v-hue,var(--pl-dim))}.v-dims td.v-stretch{border:1.5px dashed var(--pl-dim);color:var(--pl-dim)}
.v-dims td.v-clash{border:2.5px solid var(--pl-red);color:var(--pl-red);font-weight:700}.v-dims td.v-note{border:0;text-align:start;color:var(--pl-dim);padding-inline-start:8px;font-family:inherit}
.v-row{display:flex;flex-wrap:wrap;gap:8px 14px;align-items:center;margin-top:6px}.v-mini{display:grid;gap:2px;font:11px var(--pl-code-font)}
.v-mini>*{min-width:38px;height:24px;display:grid;place-items:center;border:1.5px solid var(--v-hue,var(--pl-dim));padding:0 2px}
.v-mini>.v-stretch{border:1.5px dashed var(--pl-dim);color:var(--pl-dim)}.v-mini>.v-hit{background:var(--pl-tint);outline:2px solid var(--pl-accent)}
.v-axis{stroke-width:4}.v-tick{stroke:var(--pl-ink);stroke-width:4}.v-pin{fill:var(--pl-bg);stroke:var(--pl-ink);stroke-width:1.5}.v-span{stroke:var(--pl-red);stroke-width:9}
.v-halo{paint-order:stroke;stroke:var(--pl-bg);stroke-width:4px}.v-mid{text-anchor:middle}.v-end{text-anchor:end}.v-link{position:sticky;left:0}.v-cursor{pointer-events:none;opacity:.6;stroke:var(--pl-accent);stroke-width:2}.v-later{opacity:.38}.v-silent{fill:none;stroke:var(--pl-ink);stroke-width:1.5;stroke-dasharray:3 2}
.v-bar{display:flex;width:max-content;position:sticky;top:0;z-index:2;background:var(--pl-bg)}.v-bar+.v-bar{position:static}.v-bar>:first-child{position:sticky;left:0;z-index:1;background:var(--pl-bg);flex:none}.v-track.v-focus>.v-back-drop{fill:var(--pl-tint)}.v-back-drop{fill:transparent}.v-stalespan{stroke:var(--pl-ink);stroke-width:9;stroke-dasharray:2 4;opacity:.55}
.v-rung{cursor:pointer}.v-rung.v-here>rect{fill:var(--pl-tint)}.v-rung>rect{fill:transparent}.v-lane{fill:var(--pl-bg);stroke:var(--pl-dim);stroke-width:1.5}
.v-memory{position:relative;height:180px;margin:14px 0 10px;border-bottom:1px solid var(--pl-line);touch-action:pan-y}.v-memory svg{width:100%;height:100%}
.v-band{stroke:var(--pl-bg);stroke-width:1;vector-effect:non-scaling-stroke}.v-band.v-focus{stroke:var(--pl-ink);stroke-width:3}
.v-memory>span{position:absolute;translate:-50% 50%;pointer-events:none}.v-memory i{position:absolute;inset-block:0;border-inline-start:1.5px dashed var(--pl-ink);pointer-events:none}
.v-memory .v-now-line{border-inline-start:2px solid var(--pl-accent)}
.v-alive li{display:grid;grid-template-columns:auto 76px 1fr;gap:10px;place-items:center start;min-height:28px}.v-alive .v-dim:only-child{grid-column:1/-1}.v-alive b{font:12px var(--pl-code-font)}
.v-find{display:flex;align-items:center;gap:6px;flex:1;min-width:120px}.v-search{flex:1;min-width:90px;max-width:220px;height:28px;padding:0 8px;border:1px solid var(--pl-line);border-radius:5px;background:var(--pl-bg);color:var(--pl-ink);font:inherit}
.v-found>rect.v-face{stroke:var(--pl-accent)!important;stroke-width:4!important}.v-map{position:absolute;right:22px;bottom:22px;background:var(--pl-bg);border:1px solid var(--pl-line);opacity:.92;cursor:crosshair;touch-action:none}
.v-map svg{display:block}.v-dot{fill:var(--pl-dim)}.v-view{fill:var(--pl-tint);fill-opacity:.5;stroke:var(--pl-accent);stroke-width:2;vector-effect:non-scaling-stroke}
@media (forced-colors:active){.v-grid .v-written{outline-color:Highlight}}
`;
