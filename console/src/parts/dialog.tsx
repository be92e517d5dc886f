// A modal dialog of the browser: the browser keeps the focus inside, and returns it afterward.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

export function Dialog(props: { title: string; onClose: () => void; wide?: boolean; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      class={props.wide === true ? 'wide' : undefined}
      aria-label={props.title}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onClick={(event) => {
        if (event.target === element.current) props.onClose();
      }}
    >
      <div class="dialog-body">{props.children}</div>
    </dialog>
  );
}
