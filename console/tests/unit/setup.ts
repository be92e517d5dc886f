// The parts of a browser that modules read when they are loaded.
import { vi } from 'vitest';

const empty = { getItem: () => null, setItem: () => undefined, removeItem: () => undefined };
vi.stubGlobal('sessionStorage', empty);
vi.stubGlobal('location', { origin: 'https://c1', hash: '' });
