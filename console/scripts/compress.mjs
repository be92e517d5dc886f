// Compresses every file of the build, and fails if the console exceeds its size limit.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const LIMIT_BYTES = 100_000;

function files(directory) {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) return files(path);
    return entry.name.startsWith('.') || entry.name.endsWith('.gz') ? [] : [path];
  });
}

let total = 0;
for (const path of files(fileURLToPath(new URL('../dist', import.meta.url)))) {
  const compressed = gzipSync(readFileSync(path), { level: 9 });
  writeFileSync(`${path}.gz`, compressed);
  total += compressed.length;
}
console.log(`console: ${total} bytes in gzip format, limit ${LIMIT_BYTES}`);
if (total > LIMIT_BYTES) process.exit(1);
