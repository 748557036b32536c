// The HTTP API: JSON in and out, the session's cookie, CSRF for writes, errors as one kind of value.

/** `code` is the server's (or `offline`, `signed_out`, `unreadable`); the message may be shown. */
class ApiError extends Error {
  constructor(code, message, status = 0, requestId = "") {
    super(message);
    Object.assign(this, { code, status, requestId });
  }
}

function cookie(name, cookies = document.cookie) {
  for (const pair of cookies.split("; ")) {
    const at = pair.indexOf("=");
    if (pair.slice(0, at) === name) return decodeURIComponent(pair.slice(at + 1));
  }
  return "";
}

export function createApi({ organization, csrfCookie, onSignedOut = () => {}, fetch = globalThis.fetch.bind(globalThis) }) {
  function address(path, query = {}) {
    const parameters = new URLSearchParams({ organization });
    for (const [name, value] of Object.entries(query)) if (value) parameters.set(name, value);
    return `/api/v1/${path}?${parameters}`;
  }

  async function request(method, path, { query, body, signal } = {}) {
    const headers = { Accept: "application/json" };
    if (method !== "GET") headers["X-CSRFToken"] = cookie(csrfCookie);
    if (body !== undefined) headers["Content-Type"] = "application/json";
    // A plain GET stands for what the page asked for ahead: it must look just like that to be matched.
    const options = method === "GET" ? { signal } : { method, headers, body: body && JSON.stringify(body), signal };
    let response;
    try {
      response = await fetch(address(path, query), options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("offline", "The server could not be reached.");
    }
    return read(response);
  }

  async function read(response) {
    if (response.status === 204) return null;
    if (response.status === 401 || (response.redirected && !response.url.includes("/api/"))) {
      onSignedOut();
      throw new ApiError("signed_out", "You are signed out.", 401);
    }
    const text = await response.text();
    let value;
    try {
      value = text ? JSON.parse(text) : null;
    } catch {
      throw new ApiError("unreadable", `The server's answer could not be read (${response.status}).`, response.status);
    }
    if (!response.ok) throw failure(response.status, value);
    return value;
  }

  return {
    address,
    token: () => cookie(csrfCookie),
    get: (path, query, signal) => request("GET", path, { query, signal }),
    post: (path, body) => request("POST", path, { body }),
    put: (path, body) => request("PUT", path, { body }),
    patch: (path, body) => request("PATCH", path, { body }),
    delete: (path) => request("DELETE", path),
  };
}

export function failure(status, value) {
  const error = (value && value.error) || {};
  return new ApiError(error.code || "error", error.message || `The request failed (${status}).`, status, error.request_id);
}
