// Requests to the API: the token, errors as values with the server's sentence, and the change to another controller.
import { Controllers } from './controllers';

/** An answer with an error status, or no answer (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

/** Returns the text that shows why a request failed. */
export function messageOf(error: unknown): string {
  return error instanceof ApiError ? error.message : String(error);
}

/** An answer with the warnings of its headers. */
export interface Answer<T> {
  body: T;
  warnings: string[];
}

const TOKEN_STORAGE_KEY = 'hactl.token';
/** Longest time for a request other than a watch. */
const TIMEOUT_MILLISECONDS = 10_000;

/** Returns the texts of `Warning` headers, which a browser joins with commas. */
export function parseWarnings(header: string | null): string[] {
  if (header === null) return [];
  const texts = header.matchAll(/\d{3} \S+ "((?:[^"\\]|\\.)*)"/g);
  return [...texts].map((match) => (match[1] ?? '').replace(/\\(.)/g, '$1'));
}

/** Returns the error of an answer. */
async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text();
  try {
    const status = JSON.parse(text) as { reason?: string; message?: string };
    return new ApiError(response.status, status.reason ?? '', status.message ?? text);
  } catch {
    return new ApiError(response.status, '', text || response.statusText);
  }
}

/** A client of the API. */
export class Client {
  readonly controllers: Controllers;

  constructor(
    private readonly storage: Storage = sessionStorage,
    own: string = location.origin,
  ) {
    this.controllers = new Controllers(own, storage);
  }

  get token(): string {
    return this.storage.getItem(TOKEN_STORAGE_KEY) ?? '';
  }

  /** Stores the token until the tab is closed; an empty token removes it. */
  setToken(token: string): void {
    if (token === '') this.storage.removeItem(TOKEN_STORAGE_KEY);
    else this.storage.setItem(TOKEN_STORAGE_KEY, token);
  }

  /**
   * Sends a request to the current controller. If the controller is unreachable, selects the next one for later requests.
   */
  async send(path: string, init: RequestInit = {}): Promise<Response> {
    const { origin } = this.controllers;
    const headers = new Headers(init.headers);
    if (!headers.has('Accept')) headers.set('Accept', 'application/json');
    if (this.token !== '') headers.set('Authorization', `Bearer ${this.token}`);
    let response: Response;
    // A complete address selects one controller, whose failure does not change the controller of other requests.
    const url = new URL(path, origin);
    try {
      response = await fetch(url.href, { ...init, headers, credentials: 'include', cache: 'no-store' });
    } catch (error) {
      if (init.signal?.aborted === true && init.signal.reason !== TIMED_OUT) throw error;
      if (url.origin === origin) this.controllers.moveFrom(origin);
      throw new ApiError(0, 'Unreachable', `controller at ${url.origin} does not answer`);
    }
    if (!response.ok) throw await errorOf(response);
    return response;
  }

  /** Uses the controller that serves the page again, once it is ready. */
  async returnToOwn(): Promise<void> {
    if (this.controllers.isOwn) return;
    try {
      const headers = this.token === '' ? {} : { Authorization: `Bearer ${this.token}` };
      // Without a limit, requests on a dead connection would occupy all connections that a browser opens to a server.
      const signal = AbortSignal.timeout(TIMEOUT_MILLISECONDS);
      const url = new URL('/readyz', this.controllers.own).href;
      const response = await fetch(url, { headers, credentials: 'include', cache: 'no-store', signal });
      if (response.ok) this.controllers.returnToOwn();
    } catch {
      // Still unreachable: the other controller stays in use.
    }
  }

  /** Sends a request and reads a JSON answer within the time limit. */
  async request<T>(path: string, init: RequestInit = {}, timeout = TIMEOUT_MILLISECONDS): Promise<Answer<T>> {
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(TIMED_OUT), timeout);
    try {
      const response = await this.send(path, { ...init, signal: limit.signal });
      const body = (await response.json()) as T;
      return { body, warnings: parseWarnings(response.headers.get('Warning')) };
    } finally {
      clearTimeout(timer);
    }
  }

  async get<T>(path: string, timeout?: number): Promise<T> {
    return (await this.request<T>(path, {}, timeout)).body;
  }

  /** Reads an answer that is text. */
  async text(path: string): Promise<string> {
    return (await this.send(path, { headers: { Accept: 'text/plain' } })).text();
  }

  /** Sends an object or YAML text. */
  async write<T>(method: string, path: string, body: unknown, contentType = 'application/json'): Promise<Answer<T>> {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return this.request<T>(path, { method, body: text, headers: { 'Content-Type': contentType } });
  }
}

const TIMED_OUT = new DOMException('time limit', 'TimeoutError');

export const client = new Client();
