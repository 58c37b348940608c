/** What went wrong, as Python tells it: beats that can be walked through, and edits that help. Checked, because a view must not trust its data. */

import type { Text } from "./contract";
import type { ExplorerModel } from "./model";

export type Role = "saved" | "changed" | "raised" | "wrong" | "other";

/** One place in the story: what happened there, and the step and line to look at. */
export interface Beat {
  role: Role;
  title: Text;
  step: number | null;
  line: number | null;
  code: string;
  text: string | Text;
}

/** An edit as rows: " " stays, "−" goes, "+" comes. */
export interface Fix {
  title: string | Text;
  verified: boolean;
  rows: [sign: " " | "−" | "+", text: string][];
}

export interface Story {
  severity: "error" | "warning" | "info";
  rule: string;
  name: string;
  message: string | Text;
  explanation: string | Text;
  predicted: boolean;
  beats: Beat[];
  fixes: Fix[];
}

/** One per finding, or what the trace itself tells when no rule spoke; none when Python sent nothing that can be read. */
export function stories({ scene }: ExplorerModel): Story[] {
  const told = Array.isArray(scene.stories) ? (scene.stories as Story[]) : [];
  return told.filter((story) => Array.isArray(story?.beats) && Array.isArray(story.fixes));
}
