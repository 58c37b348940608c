/**
 * The Explorer's style. It lives in a shadow root, so nothing leaks out and nothing but Jupyter's colours comes in.
 * Rules that several parts share stand once, at the top: the script is sent once per widget, so its size matters.
 */

export const STYLE = `
:host{display:block;margin:8px 0;
--pl-bg:var(--jp-layout-color1,#fff);--pl-ink:var(--jp-ui-font-color1,#1c1c1e);--pl-line:var(--jp-border-color2,#dcdce0);--pl-accent:var(--jp-brand-color1,#1565c0);
--pl-red:#b3261e;--pl-green:#1b6e3c;--pl-code-font:var(--jp-code-font-family,ui-monospace,"DejaVu Sans Mono",Menlo,monospace)}
@media (prefers-color-scheme:dark){:host{--pl-bg:var(--jp-layout-color1,#17181b);--pl-ink:var(--jp-ui-font-color1,#ececee);--pl-line:var(--jp-border-color2,#3a3c42);--pl-accent:var(--jp-brand-color1,#8ab4f8)}}
.pl-root{--pl-dim:color-mix(in srgb,var(--pl-ink) 72%,var(--pl-bg));--pl-wash:color-mix(in srgb,var(--pl-ink) 6%,var(--pl-bg));--pl-tint:color-mix(in srgb,var(--pl-accent) 16%,var(--pl-bg));--pl-edge:1px solid var(--pl-line);
container:pl/inline-size;background:var(--pl-bg);color:var(--pl-ink);border:var(--pl-edge);border-radius:8px;
font:14px/1.5 var(--jp-ui-font-family,system-ui,"Noto Sans CJK SC",sans-serif);font-variant-numeric:tabular-nums;text-align:start;overflow:hidden}
.pl-dark{--pl-red:#ff8a80;--pl-green:#7fd6a2;color-scheme:dark}
.pl-root *{box-sizing:border-box;min-width:0}
p,h2,h3,ol,ul,dl,dd{margin:0;padding:0;list-style:none;overflow-wrap:anywhere}
h2{font-size:14px}h3{font-size:12px;color:var(--pl-dim);margin-bottom:8px}
code,dt,.pl-value{font-family:var(--pl-code-font);font-size:13px}
button{font:inherit;color:inherit;background:none;border:1px solid transparent;border-radius:5px;min-width:28px;min-height:28px;padding:2px 8px;text-align:start;cursor:pointer}
button:hover{background:var(--pl-wash)}button:disabled{opacity:.6;cursor:default}
[aria-pressed=true],[aria-selected=true],[aria-current]{background:var(--pl-tint)!important}
:focus{outline:none}:focus-visible{outline:2px solid var(--pl-accent);outline-offset:1px}
.pl-mark,.pl-dot{width:12px;height:12px;flex:none;vertical-align:-1px}
.pl-raised,.pl-wrong,.pl-error,.pl-bad{color:var(--pl-red)}
.pl-root>*{padding:12px 20px}
.pl-head,.pl-findings,.pl-finding+*,.pl-facts,.pl-tabs,.pl-panels,.pl-empties,.pl-remedies,.pl-whatif,.pl-textview,.pl-help,.pl-notes{border-top:var(--pl-edge)}
.pl-head,.pl-outcome,.pl-agree,.pl-facts,.pl-facts>span,.pl-finding h3,.pl-tag,.pl-role,.pl-legend,.pl-legend span{display:flex;flex-wrap:wrap;align-items:center;gap:2px 7px}
.pl-agree,.pl-hint,.pl-inside,.pl-count,.pl-tools button,.pl-facts,.pl-beat-text,.pl-untried,.pl-kept,.pl-old,.pl-nothing,.pl-empties,.pl-notes,.pl-file,.pl-no,.pl-legend{color:var(--pl-dim)}
.pl-facts,.pl-beat-text,.pl-empties,.pl-ok,.pl-untried{font-size:13px}.pl-hint,.pl-tag,.pl-file,.pl-legend{font-size:12px}.pl-root:focus-within .pl-hint{visibility:hidden}

.pl-root>.pl-head{padding-block:10px;column-gap:20px;border:0}.pl-bad{font-weight:600}.pl-agree b{color:var(--pl-red)}
.pl-tools{margin-inline-start:auto;display:flex}
.pl-root>.pl-transport{display:grid;grid-template-columns:auto 1fr auto;align-items:center;gap:0 16px;padding-bottom:4px;border-top:var(--pl-edge)}
.pl-buttons{display:flex;gap:2px;margin-inline-start:-8px}.pl-buttons button{padding:2px;min-width:32px;height:32px;display:grid;place-items:center}
.pl-buttons .pl-wide{padding:2px 10px;border-color:var(--pl-line);margin-inline-start:6px}
.pl-icon{width:16px;height:16px;fill:none;stroke:currentColor;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}
.pl-scrub{position:relative;height:40px}
.pl-ticks,.pl-pins{position:absolute;inset:0 8px;width:calc(100% - 16px);height:100%;overflow:visible;pointer-events:none}
.pl-ticks path{stroke:var(--pl-dim);stroke-width:1.2;fill:none;vector-effect:non-scaling-stroke}.pl-dense .pl-t-call,.pl-dense .pl-t-node{opacity:.25}.pl-ticks .pl-axis{stroke:var(--pl-line);stroke-width:2}
.pl-ticks .pl-t-write{stroke:var(--pl-ink);stroke-width:2.6}.pl-ticks .pl-t-error{stroke:var(--pl-red);stroke-width:2.6}
.pl-pins>*{position:absolute;margin-inline:-6px}.pl-inside{top:30px;font-size:12px;line-height:1;white-space:nowrap}
.pl-scrub input{position:absolute;inset:0;width:100%;height:100%;margin:0;appearance:none;background:none;outline:0;cursor:pointer}
input::-webkit-slider-runnable-track{height:100%}
input::-webkit-slider-thumb{appearance:none;width:16px;height:16px;margin-top:12px;border-radius:50%;background:var(--pl-accent);border:3px solid var(--pl-bg);box-shadow:0 0 0 1.5px var(--pl-accent)}
input::-moz-range-thumb{width:10px;height:10px;border-radius:50%;background:var(--pl-accent);border:3px solid var(--pl-bg)}
input:focus-visible::-webkit-slider-thumb{outline:2px solid var(--pl-accent);outline-offset:3px}input:focus-visible::-moz-range-thumb{outline:2px solid var(--pl-accent)}
.pl-count{white-space:nowrap;min-width:5em;text-align:end}
.pl-root>.pl-say{padding-block:4px 14px;min-height:64px}
.pl-sentence{display:grid;grid-template-columns:auto 1fr;gap:9px;font-size:16px}.pl-sentence .pl-dot{margin-top:6px}
.pl-label{min-width:24px;min-height:24px;padding:0 3px;margin:-2px -1px;text-align:center;font-family:var(--pl-code-font);font-size:.92em;text-decoration:underline 2px var(--pl-of,var(--pl-line));text-underline-offset:4px}

.pl-root>.pl-findings{padding:0}.pl-finding{padding:14px 20px}.pl-finding h3{font-weight:400;margin:0}
.pl-tag{border:var(--pl-edge);border-radius:99px;padding:0 9px}
.pl-message{font-size:15px;font-weight:600;margin:4px 0 10px;max-width:75ch}.pl-quoted{font:13px/1.5 var(--pl-code-font);max-width:100ch}
.pl-story{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,190px),1fr));gap:8px 28px;max-width:1100px}
.pl-story li{position:relative;display:flex}.pl-story li+li::before{content:"→";position:absolute;left:-21px;top:50%;translate:0 -50%;color:var(--pl-dim)}
.pl-story button{flex:1;border-color:var(--pl-line);padding:7px 12px;display:flex;flex-direction:column;gap:2px}.pl-story [aria-current]{border-color:var(--pl-accent)}
.pl-story code{max-width:100%;white-space:pre;overflow:hidden;text-overflow:ellipsis}.pl-beat-text code{white-space:normal}
.pl-role{font-weight:600}
.pl-others{padding:4px 12px}.pl-others button{width:100%;display:grid;grid-template-columns:7em 1fr;gap:10px}
.pl-root>.pl-remedies{padding-bottom:20px}.pl-why{max-width:90ch;white-space:pre-line;margin-bottom:16px}
.pl-fixes{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,360px),1fr));gap:18px 40px}.pl-fix p,.pl-new{font-weight:600}.pl-ok{color:var(--pl-green)}
.pl-diff{font:13px/1.6 var(--pl-code-font);background:var(--pl-wash);border-radius:5px;padding:6px 12px;margin-top:5px}
.pl-diff div{white-space:pre-wrap;overflow-wrap:anywhere;padding-inline-start:2ch;text-indent:-2ch}.pl-old{text-decoration:line-through}
.pl-chips{display:flex;flex-wrap:wrap;gap:8px}.pl-chip{border-color:var(--pl-line);border-radius:99px;padding:4px 14px;font-size:13px}
.pl-whatif{font-size:13px}.pl-compared{margin-top:10px}.pl-sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:12px 32px;margin-block:8px}
.pl-sides button,.pl-sides li>div{width:100%;display:grid;grid-template-columns:3em 1fr;padding:3px 0;overflow-wrap:anywhere}.pl-scroll{overflow:auto}
.pl-pairs{border-spacing:0 3px}.pl-pairs th,.pl-pairs td{text-align:start;font-weight:400;padding-inline-end:24px}.pl-pairs td{font-family:var(--pl-code-font)}.pl-differs{font-weight:600}
.pl-root>.pl-facts{padding-block:8px;min-height:44px;column-gap:18px;overflow-wrap:anywhere}.pl-value{color:var(--pl-ink)}
.pl-facts .pl-swatch{display:grid;place-items:center;min-width:20px;height:20px;border-radius:4px;border:1.5px solid var(--pl-ink);font:600 12px/1 var(--pl-code-font)}

.pl-root>.pl-tabs{display:none;padding:6px 8px;overflow-x:auto}.pl-tabs button{min-height:32px;white-space:nowrap}
.pl-root>.pl-panels{padding:0;display:grid;gap:1px;background:var(--pl-line)}
.pl-panel{position:relative;background:var(--pl-bg);padding:14px 20px 18px;display:flex;flex-direction:column}
.pl-take{position:absolute;top:8px;right:14px;display:flex;opacity:0}.pl-panel:hover .pl-take,.pl-take:focus-within{opacity:1}.pl-take button{font-size:11px;color:var(--pl-dim)}@media (hover:none){.pl-take{opacity:1}}
.pl-body{flex:1;display:flex;flex-direction:column}.pl-body>.pl-code,.pl-body>.plv{max-height:var(--pl-tall,400px)}
@container pl (width<720px){.pl-root>.pl-tabs{display:flex}.pl-panel:not(.pl-chosen),.pl-panel>h3{display:none}.pl-story{grid-template-columns:1fr;row-gap:24px}.pl-story li+li::before{content:"↓";left:13px;top:-12px}
.pl-root>*,.pl-finding,.pl-panel{padding-inline:12px!important}.pl-root>.pl-findings,.pl-root>.pl-panels{padding-inline:0!important}
.pl-root>.pl-transport{grid-template-columns:1fr auto}.pl-buttons{grid-column:1/-1;grid-row:2}.pl-others button{grid-template-columns:1fr}}
@container pl (width>=720px){.pl-panels{grid-template-columns:5fr 6fr}.pl-panel:last-child:nth-child(odd){grid-column:1/-1}}
@container pl (width>=1240px){.pl-panels{grid-template-columns:5fr 6fr 5fr;--pl-tall:440px}.pl-panel:last-child:nth-child(3n){grid-column:auto}.pl-panel:last-child:nth-child(3n+1){grid-column:1/-1}.pl-panel:last-child:nth-child(3n+2){grid-column:span 2}}

.pl-file:empty,.pl-legend:empty{display:none}
.pl-code{overflow:auto}.pl-lines{width:max-content;min-width:100%;padding-bottom:4px}
.pl-line{display:grid;grid-template-columns:30px calc(var(--pl-digits,2)*1ch + 20px) auto;font:13px/24px var(--pl-code-font);height:24px}
.pl-line:hover,.pl-now-row{background:var(--pl-wash)}.pl-now-row .pl-no{color:var(--pl-ink);font-weight:700}
.pl-marks{display:flex;gap:3px;justify-content:flex-end;align-items:center}.pl-ahead{opacity:.4}
.pl-no{text-align:end;padding:0 14px 0 0;min-height:24px;border:0;user-select:none}
.pl-text{white-space:pre;tab-size:4;padding-inline-end:12px}
.pl-now{background:var(--pl-tint);box-shadow:0 2px var(--pl-accent)}.pl-origin{background:color-mix(in srgb,var(--pl-accent) 7%,transparent);box-shadow:0 2px color-mix(in srgb,var(--pl-accent) 60%,transparent)}
.pl-text span{text-underline-offset:4px}
.pl-u-saved{text-decoration:underline dotted 2px}.pl-u-changed{text-decoration:underline 2px}.pl-u-raised,.pl-u-wrong{text-decoration:underline wavy var(--pl-red) 1.5px}.pl-same{text-decoration:underline 3px var(--pl-hue)}
.pl-keyword{color:#7a3e9d}.pl-string{color:#8a4b08}.pl-comment{color:#5f6b6b}.pl-number{color:#0b6e4f}
.pl-dark .pl-keyword{color:#d7a5f0}.pl-dark .pl-string{color:#f0b67f}.pl-dark .pl-comment{color:#9aa5a5}.pl-dark .pl-number{color:#84d9b8}
.pl-legend{padding-top:8px;column-gap:16px}

.pl-textview{max-height:520px;overflow:auto}.pl-textview button{width:100%;display:grid;grid-template-columns:3em 1fr;overflow-wrap:anywhere}
.pl-help{background:var(--pl-wash);display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));gap:16px 40px}
.pl-help dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 14px}
@media (prefers-reduced-motion:no-preference){.pl-code{scroll-behavior:smooth}button{transition:background .12s}}
@media (prefers-contrast:more){.pl-root{--pl-dim:var(--pl-ink);--pl-line:var(--pl-ink)}}
@media (forced-colors:active){.pl-now,[aria-pressed=true],[aria-selected=true],[aria-current]{outline:2px solid Highlight}input::-webkit-slider-thumb{background:Highlight;forced-color-adjust:none}}
`;
