// Requests to the server. Everything that changes something has the key of this browser.

export const KEY_NAME = "opensesh-key";

/** An error answer of the server. */
export class RequestFailed extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * Sends a request with the key and returns its JSON answer, or null without one.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function send(method, path, body, signal) {
  const headers = new Headers({ "x-opensesh-key": localStorage.getItem(KEY_NAME) ?? "" });
  if (body !== undefined) headers.set("content-type", "application/json");
  const response = await fetch(path, {
    method,
    headers,
    signal: signal ?? null,
    body: body === undefined ? null : JSON.stringify(body),
  });
  const text = await response.text();
  const isJson = (response.headers.get("content-type") ?? "").startsWith("application/json");
  const answer = isJson && text ? JSON.parse(text) : null;
  if (!response.ok) throw new RequestFailed(response.status, answer?.data?.message ?? `${response.status} ${text}`);
  return answer;
}

/**
 * Returns the HTML of a page or fragment; empty if it is the version that the caller knows.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @param {string} [known]
 */
export async function fetchHtml(path, signal, known = "") {
  const headers = new Headers({ accept: "text/html-fragment" });
  if (known) headers.set("if-none-match", known);
  const response = await fetch(path, { signal: signal ?? null, headers });
  const text = await response.text();
  if (response.status === 304) return "";
  if (!response.ok) {
    let message = `${response.status} ${response.statusText}`;
    try { message = JSON.parse(text).data.message; } catch { /* not a JSON answer */ }
    throw new RequestFailed(response.status, message);
  }
  return text;
}
