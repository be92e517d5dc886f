// The text field of the YAML editor, with completion from the schema: suggestions below the caret, by keyboard and pointer.
import { useEffect, useRef, useState } from 'preact/hooks';
import { complete, type Completion, type Suggestion } from '../derive/completion';
import type { Schema } from '../derive/schema';

interface YamlInputProps {
  id: string;
  value: string;
  readOnly: boolean;
  schema: Schema | undefined;
  change: (text: string) => void;
}

interface Position {
  left: number;
  top: number;
}

/** Returns the position below the caret, within the text field. The field has a font of fixed width and does not wrap. */
function caretPosition(field: HTMLTextAreaElement, offset: number): Position {
  const style = getComputedStyle(field);
  const lines = field.value.slice(0, offset).split('\n');
  const context = document.createElement('canvas').getContext('2d');
  if (context !== null) context.font = `${style.fontSize} ${style.fontFamily}`;
  const width = context?.measureText('0').width ?? 8;
  const height = parseFloat(style.lineHeight) || parseFloat(style.fontSize) * 1.4;
  const left = parseFloat(style.paddingLeft) + (lines[lines.length - 1] ?? '').length * width - field.scrollLeft;
  const top = parseFloat(style.paddingTop) + lines.length * height - field.scrollTop;
  return {
    left: Math.max(0, Math.min(left, field.clientWidth - 220)),
    top: Math.max(0, Math.min(top, field.clientHeight)),
  };
}

export function YamlInput({ id, value, readOnly, schema, change }: YamlInputProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [completion, setCompletion] = useState<(Completion & Position) | undefined>(undefined);
  const [selected, setSelected] = useState(0);
  const listId = `${id}-suggestions`;
  const close = () => setCompletion(undefined);
  const suggest = () => {
    const element = field.current;
    if (element === null || schema === undefined || readOnly) return;
    const found = complete(element.value, element.selectionStart, schema);
    setSelected(0);
    setCompletion(found === undefined ? undefined : { ...found, ...caretPosition(element, found.from) });
  };
  const accept = (suggestion: Suggestion) => {
    const element = field.current;
    if (element === null || completion === undefined) return;
    element.focus();
    element.setSelectionRange(completion.from, element.selectionStart);
    // Keeps the history of the field for undo. The event `input` of this command calls `change`.
    document.execCommand('insertText', false, suggestion.text);
    suggest();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey && event.key === ' ') {
      event.preventDefault();
      suggest();
      return;
    }
    const count = completion?.suggestions.length ?? 0;
    if (completion === undefined || count === 0) return;
    const suggestion = completion.suggestions[selected];
    if (event.key === 'ArrowDown') setSelected((selected + 1) % count);
    else if (event.key === 'ArrowUp') setSelected((selected + count - 1) % count);
    else if ((event.key === 'Enter' || event.key === 'Tab') && suggestion !== undefined) accept(suggestion);
    else if (event.key === 'Escape') {
      event.stopPropagation();
      close();
    } else {
      if (event.key === 'ArrowLeft' || event.key === 'ArrowRight' || event.key === 'Home' || event.key === 'End') close();
      return;
    }
    event.preventDefault();
  };
  useEffect(() => {
    if (completion !== undefined) document.getElementById(`${listId}-${selected}`)?.scrollIntoView({ block: 'nearest' });
  }, [completion, selected]);
  return (
    <div class="yaml-input">
      <textarea
        id={id}
        ref={field}
        spellcheck={false}
        autocapitalize="off"
        aria-autocomplete="list"
        aria-describedby={`${id}-hint`}
        aria-activedescendant={completion === undefined ? undefined : `${listId}-${selected}`}
        rows={Math.min(30, Math.max(8, value.split('\n').length))}
        value={value}
        readOnly={readOnly}
        onInput={(event) => {
          change(event.currentTarget.value);
          // Without a typed character, suggestions would cover the text, such as after a deletion.
          const { inputType, data } = event as InputEvent;
          if (inputType === 'insertText' && data !== null && /^[\w ]$/.test(data)) suggest();
          else if (inputType !== 'insertText' || completion !== undefined) close();
        }}
        onKeyDown={onKeyDown}
        onBlur={close}
        onScroll={close}
      />
      <p class="hidden-text" id={`${id}-hint`}>
        Ctrl+Space shows the fields and values that are possible at the caret.
      </p>
      {completion !== undefined && (
        <ul
          class="suggestions"
          id={listId}
          role="listbox"
          aria-label="Suggestions"
          style={{ left: `${completion.left}px`, top: `${completion.top}px` }}
        >
          {completion.suggestions.map((suggestion, index) => (
            <li
              key={suggestion.label}
              id={`${listId}-${index}`}
              role="option"
              aria-selected={index === selected}
              title={suggestion.description}
              onPointerDown={(event) => {
                event.preventDefault();
                accept(suggestion);
              }}
            >
              <code>{suggestion.label}</code>
              <span class="quiet">{suggestion.description}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
