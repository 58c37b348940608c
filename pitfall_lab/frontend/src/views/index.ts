/** The Explorer's tabs: written by `python -m pitfall_lab.reference.browser_types`, not by hand. */

import type { View } from "../core/contract";
import { broadcast } from "./broadcast";
import { graph } from "./graph";
import { memory } from "./memory";
import { storage } from "./storage";
import { versions } from "./versions";

export const VIEWS: View[] = [graph, storage, broadcast, versions, memory];
