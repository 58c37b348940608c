"use strict";(self.rspackChunkpitfall_lab=self.rspackChunkpitfall_lab||[]).push([[700],{646(e,t,r){var n=r(601),a=r.n(n),o=r(314),i=(r.n(o))()(a());i.push([e.id,`.pl-chapters {
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
  gap: 8px;
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

.pl-chapters-item:has(.pl-chapters-solved) {
  grid-template-columns: 2.4em minmax(0, 1fr) max-content;
}

.pl-chapters-solved {
  color: var(--jp-ui-font-color2);
  font-variant-numeric: tabular-nums;
}
`,""]),r.d(t,{},{A:i})},314(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var r="",n=void 0!==t[5];return t[4]&&(r+="@supports (".concat(t[4],") {")),t[2]&&(r+="@media ".concat(t[2]," {")),n&&(r+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),r+=e(t),n&&(r+="}"),t[2]&&(r+="}"),t[4]&&(r+="}"),r}).join("")},t.i=function(e,r,n,a,o){"string"==typeof e&&(e=[[null,e,void 0]]);var i={};if(n)for(var c=0;c<this.length;c++){var s=this[c][0];null!=s&&(i[s]=!0)}for(var p=0;p<e.length;p++){var l=[].concat(e[p]);n&&i[l[0]]||(void 0!==o&&(void 0===l[5]||(l[1]="@layer".concat(l[5].length>0?" ".concat(l[5]):""," {").concat(l[1],"}")),l[5]=o),r&&(l[2]&&(l[1]="@media ".concat(l[2]," {").concat(l[1],"}")),l[2]=r),a&&(l[4]?(l[1]="@supports (".concat(l[4],") {").concat(l[1],"}"),l[4]=a):l[4]="".concat(a)),t.push(l))}},t}},601(e){e.exports=function(e){return e[1]}},72(e){var t=[];function r(e){for(var r=-1,n=0;n<t.length;n++)if(t[n].identifier===e){r=n;break}return r}function n(e,n){for(var a={},o=[],i=0;i<e.length;i++){var c=e[i],s=n.base?c[0]+n.base:c[0],p=a[s]||0,l="".concat(s," ").concat(p);a[s]=p+1;var u=r(l),d={css:c[1],media:c[2],sourceMap:c[3],supports:c[4],layer:c[5]};if(-1!==u)t[u].references++,t[u].updater(d);else{var f=function(e,t){var r=t.domAPI(t);return r.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&r.update(e=t):r.remove()}}(d,n);n.byIndex=i,t.splice(i,0,{identifier:l,updater:f,references:1})}o.push(l)}return o}e.exports=function(e,a){var o=n(e=e||[],a=a||{});return function(e){e=e||[];for(var i=0;i<o.length;i++){var c=r(o[i]);t[c].references--}for(var s=n(e,a),p=0;p<o.length;p++){var l=r(o[p]);0===t[l].references&&(t[l].updater(),t.splice(l,1))}o=s}}},659(e){var t={};e.exports=function(e,r){var n=function(e){if(void 0===t[e]){var r=document.querySelector(e);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(e){r=null}t[e]=r}return t[e]}(e);if(!n)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");n.appendChild(r)}},540(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},56(e,t,r){e.exports=function(e){var t=r.nc;t&&e.setAttribute("nonce",t)}},825(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(r){var n,a,o;n="",r.supports&&(n+="@supports (".concat(r.supports,") {")),r.media&&(n+="@media ".concat(r.media," {")),(a=void 0!==r.layer)&&(n+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),n+=r.css,a&&(n+="}"),r.media&&(n+="}"),r.supports&&(n+="}"),(o=r.sourceMap)&&"u">typeof btoa&&(n+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(o))))," */")),e.styleTagTransform(n,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},113(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},959(e,t,r){var n=r(72),a=r.n(n),o=r(825),i=r.n(o),c=r(659),s=r.n(c),p=r(56),l=r.n(p),u=r(540),d=r.n(u),f=r(113),h=r.n(f),m=r(646),v={};v.styleTagTransform=h(),v.setAttributes=l(),v.insert=s().bind(null,"head"),v.domAPI=i(),v.insertStyleElement=d(),a()(m.A,v),m.A&&m.A.locals&&m.A.locals}}]);