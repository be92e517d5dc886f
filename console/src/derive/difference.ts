// The difference of two texts, line by line.
export interface DifferenceLine {
  sign: ' ' | '+' | '-';
  text: string;
}

/** Returns the lines of both texts: common, removed and added, by the longest common subsequence. */
export function difference(before: string, after: string): DifferenceLine[] {
  const linesBefore = before.split('\n');
  const linesAfter = after.split('\n');
  const lengths: number[][] = Array.from({ length: linesBefore.length + 1 }, () => new Array<number>(linesAfter.length + 1).fill(0));
  const lengthAt = (i: number, j: number) => lengths[i]?.[j] ?? 0;
  for (let i = linesBefore.length - 1; i >= 0; i -= 1) {
    const row = lengths[i] ?? [];
    for (let j = linesAfter.length - 1; j >= 0; j -= 1) {
      row[j] = linesBefore[i] === linesAfter[j] ? lengthAt(i + 1, j + 1) + 1 : Math.max(lengthAt(i + 1, j), lengthAt(i, j + 1));
    }
  }
  const result: DifferenceLine[] = [];
  let i = 0;
  let j = 0;
  while (i < linesBefore.length || j < linesAfter.length) {
    if (i < linesBefore.length && j < linesAfter.length && linesBefore[i] === linesAfter[j]) {
      result.push({ sign: ' ', text: linesBefore[i] ?? '' });
      i += 1;
      j += 1;
    } else if (i < linesBefore.length && (j >= linesAfter.length || lengthAt(i + 1, j) >= lengthAt(i, j + 1))) {
      result.push({ sign: '-', text: linesBefore[i] ?? '' });
      i += 1;
    } else {
      result.push({ sign: '+', text: linesAfter[j] ?? '' });
      j += 1;
    }
  }
  return result;
}

/** Returns only the changed lines with some common lines around each. */
export function withContext(lines: DifferenceLine[], around = 2): DifferenceLine[] {
  const near = (index: number) =>
    lines.slice(Math.max(0, index - around), index + around + 1).some((line) => line.sign !== ' ');
  return lines.filter((_, index) => near(index));
}
