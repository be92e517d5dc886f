// Addresses of the views: a path and parameters in the fragment of the URL, so that links and the back button work.
import { useEffect, useState } from 'preact/hooks';

export interface Route {
  /** Parts of the path, such as `resources`, `web`. */
  parts: string[];
  parameters: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter((part) => part !== '').map(decodeURIComponent);
  return { parts, parameters: new URLSearchParams(query) };
}

/** Returns the address of a view. */
export function address(parts: string[], parameters: Record<string, string> = {}): string {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== '')).toString();
  return `#/${parts.map(encodeURIComponent).join('/')}${query === '' ? '' : `?${query}`}`;
}

export function navigate(to: string): void {
  location.hash = to;
}

/** Changes the parameters of the current view without a new entry in the history. */
export function setParameters(route: Route, changes: Record<string, string>): void {
  const parameters = { ...Object.fromEntries(route.parameters), ...changes };
  history.replaceState(null, '', address(route.parts, parameters));
  dispatchEvent(new HashChangeEvent('hashchange'));
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const update = () => setHash(location.hash);
    addEventListener('hashchange', update);
    return () => removeEventListener('hashchange', update);
  }, []);
  return parseRoute(hash);
}

/** Returns the address of an object, such as `node/node1` in a problem or the object of an event. */
export function objectAddress(kind: string, name: string): string | undefined {
  switch (kind.toLowerCase()) {
    case 'resource':
      return address(['resources', name]);
    case 'node':
      return address(['nodes', name]);
    case 'group':
    case 'affinityrule':
    case 'nodegroup':
      return address(['rules', kind.toLowerCase(), name]);
    case 'cluster':
      return address(['cluster']);
    case 'operation':
      return address(['operations'], { filter: name });
    default:
      return undefined;
  }
}
