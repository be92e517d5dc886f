// Search in the palette: every word must occur; a match at the start of a name counts most.
export interface Searchable {
  title: string;
  detail: string;
}

/** Returns the rank of an entry, lower is better; undefined if it does not match. */
export function rank(entry: Searchable, query: string): number | undefined {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== '');
  const title = entry.title.toLowerCase();
  const searchedText = `${title} ${entry.detail.toLowerCase()}`;
  let total = 0;
  for (const word of words) {
    if (title.startsWith(word)) total += 0;
    else if (title.includes(` ${word}`)) total += 1;
    else if (title.includes(word)) total += 2;
    else if (searchedText.includes(word)) total += 4;
    else return undefined;
  }
  return total;
}

/** Returns the best matches, best first. */
export function search<T extends Searchable>(entries: T[], query: string, limit: number): T[] {
  return entries
    .map((entry, index) => ({ entry, index, rank: rank(entry, query) }))
    .filter((match): match is { entry: T; index: number; rank: number } => match.rank !== undefined)
    .sort((a, b) => a.rank - b.rank || a.entry.title.length - b.entry.title.length || a.index - b.index)
    .slice(0, limit)
    .map((match) => match.entry);
}
