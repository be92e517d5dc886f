// Movement of blocks from their last place to their new place.
import type { RefObject } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

const ANIMATION_MILLISECONDS = 600;

/** Animates every element with `data-name` inside the container from its last place after the layout has changed. */
export function useMoveAnimation(container: RefObject<HTMLElement>, layout: string): void {
  const places = useRef(new Map<string, DOMRect>());
  useLayoutEffect(() => {
    const elements = container.current?.querySelectorAll<HTMLElement>('[data-name]') ?? [];
    const prefersReducedMotion = matchMedia('(prefers-reduced-motion: reduce)').matches;
    const next = new Map<string, DOMRect>();
    for (const element of elements) {
      const name = element.dataset['name'] ?? '';
      const place = element.getBoundingClientRect();
      const last = places.current.get(name);
      next.set(name, place);
      if (last === undefined || prefersReducedMotion) continue;
      const [x, y] = [last.left - place.left, last.top - place.top];
      if (Math.abs(x) + Math.abs(y) < 2) continue;
      element.animate([{ transform: `translate(${x}px, ${y}px)`, zIndex: 2 }, { transform: 'none', zIndex: 2 }], {
        duration: ANIMATION_MILLISECONDS,
        easing: 'cubic-bezier(.3, 0, .2, 1)',
      });
    }
    places.current = next;
  }, [layout]);
}
