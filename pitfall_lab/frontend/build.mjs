/**
 * Builds everything that the package ships for the browser: `npm run build`.
 *
 *   src/widget.ts  → ../static/explorer.js   (esbuild: one ES module for anywidget with its style sheet, packed)
 *                  → ../static/shared.js     (what a widget carries where the extension has that module for the whole page)
 *                  → ../labextension/static/explorer.HASH.js (the module itself, for the extension to load)
 *   src/plugin/    → ../labextension/        (TypeScript, then jupyter-builder: JupyterLab's prebuilt extension)
 *   a stamp        → ../static/build.json    (hash over the sources and the lock file, so that a test can tell a stale build)
 *
 * Needs `npm ci` before, and `jupyter-builder` (PyPI: jupyter_builder) on the PATH or named by JUPYTER_BUILDER.
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { deflateSync } from "node:zlib";
import { build, transform } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const OUT = join(HERE, "../labextension");
const COMMON = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"];
const SOURCES = {
  widget: ["src/core", "src/views", "src/widget.ts"],
  extension: ["src/plugin", "src/core/dom.ts", "src/core/palette.ts", "src/core/prose.ts", "src/core/wrap.ts", "style", "schema"],
};

const STYLES = ["src/core/style.css", "src/views/style.css"];

async function minified(css) {
  return (await transform(css, { loader: "css", minify: true, charset: "utf8" })).code.trim();
}

/** esbuild shortens every name but those of custom properties. Ours mean nothing outside the shadow root, so they are numbered. */
function shortenProperties(text) {
  const names = [...new Set(text.match(/--(?:pl|v)-[a-z-]+/g))];
  return text.replace(/--(?:pl|v)-[a-z-]+/g, (name) => `--${names.indexOf(name).toString(36)}_`);
}

async function buildWidget() {
  const sheet = await minified(STYLES.map((path) => readFileSync(join(HERE, path), "utf8")).join(""));
  const { outputFiles } = await build({
    entryPoints: [join(HERE, "src/widget.ts")],
    bundle: true,
    minify: true,
    charset: "utf8",
    format: "esm",
    target: "es2022",
    legalComments: "none",
    define: { SHEET: JSON.stringify(sheet) },
    write: false,
  });
  const code = shortenProperties(outputFiles[0].text);
  mkdirSync(join(HERE, "../static"), { recursive: true });
  const name = createHash("sha256").update(code).digest("hex").slice(0, 16);
  const sent = packed(code, name);
  writeFileSync(join(HERE, "../static/explorer.js"), sent);
  writeFileSync(join(HERE, "../static/shared.js"), shared(name));
  const sizes = {
    explorer_bytes: Buffer.byteLength(sent),
    minified_bytes: Buffer.byteLength(code),
    style_bytes: Buffer.byteLength(shortenProperties(sheet)),
  };
  return { name, code, sizes };
}

/** The module as the extension serves it, in place of the one of an earlier build. */
function serve({ name, code }) {
  for (const file of readdirSync(join(OUT, "static"))) {
    if (/^explorer\./.test(file)) rmSync(join(OUT, "static", file));
  }
  writeFileSync(join(OUT, `static/explorer.${name}.js`), code);
}

/** Loads a packed module into the page. */
const UNPACK = `const unpack = async (bytes) => {
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  return import(url).finally(() => URL.revokeObjectURL(url));
};`;

/**
 * anywidget sends and stores its module once per widget. So the module goes out compressed, and the first Explorer of a page
 * unpacks it for all: the page reads the script once, however many there are.
 */
function packed(code, name) {
  return `// Pitfall Lab's Explorer, deflated; made by pitfall_lab/frontend/build.mjs from src/widget.ts.
${UNPACK}
const bytes = () => Uint8Array.from(atob("${deflateSync(code, { level: 9 }).toString("base64")}"), (one) => one.charCodeAt(0));
const module = await (globalThis[Symbol.for("pitfall-lab ${name}")] ??= unpack(bytes()));
export const { walk, meet } = module;
export default module.default;
`;
}

/**
 * What a widget carries where the JupyterLab extension is in the page: a few lines that take the module from the extension, once
 * for all widgets. A page that has no extension, or another version of it, asks the kernel for the module, once too.
 */
function shared(name) {
  return `// Pitfall Lab's Explorer, for pages that have its JupyterLab extension; made by pitfall_lab/frontend/build.mjs.
const HERE = Symbol.for("pitfall-lab ${name}");
${UNPACK}
const asked = (model) => new Promise((resolve, reject) => {
  const end = (after, value) => (clearTimeout(timer), model.off("msg:custom", hear), after(value));
  const hear = (message, [bytes]) => message?.front_end === "${name}" && end(resolve, unpack(bytes));
  const timer = setTimeout(() => end(reject), 60000);
  model.on("msg:custom", hear);
  try { model.send({ front_end: "${name}" }); } catch { end(reject); }
});
const load = async (model) => {
  try { return await globalThis[Symbol.for("pitfall-lab front end")]("${name}"); } catch { return asked(model); }
};
async function render({ model, el }) {
  try {
    const module = await (globalThis[HERE] ??= load(model));
    return module.default.render({ model, el });
  } catch {
    delete globalThis[HERE];
    el.textContent = model.get("language") === "zh"
      ? "要显示这张图，需要 pitfall_lab 的 JupyterLab 扩展，或正在运行的内核。"
      : "This picture needs pitfall_lab's JupyterLab extension, or a running kernel.";
  }
}
export default { render };
`;
}

function buildExtension() {
  rmSync(join(HERE, "lib"), { recursive: true, force: true });
  execFileSync(process.execPath, [join(HERE, "node_modules/typescript/bin/tsc")], { cwd: HERE, stdio: "inherit" });
  rmSync(OUT, { recursive: true, force: true });
  execFileSync(process.env.JUPYTER_BUILDER ?? "jupyter-builder", ["build", "."], { cwd: HERE, stdio: "inherit" });
  rmSync(join(OUT, "schemas/pitfall-lab/package.json.orig"), { force: true });
  // Tells JupyterLab's extension list that pip brought it and pip takes it away.
  const install = { packageManager: "python", packageName: "pitfall_lab", uninstallInstructions: "pip uninstall pitfall-lab" };
  writeFileSync(join(OUT, "install.json"), `${JSON.stringify(install, null, 2)}\n`);
}

function filesUnder(path) {
  if (statSync(join(HERE, path)).isFile()) return [path];
  return readdirSync(join(HERE, path)).flatMap((name) => filesUnder(`${path}/${name}`));
}

/** The same few lines stand in tests/frontend/test_build.py. */
function stamp(sources) {
  const hash = createHash("sha256");
  for (const path of [...sources.flatMap(filesUnder), ...COMMON].sort()) {
    hash.update(`${path}\n${readFileSync(join(HERE, path), "utf8").replaceAll("\r\n", "\n")}\n`);
  }
  return hash.digest("hex");
}

const STAMPS = join(HERE, "../static/build.json");
const widgetOnly = process.argv.includes("--widget-only");
const { sizes, ...module } = await buildWidget();
const before = widgetOnly ? JSON.parse(readFileSync(STAMPS, "utf8")) : {};
if (!widgetOnly) buildExtension();
serve(module);
const extension = widgetOnly ? before.extension : stamp(SOURCES.extension);
writeFileSync(STAMPS, `${JSON.stringify({ widget: stamp(SOURCES.widget), extension, ...sizes }, null, 2)}\n`);
console.log(
  `explorer.js: ${(sizes.explorer_bytes / 1000).toFixed(1)} kB, unpacked ${(sizes.minified_bytes / 1000).toFixed(1)} kB, of which the style sheet ${(sizes.style_bytes / 1000).toFixed(1)} kB`,
);
