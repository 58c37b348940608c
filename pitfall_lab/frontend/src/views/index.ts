/** The pictures of the Explorer, in their order. A new view is one file and one entry here. */

import type { View } from "../core/contract";
import { broadcast } from "./broadcast";
import { graph } from "./graph";
import { memory } from "./memory";
import { storage } from "./storage";
import { versions } from "./versions";

export const VIEWS: View[] = [graph, storage, broadcast, versions, memory];
