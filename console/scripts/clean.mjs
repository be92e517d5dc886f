// Removes the last build, except the tracked file that keeps the directory.
import { readdirSync, rmSync } from 'node:fs';

const directory = new URL('../dist/', import.meta.url);
for (const name of readdirSync(directory)) {
  if (name !== '.gitignore') rmSync(new URL(name, directory), { recursive: true });
}
