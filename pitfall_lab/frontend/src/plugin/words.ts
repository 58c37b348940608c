import type { ITranslator } from "@jupyterlab/translation";

/** Both languages side by side, chosen by JupyterLab's own language setting. */
export type Say = (en: string, zh: string) => string;

export function languageOf(say: Say): "en" | "zh" {
  return say("en", "zh") as "en" | "zh";
}

/** What `write` says, in both languages. */
export function sayBoth(write: (say: Say) => string): { en: string; zh: string } {
  return { en: write((en) => en), zh: write((_, zh) => zh) };
}

export function sayIn(translator: ITranslator | null): Say {
  const chinese = translator?.languageCode?.toLowerCase().startsWith("zh") ?? false;
  return (en, zh) => (chinese ? zh : en);
}
