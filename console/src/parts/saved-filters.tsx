// Filters that the user has saved in this browser.
import { useState } from 'preact/hooks';
import { address, navigate, type Route } from '../router';

const FILTERS_STORAGE_KEY = 'hactl.filters';

interface SavedFilter {
  name: string;
  query: string;
}

function storedFilters(): SavedFilter[] {
  try {
    return JSON.parse(localStorage.getItem(FILTERS_STORAGE_KEY) ?? '[]') as SavedFilter[];
  } catch {
    return [];
  }
}

export function SavedFilters({ route }: { route: Route }) {
  const [saved, setSaved] = useState(storedFilters);
  const query = [...route.parameters].filter(([, value]) => value !== '').map((pair) => pair.join('=')).join(' ');
  const current = new URLSearchParams([...route.parameters].filter(([, value]) => value !== '')).toString();
  const isSaved = saved.some((filter) => filter.query === current);
  const store = (filters: SavedFilter[]) => {
    localStorage.setItem(FILTERS_STORAGE_KEY, JSON.stringify(filters));
    setSaved(filters);
  };
  return (
    <>
      {saved.length > 0 && (
        <label>
          <span class="hidden-text">Saved filters</span>
          <select
            value={isSaved ? current : ''}
            onChange={(event) => navigate(address(route.parts, Object.fromEntries(new URLSearchParams(event.currentTarget.value))))}
          >
            <option value="">Saved filters</option>
            {saved.map((filter) => (
              <option key={filter.query} value={filter.query}>
                {filter.name}
              </option>
            ))}
          </select>
        </label>
      )}
      {current !== '' && (
        <button
          type="button"
          class="plain"
          onClick={() =>
            store(isSaved ? saved.filter((filter) => filter.query !== current) : [...saved, { name: query, query: current }])
          }
        >
          {isSaved ? 'Forget filter' : 'Save filter'}
        </button>
      )}
    </>
  );
}
