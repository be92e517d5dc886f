// The icons: outlines of 24 by 24, in the color of the text around them.
const PATHS = {
  overview: 'M4 13h6V4H4zM14 20h6V4h-6zM4 20h6v-3H4z',
  placement: 'M4 4v16M12 4v16M20 4v16M6 8h4M6 12h4M14 15h4M14 11h4',
  resources: 'M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9',
  nodes: 'M4 5h16v6H4zM4 13h16v6H4zM7.5 8h.01M7.5 16h.01',
  rules: 'M6 4v10M6 18v2M12 4v3M12 11v9M18 4v8M18 16v4M4 16h4M10 9h4M16 14h4',
  capacity: 'M4 20V10M10 20V4M16 20v-7M21 20H3',
  fencing: 'M12 3l8 3v6c0 5-3.5 8-8 9-4.5-1-8-4-8-9V6zM9 12l2 2 4-4',
  cluster: 'M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v4M12 18v4M2 12h4M18 12h4M5 5l2.8 2.8M16.2 16.2L19 19M19 5l-2.8 2.8M7.8 16.2L5 19',
  events: 'M4 6h16M4 12h16M4 18h10',
  operations: 'M5 4v16l14-8z',
  audit: 'M6 3h9l4 4v14H6zM15 3v4h4M9 12h7M9 16h7',
  simulation: 'M10 3h4M11 3v6l-6 10a1.5 1.5 0 001.3 2h11.4a1.5 1.5 0 001.3-2L13 9V3M8 15h8',
  ok: 'M5 12.5l4.5 4.5L19 7.5',
  warn: 'M12 4l9 16H3zM12 10v4M12 17h.01',
  bad: 'M6 6l12 12M18 6L6 18',
  idle: 'M6 12h12',
  search: 'M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l4.5 4.5',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  light: 'M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M19 5l-1.4 1.4M6.4 17.6L5 19',
  dark: 'M20 14.5A8.5 8.5 0 119.5 4a7 7 0 0010.5 10.5z',
  system: 'M4 5h16v11H4zM9 20h6M12 16v4',
  user: 'M12 4a4 4 0 100 8 4 4 0 000-8zM4 21c1-5 4-7 8-7s7 2 8 7',
  move: 'M4 12h15M13 6l6 6-6 6',
  help: 'M9 9a3 3 0 116 0c0 2-3 2.5-3 5M12 18h.01',
} as const;

export type IconName = keyof typeof PATHS;

/** Draws an icon; it is decoration unless it has a label. */
export function Icon({ name, label }: { name: IconName; label?: string }) {
  const accessible = label === undefined ? { 'aria-hidden': true } : { role: 'img' as const, 'aria-label': label };
  return (
    <svg class="icon" viewBox="0 0 24 24" width="18" height="18" {...accessible}>
      <path d={PATHS[name]} />
    </svg>
  );
}
