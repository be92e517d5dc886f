// The theme: that of the system, unless the user has chosen one.
import { Signal } from './state/signal';

export type Theme = 'system' | 'light' | 'dark';

const STORED = 'hactl.theme';

function stored(): Theme {
  const value = localStorage.getItem(STORED);
  return value === 'light' || value === 'dark' ? value : 'system';
}

export const theme = new Signal<Theme>(stored());

function apply(): void {
  const chosen = theme.value;
  if (chosen === 'system') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', chosen);
}

apply();

export function nextTheme(current: Theme): Theme {
  return current === 'system' ? 'light' : current === 'light' ? 'dark' : 'system';
}

export function setTheme(chosen: Theme): void {
  localStorage.setItem(STORED, chosen);
  theme.set(chosen);
  apply();
}
