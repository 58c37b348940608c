/**
 * Builds everything that the package ships for the browser: `npm run build`.
 *
 *   src/widget.ts  → ../static/explorer.js   (esbuild: one ES module for anywidget)
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
import { build, transform } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const OUT = join(HERE, "../labextension");
const COMMON = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"];
const SOURCES = {
  widget: ["src/core", "src/views", "src/widget.ts"],
  extension: ["src/plugin", "style", "schema"],
};

async function minified(css) {
  return (await transform(css, { loader: "css", minify: true, charset: "utf8" })).code.trim();
}

/** Template strings hold the style sheets; they are minified like any other. */
const minifyStyles = {
  name: "minify-styles",
  setup(builder) {
    builder.onLoad({ filter: /style\.ts$/ }, async ({ path }) => {
      const text = readFileSync(path, "utf8");
      const pieces = text.split("`");
      for (let i = 1; i < pieces.length; i += 2) {
        if (pieces[i].includes("{") && !pieces[i].includes("${")) pieces[i] = (await minified(pieces[i])).replaceAll("\\", "\\\\");
      }
      return { contents: pieces.join("`"), loader: "ts" };
    });
  },
};

/** esbuild shortens every name but those of custom properties. Ours mean nothing outside the shadow root, so they are numbered. */
function shortenProperties(code) {
  const names = [...new Set(code.match(/--plv?-[a-z-]+/g))];
  return code.replace(/--plv?-[a-z-]+/g, (name) => `--${names.indexOf(name).toString(36)}_`);
}

async function buildWidget() {
  const { outputFiles } = await build({
    entryPoints: [join(HERE, "src/widget.ts")],
    bundle: true,
    minify: true,
    charset: "utf8",
    format: "esm",
    target: "es2022",
    legalComments: "none",
    write: false,
    plugins: [minifyStyles],
  });
  const code = shortenProperties(outputFiles[0].text);
  mkdirSync(join(HERE, "../static"), { recursive: true });
  writeFileSync(join(HERE, "../static/explorer.js"), code);
  return Buffer.byteLength(code);
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
const bytes = await buildWidget();
const before = widgetOnly ? JSON.parse(readFileSync(STAMPS, "utf8")) : {};
if (!widgetOnly) buildExtension();
const extension = widgetOnly ? before.extension : stamp(SOURCES.extension);
writeFileSync(STAMPS, `${JSON.stringify({ widget: stamp(SOURCES.widget), extension, explorer_bytes: bytes }, null, 2)}\n`);
console.log(`explorer.js: ${(bytes / 1000).toFixed(1)} kB`);
