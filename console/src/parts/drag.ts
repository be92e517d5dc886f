// Dragging of a block with a mouse, pen or finger: which block is dragged, and over which column.
import { useEffect, useRef, useState } from 'preact/hooks';
import { readExplanation } from '../api/explanation';
import type { Explanation } from '../api/objects';

/** Distance after which a press becomes a drag. */
const THRESHOLD_PIXELS = 6;

export interface Drag {
  name: string;
  x: number;
  y: number;
  /** Node of the column under the pointer. */
  over: string | undefined;
  /** The server's verdicts; undefined until they arrive. */
  explanation: Explanation | undefined;
}

/** Returns the reasons that forbid a node; undefined if the node is eligible or the verdicts are not known. */
export function dropRefusal(drag: Drag, node: string): string[] | undefined {
  const verdict = drag.explanation?.nodes.find((candidate) => candidate.node === node);
  if (verdict === undefined || verdict.allowed) return undefined;
  return verdict.causes.map((cause) => cause.message);
}

function nodeAt(x: number, y: number): string | undefined {
  const column = document.elementFromPoint(x, y)?.closest<HTMLElement>('[data-node]');
  return column?.dataset['node'];
}

/** Returns the drag in progress, and the function that starts to observe a press on a block. */
export function useDrag(drop: (name: string, node: string) => void): {
  drag: Drag | undefined;
  press: (name: string, event: PointerEvent) => void;
  wasDragged: () => boolean;
} {
  const [drag, setDrag] = useState<Drag | undefined>(undefined);
  const pressed = useRef<{ name: string; x: number; y: number } | undefined>(undefined);
  const dragged = useRef(false);
  const latest = useRef<Drag | undefined>(undefined);
  latest.current = drag;

  useEffect(() => {
    const onMove = (event: PointerEvent) => {
      const start = pressed.current;
      if (start === undefined) return;
      const { clientX: x, clientY: y } = event;
      if (latest.current === undefined && Math.hypot(x - start.x, y - start.y) < THRESHOLD_PIXELS) return;
      if (!dragged.current) {
        dragged.current = true;
        readExplanation(start.name).then(
          (explanation) => setDrag((current) => (current === undefined ? current : { ...current, explanation })),
          () => undefined,
        );
      }
      setDrag((current) => ({ name: start.name, x, y, over: nodeAt(x, y), explanation: current?.explanation }));
    };
    const end = (event: Event) => {
      const current = latest.current;
      pressed.current = undefined;
      setDrag(undefined);
      if (event.type !== 'pointerup' || current?.over === undefined || current.explanation === undefined) return;
      const isCurrent = current.explanation.nodes.some((candidate) => candidate.node === current.over && candidate.current);
      if (!isCurrent && dropRefusal(current, current.over) === undefined) drop(current.name, current.over);
    };
    const onKey = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && pressed.current !== undefined) end(event);
    };
    addEventListener('pointermove', onMove);
    addEventListener('pointerup', end);
    addEventListener('pointercancel', end);
    addEventListener('keydown', onKey);
    return () => {
      removeEventListener('pointermove', onMove);
      removeEventListener('pointerup', end);
      removeEventListener('pointercancel', end);
      removeEventListener('keydown', onKey);
    };
  }, [drop]);

  const press = (name: string, event: PointerEvent) => {
    if (event.button !== 0) return;
    dragged.current = false;
    pressed.current = { name, x: event.clientX, y: event.clientY };
  };
  return { drag, press, wasDragged: () => dragged.current };
}
