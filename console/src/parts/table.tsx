// A table with named columns; on a narrow screen, every row becomes a block in which each value has its name.
import type { ComponentChildren } from 'preact';

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Whether the column contains numbers. */
  numeric?: boolean;
}

interface TableProps<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string;
  /** Largest number of rows to draw, instead of `MAX_ROWS`. */
  limit?: number;
  /** Names of the selected rows, and the function that changes them; without it, rows cannot be selected. */
  selection?: { selected: Set<string>; change: (selected: Set<string>) => void };
}

/** Largest number of rows that a page draws; a filter reduces them. */
export const MAX_ROWS = 200;

export function Table<T>({ label, columns, rows, keyOf, limit, selection }: TableProps<T>) {
  const shown = rows.slice(0, limit ?? MAX_ROWS);
  return (
    <>
      <div class="table-scroll" role="region" aria-label={label} tabIndex={0}>
        <table>
          <thead>
            <tr>
              {selection !== undefined && (
                <th class="select">
                  <SelectAll keys={shown.map(keyOf)} {...selection} />
                </th>
              )}
              {columns.map((column) => (
                <th key={column.title} scope="col" class={column.numeric === true ? 'number' : undefined}>
                  {column.title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={keyOf(row)}>
                {selection !== undefined && (
                  <td class="select">
                    <SelectRow name={keyOf(row)} {...selection} />
                  </td>
                )}
                {columns.map((column) => (
                  <td key={column.title} data-title={column.title} class={column.numeric === true ? 'number' : undefined}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > shown.length && (
        <p class="quiet">
          {shown.length} of {rows.length} rows are shown. Use the filter to see the others.
        </p>
      )}
    </>
  );
}

interface Selection {
  selected: Set<string>;
  change: (selected: Set<string>) => void;
}

function SelectAll({ keys, selected, change }: Selection & { keys: string[] }) {
  const areAllSelected = keys.length > 0 && keys.every((key) => selected.has(key));
  return (
    <input
      type="checkbox"
      aria-label="Select all shown rows"
      checked={areAllSelected}
      onChange={() => change(areAllSelected ? new Set() : new Set(keys))}
    />
  );
}

function SelectRow({ name, selected, change }: Selection & { name: string }) {
  const toggle = () => {
    const next = new Set(selected);
    if (!next.delete(name)) next.add(name);
    change(next);
  };
  return <input type="checkbox" aria-label={`Select ${name}`} checked={selected.has(name)} onChange={toggle} />;
}
