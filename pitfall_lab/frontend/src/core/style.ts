/** The Explorer's style. It lives in a shadow root, so nothing leaks out and nothing but Jupyter's colours comes in. */

export const STYLE = `
:host{display:block;
--pl-bg:var(--jp-layout-color1,#fff);--pl-ink:var(--jp-ui-font-color1,#1c1c1e);--pl-line:var(--jp-border-color2,#dcdce0);
--pl-accent:var(--jp-brand-color1,#1565c0);--pl-red:#b3261e;--pl-green:#1b6e3c;
--pl-code-font:var(--jp-code-font-family,ui-monospace,"DejaVu Sans Mono",Menlo,monospace);
--pl-keyword:#7a3e9d;--pl-string:#8a4b08;--pl-comment:#5f6b6b;--pl-number:#0b6e4f}
@media (prefers-color-scheme:dark){:host{--pl-bg:var(--jp-layout-color1,#17181b);--pl-ink:var(--jp-ui-font-color1,#ececee);--pl-line:var(--jp-border-color2,#3a3c42);--pl-accent:var(--jp-brand-color1,#8ab4f8)}}
.pl-root.pl-dark{--pl-red:#ff8a80;--pl-green:#7fd6a2;--pl-keyword:#d7a5f0;--pl-string:#f0b67f;--pl-comment:#9aa5a5;--pl-number:#84d9b8;color-scheme:dark}
.pl-root{--pl-dim:color-mix(in srgb,var(--pl-ink) 72%,var(--pl-bg));--pl-wash:color-mix(in srgb,var(--pl-ink) 6%,var(--pl-bg));--pl-tint:color-mix(in srgb,var(--pl-accent) 16%,var(--pl-bg));
container:pl/inline-size;background:var(--pl-bg);color:var(--pl-ink);border:1px solid var(--pl-line);border-radius:8px;
font:14px/1.5 var(--jp-ui-font-family,system-ui,"Noto Sans CJK SC",sans-serif);font-variant-numeric:tabular-nums;text-align:start;overflow:hidden}
.pl-root *{box-sizing:border-box}
p,h2,h3,ol,ul,pre,dl,dd{margin:0;padding:0}ol,ul{list-style:none}
button{font:inherit;color:inherit;background:none;border:1px solid transparent;border-radius:5px;min-width:28px;min-height:28px;padding:2px 8px;cursor:pointer}
button:hover{background:var(--pl-wash)}
button[aria-pressed=true],button[aria-selected=true],button[aria-current]{background:var(--pl-tint)}
:focus{outline:none}:focus-visible{outline:2px solid var(--pl-accent);outline-offset:1px}
button:disabled{opacity:.55;cursor:default;background:none}
code{font-family:var(--pl-code-font);font-size:13px}
.pl-mark,.pl-dot{width:12px;height:12px;flex:none;vertical-align:-1px}
.pl-raised,.pl-wrong{color:var(--pl-red)}
.pl-hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}

.pl-head{display:flex;flex-wrap:wrap;align-items:center;gap:4px 20px;padding:10px 20px;border-bottom:1px solid var(--pl-line)}
.pl-head h2{font-size:14px;font-weight:600}
.pl-outcome,.pl-agree{display:inline-flex;align-items:center;gap:7px}
.pl-outcome.pl-bad{color:var(--pl-red);font-weight:600}
.pl-agree{color:var(--pl-dim)}.pl-agree b{color:var(--pl-red)}
.pl-tools{margin-inline-start:auto;display:flex;gap:2px}
.pl-tools button{color:var(--pl-dim)}

.pl-transport{display:grid;grid-template-columns:auto minmax(0,1fr) auto;align-items:center;gap:0 16px;padding:12px 20px 4px}
.pl-buttons{display:flex;gap:2px}
.pl-buttons button{padding:2px;width:32px;height:32px;display:grid;place-items:center}
.pl-buttons button.pl-wide{width:auto;padding:2px 10px;border-color:var(--pl-line);display:flex;gap:7px;align-items:center}
.pl-buttons svg.pl-icon{width:16px;height:16px;fill:none;stroke:currentColor;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}
.pl-scrub{position:relative;height:40px}
.pl-scrub svg.pl-ticks{position:absolute;inset:0 8px;width:calc(100% - 16px);height:100%;overflow:visible;pointer-events:none}
.pl-ticks path{stroke:var(--pl-dim);stroke-width:1.2;fill:none;vector-effect:non-scaling-stroke}
.pl-ticks .pl-axis{stroke:var(--pl-line);stroke-width:2}.pl-ticks .pl-t-write{stroke-width:2.6;stroke:var(--pl-ink)}.pl-ticks .pl-t-error{stroke:var(--pl-red);stroke-width:2.6}
.pl-pins{position:absolute;inset:0 8px;pointer-events:none}.pl-pins svg{position:absolute;top:0;margin-inline-start:-6px}
.pl-scrub input{position:absolute;inset:0;width:100%;height:100%;margin:0;appearance:none;-webkit-appearance:none;background:none;cursor:pointer}
.pl-scrub input:focus-visible{outline:none}
.pl-scrub input::-webkit-slider-runnable-track{height:100%;background:none}
.pl-scrub input::-webkit-slider-thumb{-webkit-appearance:none;width:16px;height:16px;margin-top:12px;border-radius:50%;background:var(--pl-accent);border:3px solid var(--pl-bg);box-shadow:0 0 0 1.5px var(--pl-accent)}
.pl-scrub input::-moz-range-track{background:none}
.pl-scrub input::-moz-range-thumb{width:10px;height:10px;border-radius:50%;background:var(--pl-accent);border:3px solid var(--pl-bg);box-shadow:0 0 0 1.5px var(--pl-accent)}
.pl-scrub input:focus-visible::-webkit-slider-thumb{outline:2px solid var(--pl-accent);outline-offset:3px}
.pl-scrub input:focus-visible::-moz-range-thumb{outline:2px solid var(--pl-accent);outline-offset:3px}
.pl-count{color:var(--pl-dim);white-space:nowrap;min-width:5.5em;text-align:end}

.pl-say{padding:4px 20px 14px;min-height:62px}
.pl-sentence{display:grid;grid-template-columns:auto minmax(0,1fr);gap:9px;font-size:16px;line-height:1.5;overflow-wrap:anywhere}
.pl-sentence .pl-dot{margin-top:6px}
.pl-forecast{color:var(--pl-red);display:flex;gap:9px;overflow-wrap:anywhere}
.pl-forecast .pl-dot{margin-top:5px}
.pl-label{display:inline-block;min-width:24px;min-height:24px;padding:0 3px;margin:-2px -1px;line-height:24px;text-align:center;font-family:var(--pl-code-font);font-size:.92em;border-radius:4px;text-decoration:underline;text-decoration-thickness:2px;text-underline-offset:4px;text-decoration-color:var(--pl-of,var(--pl-line))}
.pl-label[aria-pressed=true]{background:var(--pl-tint)}

.pl-findings{border-top:1px solid var(--pl-line)}
.pl-finding{padding:14px 20px;border-bottom:1px solid var(--pl-line)}
.pl-finding:last-child{border-bottom:0}
.pl-finding h3{display:flex;flex-wrap:wrap;gap:4px 10px;align-items:center;font-size:13px;font-weight:400;color:var(--pl-dim)}
.pl-finding h3 .pl-error{color:var(--pl-red)}
.pl-tag{display:inline-flex;gap:6px;align-items:center;border:1px solid var(--pl-line);border-radius:99px;padding:0 9px;font-size:12px}
.pl-message{font-size:15px;font-weight:600;margin:4px 0 10px;max-width:75ch;overflow-wrap:anywhere}
.pl-message.pl-quoted{font:13px/1.5 var(--pl-code-font);max-width:100ch}
.pl-story{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,190px),1fr));gap:8px 28px;max-width:1100px}
.pl-story li{position:relative;display:flex}
.pl-story li+li::before{content:"→";position:absolute;inset-inline-start:-21px;top:50%;translate:0 -50%;color:var(--pl-dim)}
.pl-story button{flex:1;min-width:0;text-align:start;border-color:var(--pl-line);padding:7px 12px;display:flex;flex-direction:column;gap:2px;justify-content:flex-start}
.pl-story code{white-space:pre;overflow:hidden;text-overflow:ellipsis}
.pl-story button[aria-current]{border-color:var(--pl-accent)}
.pl-role{display:flex;gap:8px;align-items:center;font-weight:600;color:var(--pl-ink)}.pl-beat-text{color:var(--pl-dim);font-size:13px;overflow-wrap:anywhere}
.pl-others{padding:4px 12px;border-top:1px solid var(--pl-line)}
.pl-others button{text-align:start;width:100%;display:grid;grid-template-columns:7em minmax(0,1fr);gap:10px}.pl-others .pl-error{color:var(--pl-red)}
.pl-remedies{display:grid;grid-template-columns:minmax(0,1fr);gap:20px 40px;padding:16px 20px 20px;border-top:1px solid var(--pl-line)}
.pl-remedies h3{font-size:12px;font-weight:600;color:var(--pl-dim);margin-bottom:6px}
.pl-why{max-width:90ch;white-space:pre-line;overflow-wrap:anywhere}
.pl-fixes{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,360px),1fr));gap:18px 40px}
.pl-fix{min-width:0}.pl-fix p{font-weight:600}
.pl-ok,.pl-untried{font-size:13px}.pl-ok{color:var(--pl-green)}.pl-untried{color:var(--pl-dim)}
.pl-diff{font:13px/1.6 var(--pl-code-font);background:var(--pl-wash);border-radius:5px;padding:6px 12px;margin-top:5px}
.pl-diff div{white-space:pre-wrap;overflow-wrap:anywhere;min-height:1.6em;padding-inline-start:2ch;text-indent:-2ch}.pl-kept,.pl-old{color:var(--pl-dim)}.pl-old{text-decoration:line-through}.pl-new{font-weight:600}

.pl-facts{display:flex;flex-wrap:wrap;gap:2px 18px;align-items:center;padding:8px 20px;min-height:45px;border-top:1px solid var(--pl-line);color:var(--pl-dim);font-size:13px}
.pl-facts>span{display:inline-flex;gap:6px;align-items:center;overflow-wrap:anywhere}.pl-facts .pl-value{color:var(--pl-ink);font-family:var(--pl-code-font)}
.pl-swatch{display:inline-grid;place-items:center;min-width:20px;height:20px;padding:0 3px;border-radius:4px;border:1.5px solid var(--pl-ink);font:600 12px/1 var(--pl-code-font)}

.pl-tabs{display:none;gap:2px;padding:6px 12px;border-top:1px solid var(--pl-line);overflow-x:auto}
.pl-tabs button{min-height:32px;white-space:nowrap}
.pl-panels{display:grid;grid-template-columns:minmax(0,1fr);gap:1px;background:var(--pl-line);border-top:1px solid var(--pl-line)}
.pl-panel{background:var(--pl-bg);padding:14px 20px 18px;min-width:0;display:flex;flex-direction:column}
.pl-panel>h3{font-size:12px;font-weight:600;color:var(--pl-dim);margin-bottom:10px}
.pl-body{min-width:0;flex:1;display:flex;flex-direction:column}
.pl-body>.pl-code,.pl-body>.plv{max-height:var(--pl-tall,360px)}
.pl-nothing,.pl-empties{color:var(--pl-dim)}
.pl-empties{padding:10px 20px;border-top:1px solid var(--pl-line);font-size:13px}.pl-empties b{font-weight:600}
@container pl (width<720px){.pl-story li+li::before{content:none}.pl-tabs{display:flex}.pl-panel:not(.pl-chosen){display:none}.pl-panel>h3{display:none}
.pl-head{padding:10px 12px}.pl-transport{padding:10px 12px 0;grid-template-columns:minmax(0,1fr) auto}.pl-scrub{grid-column:1/-1;grid-row:1}.pl-say,.pl-finding,.pl-facts,.pl-panel,.pl-remedies,.pl-empties,.pl-help,.pl-notes{padding-inline:12px}
.pl-tools{margin-inline-start:auto}.pl-others button{grid-template-columns:1fr}}
@container pl (width>=720px){.pl-panels{grid-template-columns:minmax(0,5fr) minmax(0,6fr)}.pl-panel:last-child:nth-child(odd){grid-column:1/-1}}
@container pl (width>=1240px){.pl-panels{grid-template-columns:minmax(0,5fr) minmax(0,6fr) minmax(0,5fr);--pl-tall:440px}.pl-panel:last-child:nth-child(3n+1){grid-column:1/-1}.pl-panel:last-child:nth-child(3n+2){grid-column:span 2}.pl-panel:last-child:nth-child(3n){grid-column:auto}}

.pl-file{color:var(--pl-dim);font-size:12px}.pl-file:empty{display:none}
.pl-code{overflow:auto;min-height:0}
.pl-lines{width:max-content;min-width:100%;padding-bottom:4px}
.pl-line{display:grid;grid-template-columns:30px calc(var(--pl-digits,2)*1ch + 20px) auto;font:13px/22px var(--pl-code-font);height:22px}
.pl-line:hover{background:var(--pl-wash)}
.pl-marks{display:flex;gap:3px;justify-content:flex-end;align-items:center}.pl-marks .pl-ahead{opacity:.4}
.pl-no{color:var(--pl-dim);text-align:end;padding-inline-end:14px;user-select:none}
.pl-text{white-space:pre;tab-size:4;padding-inline-end:12px}
.pl-now-row{background:var(--pl-wash)}.pl-now-row .pl-no{color:var(--pl-ink);font-weight:700}
.pl-now{background:var(--pl-tint);box-shadow:0 2px var(--pl-accent)}
.pl-origin{box-shadow:0 2px color-mix(in srgb,var(--pl-accent) 60%,transparent);background:color-mix(in srgb,var(--pl-accent) 7%,transparent)}
.pl-same{text-decoration:underline 3px var(--pl-hue);text-underline-offset:4px}
.pl-u-saved{text-decoration:underline dotted 2px;text-underline-offset:4px}.pl-u-changed{text-decoration:underline solid 2px;text-underline-offset:4px}.pl-u-raised{text-decoration:underline wavy var(--pl-red) 1.5px;text-underline-offset:4px}.pl-u-wrong{text-decoration:underline wavy var(--pl-red) 1.5px;text-underline-offset:4px}
.pl-keyword{color:var(--pl-keyword)}.pl-string{color:var(--pl-string)}.pl-comment{color:var(--pl-comment)}.pl-number{color:var(--pl-number)}
.pl-legend{display:flex;flex-wrap:wrap;gap:2px 16px;padding-top:8px;color:var(--pl-dim);font-size:12px}.pl-legend:empty{display:none}.pl-legend span{display:inline-flex;gap:6px;align-items:center}

.pl-textview{padding:12px 20px;border-top:1px solid var(--pl-line);max-height:520px;overflow:auto}
.pl-textview button{width:100%;text-align:start;display:grid;grid-template-columns:3.2em minmax(0,1fr);gap:10px;overflow-wrap:anywhere}
.pl-textview .pl-no{text-align:end;padding:0}
.pl-help{padding:14px 20px;border-top:1px solid var(--pl-line);background:var(--pl-wash);display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));gap:16px 40px}
.pl-help h3{font-size:13px;margin-bottom:6px}
.pl-help dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 14px}
.pl-help dt{font-family:var(--pl-code-font);font-size:13px}
.pl-notes{padding:8px 20px;border-top:1px solid var(--pl-line);color:var(--pl-dim)}
.pl-refused{padding:20px}
@media (prefers-reduced-motion:no-preference){.pl-scrub input::-webkit-slider-thumb,.pl-code{scroll-behavior:smooth}button{transition:background .12s}}
@media (prefers-contrast:more){.pl-root{--pl-dim:var(--pl-ink);--pl-line:var(--pl-ink)}}
@media (forced-colors:active){.pl-now{outline:2px solid Highlight}button[aria-pressed=true],button[aria-selected=true],button[aria-current]{border-color:Highlight}.pl-scrub input::-webkit-slider-thumb{background:Highlight;forced-color-adjust:none}}
`;
