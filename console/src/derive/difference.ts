// The difference of two texts, line by line.
export interface DifferenceLine {
  sign: ' ' | '+' | '-';
  text: string;
}

/** Returns the lines of both texts: common, removed and added, by the longest common subsequence. */
export function difference(before: string, after: string): DifferenceLine[] {
  const left = before.split('\n');
  const right = after.split('\n');
  const lengths: number[][] = Array.from({ length: left.length + 1 }, () => new Array<number>(right.length + 1).fill(0));
  const at = (i: number, j: number) => lengths[i]?.[j] ?? 0;
  for (let i = left.length - 1; i >= 0; i -= 1) {
    const row = lengths[i] ?? [];
    for (let j = right.length - 1; j >= 0; j -= 1) {
      row[j] = left[i] === right[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const result: DifferenceLine[] = [];
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      result.push({ sign: ' ', text: left[i] ?? '' });
      i += 1;
      j += 1;
    } else if (i < left.length && (j >= right.length || at(i + 1, j) >= at(i, j + 1))) {
      result.push({ sign: '-', text: left[i] ?? '' });
      i += 1;
    } else {
      result.push({ sign: '+', text: right[j] ?? '' });
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
