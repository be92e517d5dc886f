// The theme: that of the system, unless the user has chosen one.
import { Signal } from './state/signal';

export type Theme = 'system' | 'light' | 'dark';

const THEME_STORAGE_KEY = 'hactl.theme';

function storedTheme(): Theme {
  const value = localStorage.getItem(THEME_STORAGE_KEY);
  return value === 'light' || value === 'dark' ? value : 'system';
}

export const theme = new Signal<Theme>(storedTheme());

function applyTheme(): void {
  const chosen = theme.value;
  if (chosen === 'system') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', chosen);
}

applyTheme();

export function nextTheme(current: Theme): Theme {
  return current === 'system' ? 'light' : current === 'light' ? 'dark' : 'system';
}

export function setTheme(chosen: Theme): void {
  localStorage.setItem(THEME_STORAGE_KEY, chosen);
  theme.set(chosen);
  applyTheme();
}
