/** The settings, read once and followed; and their texts in the settings editor, which JupyterLab takes from language packs alone. */

import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import { languageOf, type Say } from "./words";

const PLUGIN = "pitfall-lab:plugin";

/** The schema's texts in Chinese: of the whole, and of each setting. */
const CHINESE = {
  description: "左侧面板的章节、右侧面板的实时张量，以及单元格下方的探索器。",
  folder: ["章节所在的文件夹", "相对于服务器根目录。留空：在根目录及其 notebooks 文件夹中查找。"],
  live: [
    "实时张量与警告",
    "用一行 %load_ext pitfall_lab 准备 Python 内核，在右侧面板显示其中的张量，并在反向传播运行之前警告。关闭：不向内核发送任何内容，除非该 notebook 设为始终记录。",
  ],
  stale: ["面板隐藏时也警告", "每个单元格之后，检查仍在使用的计算图是否持有被该单元格覆盖的内容。"],
  fold: ["折叠库内栈帧", "在失败单元格的错误回溯中，把已安装的包的栈帧折叠到一行后面。"],
} as const;

interface Described {
  title?: string;
  description?: string;
}

function translate(schema: Described & { properties?: Record<string, Described> }): void {
  schema.description = CHINESE.description;
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    const words = CHINESE[name as Exclude<keyof typeof CHINESE, "description">];
    if (words) [property.title, property.description] = words;
  }
}

export class Settings {
  folder = "";
  live = true;
  stale = true;
  fold = true;

  async follow(registry: ISettingRegistry | null, changed: () => void, say: Say): Promise<void> {
    const settings = await registry?.load(PLUGIN).catch(() => null);
    if (settings && languageOf(say) === "zh") translate(settings.schema as unknown as Parameters<typeof translate>[0]);
    const read = (): void => {
      const get = (name: string): unknown => settings?.get(name).composite;
      this.folder = String(get("folder") ?? "");
      this.live = get("live") !== false;
      this.stale = get("stale") !== false;
      this.fold = get("fold") !== false;
      changed();
    };
    settings?.changed.connect(read);
    read();
  }
}
