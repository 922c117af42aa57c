/** Talking to the service: one way to ask, errors in plain words, and a token that only this tab knows. */

const TOKEN = "dpsketch-token";
const PATIENCE = 30_000;

export const token = () => sessionStorage.getItem(TOKEN) ?? "";

export function setToken(text) {
  if (text) {
    sessionStorage.setItem(TOKEN, text);
  } else {
    sessionStorage.removeItem(TOKEN);
  }
}

/** What the service refused, or that it did not answer. */
export class ServiceError extends Error {
  constructor(message, status, code) {
    super(message);
    this.name = "ServiceError";
    this.status = status;
    this.code = code;
    this.title = this.asksForToken ? "Please sign in" : undefined;
  }

  /** Whether a token would help. */
  get asksForToken() {
    return (this.status === 401 || this.status === 403) && !this.code?.startsWith("ticket_");
  }
}

/** Keys of 64 bits do not fit JavaScript's numbers: a whole number that would be rounded stays the text it was. */
function exactly(_name, value, context) {
  const rounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return rounded && /^-?\d+$/.test(context?.source) ? context.source : value;
}

function sentence(status, code, said, retryAfter) {
  if (code?.startsWith("ticket_")) {
    return said;
  }
  switch (status) {
    case 401:
      return "This service is not open to all. Sign in with the token that whoever runs it gave you.";
    case 403:
      return "Your token does not allow this. Sign in with another one, or ask whoever runs the service.";
    case 429:
      return `The service was asked too often. Try again ${retryAfter ? `in ${retryAfter} s` : "in a moment"}.`;
    default:
      return said ?? `The service answered with an error (status ${status}). Try again later.`;
  }
}

async function refusal(response) {
  let told = {};
  try {
    told = (await response.json()).error ?? {};
  } catch {
    // A proxy's page of HTML, say: the status is all there is to go by.
  }
  const words = sentence(response.status, told.code, told.message, response.headers.get("Retry-After"));
  return new ServiceError(words, response.status, told.code ?? null);
}

async function send(path, { body, type = "application/json", signal, patience = PATIENCE, ticket = "" } = {}) {
  const headers = {
    ...(token() && { Authorization: `Bearer ${token()}` }),
    ...(ticket && { "Dpsketch-Ticket": ticket }),
    ...(body !== undefined && { "Content-Type": type }),
  };
  const limits = [signal, patience === null ? undefined : AbortSignal.timeout(patience)].filter(Boolean);
  let response;
  try {
    response = await fetch(new URL(`v1/${path}`, document.baseURI), {
      method: body === undefined ? "GET" : "POST",
      headers,
      body,
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
      signal: AbortSignal.any(limits),
    });
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    const slow = error.name === "TimeoutError";
    throw new ServiceError(
      slow ? "The service took too long to answer." : "The service cannot be reached. Is it running?",
      0,
      null,
    );
  }
  if (!response.ok) {
    throw await refusal(response);
  }
  return response;
}

/** GET a JSON answer. */
export async function get(path, signal, ticket = "") {
  return JSON.parse(await (await send(path, { signal, ticket })).text(), exactly);
}

/** POST a question; what is asked travels in the body, so that no key ends up in an address. */
export async function post(path, question, signal) {
  return JSON.parse(await (await send(path, { body: JSON.stringify(question), signal })).text(), exactly);
}

/** POST a text exactly as it stands, with a ticket where there is one. */
export async function postText(path, body, signal, ticket = "") {
  return JSON.parse(await (await send(path, { body, signal, ticket })).text());
}

/** GET a file. */
export async function download(path, signal) {
  return (await send(path, { signal })).blob();
}

/** GET a stream of JSON lines; `take` is called with each, until the stream ends. */
export async function follow(path, take, signal) {
  const response = await send(path, { signal, patience: null });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts.filter((text) => text !== "")) {
      take(JSON.parse(line, exactly));
    }
  }
}

/** An identifier as a part of a path. */
export const part = (id) => encodeURIComponent(id);
