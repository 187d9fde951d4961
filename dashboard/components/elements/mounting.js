/**
 * Streamlit calls a component again on the same element when its data or the theme changes, and calls only
 * the last cleanup it was given (or an early one, late, when the first call was still loading). Both are put
 * right here.
 *
 * @typedef {{data: any, parentElement: ShadowRoot|HTMLElement, [more: string]: any, setTriggerValue?: (name:
 *   string, value:
 *   unknown) => void}} Component
 * @typedef {{refresh?: (component: Component) => void, destroy: () => void}} Part
 */

/** @type {WeakMap<Node, {identity: string, part: Part, calls: number}>} */
const mounted = new WeakMap();

/**
 * Create the part once per element; a later call with the same data only refreshes it.
 * @param {Component} component
 * @param {(component: Component) => Part} create
 * @returns {() => void} the cleanup
 */
export function mountOnce(component, create) {
  const parent = component.parentElement;
  const identity = JSON.stringify(component.data);
  let entry = mounted.get(parent);
  if (entry && entry.identity !== identity) {
    entry.part.destroy();
    entry = undefined;
  }
  if (entry) {
    entry.part.refresh?.(component);
  } else {
    entry = { identity, part: create(component), calls: 0 };
    mounted.set(parent, entry);
  }
  const current = entry;
  const call = ++current.calls;
  return () => {
    if (current.calls !== call || mounted.get(parent) !== current) return;
    mounted.delete(parent);
    current.part.destroy();
  };
}
