/** Making elements, and components, once, in theirs. Text only ever arrives as text: nothing here parses markup. */

const ICONS = {
  reset: 'M4 4v5h5M4.6 9A8 8 0 1 1 4 13',
  image: 'M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 8.5h.01',
  table: 'M12 4v11m0 0-4-4m4 4 4-4M5 19h14',
  wide: 'M9 4H4v5M15 4h5v5M9 20H4v-5M15 20h5v-5',
  again: 'M4 4v5h5M4.6 9A8 8 0 1 1 4 13M10 9l5 3-5 3z',
  chart: 'M4 4v16h16M7 15l4-5 3 3 5-7',
  heal: 'M12 4v16M4 12h16M12 3h0a9 9 0 1 0 .01 0z',
  launch: 'M7 5l12 7-12 7z',
  list: 'M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01',
  search: 'M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zm4.5 10.5L20 20',
};

/**
 * An element; what is null, undefined or false is left out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Partial<GlobalEventHandlers> & Record<string, unknown>} [properties] `class`, `text`, `on…`
 *   listeners,
 *   attributes
 * @param {...(Node|string|null)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') element.className = String(value);
    else if (name === 'text') element.textContent = String(value);
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/**
 * An element of a drawing.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, unknown>} attributes
 * @param {...(Node|string)} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** @param {keyof typeof ICONS} name */
export function icon(name) {
  return svg('svg', { viewBox: '0 0 24 24', 'aria-hidden': 'true', class: 'icon' }, svg('path', { d: ICONS[name] }));
}

/** The word where data are awaited, seen only once that takes long enough to be noticed; the first text replaces it. */
export const connecting = () => el('span', { class: 'waits', text: 'Connecting…' });

/**
 * Change an element's text only when it differs: an unchanged page costs nothing.
 * @param {Node|null} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/**
 * Set an attribute if it differs; null removes it.
 * @param {Element} element
 * @param {string} name
 * @param {string|null|undefined} value
 */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/**
 * A row of buttons of which one is pressed.
 * @param {string} label
 * @param {[string, string, string][]} choices value, text, explanation
 * @param {string} chosen
 * @param {(value: string) => void} onChoice
 */
export function choice(label, choices, chosen, onChoice) {
  const group = el('div', { class: 'choice', role: 'group', 'aria-label': label });
  /** @type {Map<string, HTMLButtonElement>} */
  const buttons = new Map();
  /** @param {string} value */
  const select = (value) => {
    for (const [own, button] of buttons) button.setAttribute('aria-pressed', String(own === value));
  };
  for (const [value, text, title] of choices) {
    const press = () => {
      select(value);
      onChoice(value);
    };
    buttons.set(value, el('button', { type: 'button', text, title, onclick: press }));
  }
  group.append(...buttons.values());
  select(chosen);
  return group;
}

/**
 * A button that is pressed or not.
 * @param {string} text
 * @param {string} title
 * @param {boolean} pressed
 * @param {(pressed: boolean) => void} onChange
 */
export function toggle(text, title, pressed, onChange) {
  const press = () => {
    const now = button.getAttribute('aria-pressed') !== 'true';
    button.setAttribute('aria-pressed', String(now));
    onChange(now);
  };
  const button = el('button', {
    type: 'button',
    class: 'toggle',
    text,
    title,
    'aria-pressed': String(pressed),
    onclick: press,
  });
  return button;
}

/**
 * Draw a place anew; the focus and the sideways scrolling go over to what takes the place of what had them: a
 * link to the same address, a button of the same name.
 * @param {HTMLElement} place
 * @param {...(Node|string)} children
 */
export function redraw(place, ...children) {
  const focused = focusedIn(place);
  const name =
    focused && focused !== place && place.contains(focused)
      ? (focused.getAttribute('href') ?? focused.getAttribute('aria-label'))
      : null;
  const left = place.querySelector('.scroll')?.scrollLeft;
  place.replaceChildren(...children);
  const scrolls = place.querySelector('.scroll');
  if (left && scrolls) scrolls.scrollLeft = left;
  const next =
    name === null
      ? null
      : htmlIn(place, 'a, button, .scroll').find((part) =>
          [part.getAttribute('href'), part.getAttribute('aria-label')].includes(name),
        );
  next?.focus({ preventScroll: true });
}

/**
 * Make the children exactly these without taking out those that stay: what is inside would lose the pointer.
 * @param {Element} parent
 * @param {Element[]} wanted
 */
export function keepChildren(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  wanted.forEach((child, position) => {
    if (parent.children[position] !== child) parent.insertBefore(child, parent.children[position] ?? null);
  });
}

/** What has the focus in the component around a place. @param {Node} place @returns {HTMLElement|null} */
export function focusedIn(place) {
  return /** @type {HTMLElement|null} */ (/** @type {ShadowRoot} */ (place.getRootNode()).activeElement);
}

/** @param {ParentNode} place @param {string} selector @returns {HTMLElement[]} */
export function htmlIn(place, selector) {
  return [...place.querySelectorAll(/** @type {'p'} */ (selector))];
}

/**
 * The element of that kind which an event is in.
 * @param {Event} event
 * @param {string} selector
 * @returns {HTMLElement|null}
 */
export function closestTo({ target }, selector) {
  return target instanceof Element ? target.closest(/** @type {'p'} */ (selector)) : null;
}

/**
 * @typedef {{data: any, parentElement: ShadowRoot|HTMLElement, [more: string]: any, setTriggerValue?: (name:
 *   string, value:
 *   unknown) => void}} Component
 * @typedef {{refresh?: (component: Component) => void, destroy: () => void}} Part
 */

/** @type {WeakMap<Node, {identity: string, part: Part, calls: number}>} */
const mounted = new WeakMap();

/**
 * Create the part once per element; a later call with the same data only refreshes it. Streamlit calls a component
 * again on the same element when its data or the theme changes, and calls only the last cleanup it was given (or an
 * early one, late, when the first call was still loading): both are put right here.
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
