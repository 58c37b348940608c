/** What went wrong, as beats that can be walked through: saved → changed → raised. */

import type { Failure, SceneFinding, SceneFix, SceneRelated, Text, TraceEvent } from "./contract";
import type { ExplorerModel } from "./model";

export type Role = "saved" | "changed" | "raised" | "wrong" | "other";

/** One place in the story: what happened there, and the step and line to look at. */
export interface Beat {
  role: Role;
  title: Text;
  step: number | null;
  line: number | null;
  text: string | Text;
}

export interface Story {
  severity: "error" | "warning" | "info";
  rule: string;
  name: string;
  message: string | Text;
  explanation: string | Text;
  predicted: boolean;
  beats: Beat[];
  fixes: SceneFix[];
}

const TITLES: Record<Role, Text> = {
  saved: { en: "saved", zh: "保存" },
  changed: { en: "changed", zh: "改写" },
  raised: { en: "raised", zh: "报错" },
  wrong: { en: "wrong", zh: "出错" },
  other: { en: "see also", zh: "另见" },
};

const ROLE_TITLES: Record<string, Text> = {
  alias: { en: "same memory", zh: "同一内存" },
  leaf: { en: "leaf", zh: "叶子" },
  operand: { en: "operand", zh: "操作数" },
  forward: { en: "made here", zh: "在此产生" },
};

const ORDER: Role[] = ["other", "saved", "changed", "wrong", "raised"];

/** All stories of a trace: one per finding, or what the trace itself tells when no rule spoke. */
export function stories(model: ExplorerModel): Story[] {
  const findings = Array.isArray(model.scene.findings) ? model.scene.findings : [];
  if (findings.length) return findings.map((finding) => fromFinding(model, finding));
  const failure = model.trace.outcome.failure;
  return failure ? [fromFailure(model, failure)] : [];
}

function fromFinding(model: ExplorerModel, finding: SceneFinding): Story {
  const raised = model.trace.outcome.kind === "raised";
  const beats = (finding.related ?? []).map((related) => fromRelated(model, related, raised));
  beats.sort((a, b) => ORDER.indexOf(a.role) - ORDER.indexOf(b.role) || (a.step ?? 0) - (b.step ?? 0));
  const told = beats.some((beat) => beat.role !== "other");
  if (!told) beats.push(fromOwnPlace(model, finding));
  return {
    severity: finding.severity ?? "info",
    rule: finding.rule ?? "",
    name: finding.name ?? "",
    message: finding.message ?? "",
    explanation: finding.explanation ?? "",
    predicted: finding.predicted === true,
    beats,
    fixes: finding.fixes ?? [],
  };
}

function fromRelated(model: ExplorerModel, related: SceneRelated, raised: boolean): Beat {
  const role = roleOf(related.role, raised);
  const step = related.step ?? stepOnLine(model, related.line ?? null, role);
  return {
    role,
    title: ROLE_TITLES[related.role] ?? TITLES[role],
    step,
    line: related.line ?? lineOf(model, step),
    text: related.message ?? "",
  };
}

/** A finding without related places still has its own. */
function fromOwnPlace(model: ExplorerModel, finding: SceneFinding): Beat {
  const step = finding.step ?? stepOnLine(model, finding.line ?? null, "other");
  const failed = step !== null && model.trace.events[step]?.error;
  const role: Role = failed ? "raised" : "other";
  const title = failed ? TITLES.raised : { en: "here", zh: "在此" };
  return { role, title, step, line: finding.line ?? lineOf(model, step), text: "" };
}

function roleOf(role: string, raised: boolean): Role {
  if (role === "saved" || role === "changed") return role;
  if (role === "backward" || role === "raised") return raised ? "raised" : "wrong";
  return "other";
}

function fromFailure(model: ExplorerModel, failure: Failure): Story {
  const beats: Beat[] = [];
  if (failure.saved_at !== null) beats.push(beat(model, "saved", failure.saved_at));
  for (const step of failure.changed_at.slice(0, 4)) beats.push(beat(model, "changed", step));
  if (failure.step !== null) beats.push(beat(model, "raised", failure.step));
  const message = `${failure.type}: ${failure.message}`;
  return { severity: "error", rule: "", name: failure.kind, message, explanation: "", predicted: false, beats, fixes: [] };
}

function beat(model: ExplorerModel, role: Role, step: number): Beat {
  return { role, title: TITLES[role], step, line: lineOf(model, step), text: "" };
}

export function lineOf(model: ExplorerModel, step: number | null): number | null {
  return step === null ? null : (model.trace.events[step]?.span?.line ?? null);
}

function stepOnLine(model: ExplorerModel, line: number | null, role: Role): number | null {
  if (line === null) return null;
  const fits = (event: TraceEvent): boolean => event.span?.line === line && event.kind !== "node";
  const here = model.trace.events.filter(fits);
  const best = here.find((event) => (role === "raised" && event.error) || (role === "changed" && event.writes.length > 0));
  return (best ?? here[0])?.step ?? null;
}
