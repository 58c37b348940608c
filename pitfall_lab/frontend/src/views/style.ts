/** The style of the four pictures. Colours come from the Explorer's variables; red is kept for "torch raised" and "the value is wrong". */

export const VIEW_CSS = `
.plv{max-height:440px;overflow:auto;position:relative;font-size:13px;line-height:1.35}
.plv svg text{fill:var(--pl-ink);font:12px var(--pl-code-font)}.plv svg .plv-sans{font:12px var(--jp-ui-font-family,system-ui,"Noto Sans CJK SC",sans-serif)}
.plv svg .plv-b{font-weight:600}.plv svg .plv-dim,.plv .plv-dim{fill:var(--pl-dim);color:var(--pl-dim)}.plv svg .plv-red{fill:var(--pl-red);font-weight:700}
.plv .plv-away{visibility:hidden}
.plv-card>rect.plv-face{fill:var(--pl-bg);stroke:var(--pl-dim);stroke-width:1.3}.plv-card{cursor:pointer}
.plv-card.plv-now>rect.plv-face{stroke:var(--pl-ink);stroke-width:3.2}.plv-card.plv-focus>rect.plv-face{fill:var(--pl-tint)}
.plv-card.plv-bad>rect.plv-face{stroke:var(--pl-red);stroke-width:3}.plv-card .plv-past text{fill:var(--pl-dim)}
.plv-notch path{fill:var(--pl-bg);stroke-width:2}.plv-notch line{stroke:var(--pl-ink);stroke-width:2}.plv-notch.plv-bad line{stroke:var(--pl-red)}
.plv-notch.plv-freed path{fill:none;stroke-dasharray:3 3}.plv-notch.plv-freed text{opacity:.7}
.plv-edge{fill:none;stroke:var(--pl-dim);stroke-width:1.5}.plv-back{fill:none;stroke:var(--pl-ink);stroke-width:1.6;stroke-dasharray:6 4}.plv-tip{fill:var(--pl-ink)}
.plv [role=button]{cursor:pointer}.plv-tools{display:flex;flex-wrap:wrap;gap:2px 6px;align-items:center;margin-bottom:6px;font-size:12px;color:var(--pl-dim)}
.plv-block{margin:0 0 18px;padding-inline-start:8px;border-inline-start:4px solid transparent}.plv-block.plv-focus{border-color:var(--pl-accent)}
.plv-block h4{display:flex;flex-wrap:wrap;gap:4px 8px;align-items:center;margin:0 0 4px;font-size:13px;font-weight:600}
.plv-letter{display:inline-grid;place-items:center;min-width:20px;height:20px;padding:0 3px;border:1.5px solid var(--pl-ink);border-radius:3px;font:600 12px/1 var(--pl-code-font)}
.plv-badge{display:inline-block;white-space:nowrap;border:1.5px solid var(--plv-hue,var(--pl-dim));border-radius:9px;padding:0 6px;font:12px/18px var(--pl-code-font)}
.plv-badge.plv-double{border-style:double;border-width:4.5px;border-radius:10px;line-height:15px}.plv-badge.plv-array{border-radius:0;border-style:dashed}
.plv-fit>svg{width:100%;height:auto;max-height:400px}.plv-grid{width:max-content;border-collapse:separate;border-spacing:2px;font:12px var(--pl-code-font)}
.plv-grid th{font-weight:400;text-align:start;padding:0 8px 0 0;white-space:nowrap;font-family:inherit}.plv-grid th:first-child{position:sticky;left:0;background:var(--pl-bg);text-align:start;max-width:min(46cqw,240px);overflow:hidden;text-overflow:ellipsis}.plv-grid th .plv-dim{display:block;white-space:normal}.plv svg{display:block}.plv-grid .plv-hit th:first-child{background:var(--pl-tint)}.plv-grid thead th{text-align:center;padding:0;color:var(--pl-dim)}
.plv-grid td{min-width:44px;height:28px;text-align:center;padding:0 4px;white-space:nowrap}
.plv-grid .plv-cell{border:1.5px solid var(--plv-hue);cursor:pointer}.plv-grid .plv-written{outline:3px solid var(--pl-ink);outline-offset:-2px}
.plv-grid .plv-brush{border:1.5px solid var(--plv-hue);border-radius:8px;background:color-mix(in srgb,var(--plv-hue) 16%,var(--pl-bg))}
.plv-grid .plv-gap{background:repeating-linear-gradient(90deg,var(--plv-hue) 0 4px,transparent 4px 8px) center/100% 2px no-repeat}
.plv-grid .plv-hole{min-width:16px;color:var(--pl-dim)}.plv-grid .plv-dead .plv-brush{background:none;border-style:dashed;opacity:.75}
.plv-grid .plv-hit{background:var(--pl-tint)}.plv-ghosted .plv-cell{border-style:dashed;background:none}
.plv-name{font-weight:600}.plv-detail{min-height:1.35em;color:var(--pl-dim);margin-top:2px}
.plv-detail button,.plv-link{min-height:24px;min-width:24px;padding:0 6px;border:1px solid var(--pl-line);font-size:12px;color:var(--pl-ink)}
.plv-case{margin:0 0 18px;padding-inline-start:8px;border-inline-start:4px solid transparent}.plv-case.plv-here{border-color:var(--pl-accent)}
.plv-dims{border-collapse:separate;border-spacing:3px;font:13px var(--pl-code-font)}.plv-dims th{font-weight:400;text-align:start;padding-inline-end:10px;white-space:nowrap}
.plv-dims td{text-align:center;min-width:40px;height:28px;border:1.5px solid var(--plv-hue,var(--pl-dim))}.plv-dims td.plv-stretch{border:1.5px dashed var(--pl-dim);color:var(--pl-dim)}
.plv-dims td.plv-clash{border:2.5px solid var(--pl-red);color:var(--pl-red);font-weight:700}.plv-dims td.plv-note{border:0;text-align:start;color:var(--pl-dim);padding-inline-start:8px;font-family:inherit}
.plv-row{display:flex;flex-wrap:wrap;gap:8px 14px;align-items:center;margin-top:6px}.plv-mini{display:grid;gap:2px;font:11px var(--pl-code-font)}
.plv-mini>*{min-width:38px;height:24px;display:grid;place-items:center;border:1.5px solid var(--plv-hue,var(--pl-dim));padding:0 2px}
.plv-mini>.plv-stretch{border:1.5px dashed var(--pl-dim);color:var(--pl-dim)}.plv-mini>.plv-hit{background:var(--pl-tint);outline:2px solid var(--pl-accent)}
.plv-axis{stroke-width:4}.plv-tick{stroke:var(--pl-ink);stroke-width:4}.plv-pin{fill:var(--pl-bg);stroke:var(--pl-ink);stroke-width:1.5}.plv-span{stroke:var(--pl-red);stroke-width:9}
.plv-cursor{stroke:var(--pl-accent);stroke-width:2}.plv-later{opacity:.38}.plv-silent{fill:none;stroke:var(--pl-ink);stroke-width:1.5;stroke-dasharray:3 2}
.plv-bar{display:flex;width:max-content;position:sticky;top:0;z-index:2;background:var(--pl-bg)}.plv-bar+.plv-bar{position:static}.plv-bar>:first-child{position:sticky;left:0;z-index:1;background:var(--pl-bg);flex:none}.plv-track.plv-focus>.plv-back-drop{fill:var(--pl-tint)}.plv-back-drop{fill:transparent}.plv-stalespan{stroke:var(--pl-ink);stroke-width:9;stroke-dasharray:2 4;opacity:.55}
.plv-rung{cursor:pointer}.plv-rung.plv-here>rect{fill:var(--pl-tint)}.plv-rung>rect{fill:transparent}.plv-lane{fill:var(--pl-bg);stroke:var(--pl-dim);stroke-width:1.5}
@media (forced-colors:active){.plv-grid .plv-written{outline-color:Highlight}}
`;
