/** Takes a script or an archive of a project to the server, by our own route: nothing of it passes through the page. */

import { el, mountOnce, setText } from '../elements/elements.js';
import { apiUrl } from '../server/request.js';

const ACCEPT = '.py,.zip,.tar,.gz,.tgz';

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Upload(first));

class Upload {
  /** @type {XMLHttpRequest|undefined} */
  _request;

  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this._component = component;
    this._input = el('input', {
      type: 'file',
      accept: ACCEPT,
      hidden: true,
      'aria-label': 'File with the code',
    });
    this._input.addEventListener('change', () => this._take(this._input.files?.[0]));
    this._button = el('button', { type: 'button', text: 'Choose a file' });
    this._button.addEventListener('click', () => this._input.click());
    this._said = el('span', { class: 'said', role: 'status' });
    this._bar = el('progress', { max: '1', value: '0', hidden: true, 'aria-label': 'Uploading' });
    this._box = el('div', { class: 'box' }, this._button, this._input, this._said, this._bar);
    this._root = el(
      'div',
      { class: 'upload-code' },
      el('div', { class: 'label', text: 'Script or archive' }),
      this._box,
    );
    this._box.addEventListener('dragover', (event) => this._over(event, true));
    this._box.addEventListener('dragleave', (event) => this._over(event, false));
    this._box.addEventListener('drop', (event) => {
      this._over(event, false);
      this._take(event.dataTransfer?.files[0]);
    });
    component.parentElement.append(this._root);
    this._showName();
  }

  /** @param {import('../elements/elements.js').Component} component */
  refresh(component) {
    this._component = component;
  }

  destroy() {
    this._request?.abort();
    this._root.remove();
  }

  _showName() {
    const name = this._component.data.name;
    this._say(name || 'or drop it here: a .py, or a .zip or .tar.gz of a project', false);
    if (name) setText(this._button, 'Choose another');
  }

  /** @param {DragEvent} event @param {boolean} isOver */
  _over(event, isOver) {
    event.preventDefault();
    this._box.classList.toggle('over', isOver);
  }

  /** @param {File|undefined} file */
  _take(file) {
    if (!file) return;
    if (file.size > this._component.data.limit_bytes) {
      this._say(`${file.name} is larger than ${this._component.data.limit}, the limit for code.`, true);
      return;
    }
    this._request?.abort();
    const request = new XMLHttpRequest();
    this._request = request;
    request.open('POST', apiUrl(`api/uploads?name=${encodeURIComponent(file.name)}`));
    request.setRequestHeader('Content-Type', 'application/octet-stream');
    request.upload.onprogress = (event) => {
      this._bar.value = event.loaded / (event.total || 1);
    };
    request.onload = () => this._ended(file.name, request);
    request.onerror = () => this._failed('The dashboard cannot be reached; try again.');
    this._bar.value = 0;
    this._bar.hidden = false;
    this._say(file.name, false);
    request.send(file);
  }

  /** @param {string} name @param {XMLHttpRequest} request */
  _ended(name, request) {
    this._bar.hidden = true;
    const answer = parsed(request.responseText);
    if (request.status !== 201) {
      this._failed(answer?.detail?.message ?? 'The dashboard rejected the file; try again.');
      return;
    }
    this._component.setTriggerValue?.('uploaded', { name, ...answer });
  }

  /** @param {string} sentence */
  _failed(sentence) {
    this._bar.hidden = true;
    this._say(sentence, true);
  }

  /** @param {string} sentence @param {boolean} isWrong */
  _say(sentence, isWrong) {
    setText(this._said, sentence);
    this._said.classList.toggle('wrong', isWrong);
  }
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
