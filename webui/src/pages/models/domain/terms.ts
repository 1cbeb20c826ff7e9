/** Terms of a text: one on a line; of a CSV file the first column. Empty lines and blanks around a term don't count. */
export function termsOf(text: string): string[] {
  return text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== '')
}

/** A file's content as the field wants it. */
export function linesOfFile(name: string, content: string): string {
  const text = content.replace(/^\uFEFF/, '')
  if (!name.toLowerCase().endsWith('.csv')) return text
  return text
    .split(/\r?\n/)
    .map((line) => firstCell(line))
    .join('\n')
}

function firstCell(line: string): string {
  const quoted = /^\s*"((?:[^"]|"")*)"/.exec(line)
  return quoted ? (quoted[1] ?? '').replaceAll('""', '"') : (line.split(/[,;\t]/)[0] ?? '')
}
