// The search field of a list, which keeps its words in the address of the view.
import { setParameters, type Route } from '../router';

export function WordFilter({ route, placeholder }: { route: Route; placeholder: string }) {
  return (
    <label>
      <span class="hidden-text">Filter by words</span>
      <input
        type="search"
        placeholder={placeholder}
        value={route.parameters.get('filter') ?? ''}
        onInput={(event) => setParameters(route, { filter: event.currentTarget.value })}
      />
    </label>
  );
}
