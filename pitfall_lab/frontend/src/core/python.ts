/** Python source as coloured pieces: just enough of its lexical grammar for reading, line by line. */

export interface Token {
  start: number;
  end: number;
  kind: "comment" | "string" | "keyword" | "number" | "name";
}

const KEYWORDS = new Set(
  "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield".split(
    " ",
  ),
);
const PIECE = /#.*|[rbfuRBFU]{0,2}("""|'''|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)|\d[\w.]*|[\p{L}_][\p{L}\p{N}_]*/gu;

/** The tokens of each line, by UTF-16 columns. A triple-quoted string colours every line that it crosses. */
export function tokens(lines: readonly string[]): Token[][] {
  let open = "";
  return lines.map((line) => {
    const found: Token[] = [];
    let from = 0;
    while (from <= line.length) {
      if (open) {
        const close = line.indexOf(open, from);
        const end = close < 0 ? line.length : close + 3;
        found.push({ start: from, end, kind: "string" });
        if (close < 0) break;
        open = "";
        from = end;
      }
      PIECE.lastIndex = from;
      const piece = PIECE.exec(line);
      if (!piece) break;
      from = piece.index + piece[0].length;
      const triple = piece[1] === '"""' || piece[1] === "'''";
      found.push({ start: piece.index, end: from, kind: kindOf(piece[0], piece[1] !== undefined) });
      if (triple) open = piece[1] as string;
    }
    return found;
  });
}

function kindOf(piece: string, quoted: boolean): Token["kind"] {
  if (quoted) return "string";
  if (piece.startsWith("#")) return "comment";
  if (/^\d/.test(piece)) return "number";
  return KEYWORDS.has(piece) ? "keyword" : "name";
}
