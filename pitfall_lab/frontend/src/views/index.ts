import type { View } from "../core/contract";

export const VIEWS: View[] = [];
