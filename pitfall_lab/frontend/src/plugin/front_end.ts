/** The Explorer's module for all widgets of the page: loaded from the extension's files when the first one asks. */

import { PageConfig } from "@jupyterlab/coreutils";

/** What build.mjs calls a module: a part of the hash of its text. */
const NAME = /^[0-9a-f]{16}$/;

/** Widgets find it by this symbol (build.mjs, `shared`); of another version there is no file, and they get the module from the kernel. */
export function offerFrontEnd(): void {
  const offer = (name: string): Promise<unknown> => {
    if (!NAME.test(name)) return Promise.reject(new Error("no module of this name"));
    const extensions = PageConfig.getOption("fullLabextensionsUrl");
    return import(/* webpackIgnore: true */ `${extensions}/pitfall-lab/static/explorer.${name}.js`);
  };
  (globalThis as Record<symbol, unknown>)[Symbol.for("pitfall-lab front end")] = offer;
}
