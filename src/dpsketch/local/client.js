/**
 * A client for subset local hashing, for browsers and Node 18 or newer; no build step, no dependencies.
 *
 *   import { readSpec, report, toBytes, toObject } from "./client.js";
 *   const spec = readSpec(await (await fetch("/spec.json")).json(), { maxEpsilon: 1 });
 *   const mine = report(spec, ["tea", "milk"]);
 *   await fetch("/reports", { method: "POST", body: toBytes(spec, mine) });   // or JSON.stringify(toObject(spec, mine))
 *
 * What leaves the device is private by itself: for any two sets of items the probabilities of a report differ by a
 * factor of at most e^epsilon, exactly as drawn here. All arithmetic that decides is in whole numbers, so that this client
 * and the one in Python draw from the same law. Each report costs epsilon: an application that reports more than once
 * about a person adds the costs up, or sends the same report again.
 *
 * Randomness is the system's (crypto.getRandomValues), never Math.random.
 */

const webcrypto = globalThis.crypto ?? (await import("node:crypto")).webcrypto;

const WIRE_VERSION = 1;
const MASK = (1n << 64n) - 1n;
const WORD = 1n << 64n;

// XXH64, over bytes.

const P1 = 0x9e3779b185ebca87n;
const P2 = 0xc2b2ae3d27d4eb4fn;
const P3 = 0x165667b19e3779f9n;
const P4 = 0x85ebca77c2b2ae63n;
const P5 = 0x27d4eb2f165667c5n;

const rotate = (x, bits) => ((x << bits) | (x >> (64n - bits))) & MASK;
const round = (accumulator, word) => (rotate((accumulator + word * P2) & MASK, 31n) * P1) & MASK;
const fold = (h, accumulator) => ((h ^ round(0n, accumulator)) * P1 + P4) & MASK;

function xxh64(bytes, seed) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = bytes.byteLength;
  let at = 0;
  let h;
  if (length >= 32) {
    const v = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK];
    for (; length - at >= 32; at += 32) {
      for (let lane = 0; lane < 4; lane++) {
        v[lane] = round(v[lane], view.getBigUint64(at + 8 * lane, true));
      }
    }
    h = (rotate(v[0], 1n) + rotate(v[1], 7n) + rotate(v[2], 12n) + rotate(v[3], 18n)) & MASK;
    for (const accumulator of v) {
      h = fold(h, accumulator);
    }
  } else {
    h = (seed + P5) & MASK;
  }
  h = (h + BigInt(length)) & MASK;
  for (; length - at >= 8; at += 8) {
    h = (rotate(h ^ round(0n, view.getBigUint64(at, true)), 27n) * P1 + P4) & MASK;
  }
  if (length - at >= 4) {
    h = (rotate(h ^ ((BigInt(view.getUint32(at, true)) * P1) & MASK), 23n) * P2 + P3) & MASK;
    at += 4;
  }
  for (; at < length; at++) {
    h = (rotate(h ^ ((BigInt(view.getUint8(at)) * P5) & MASK), 11n) * P1) & MASK;
  }
  h = ((h ^ (h >> 33n)) * P2) & MASK;
  h = ((h ^ (h >> 29n)) * P3) & MASK;
  return h ^ (h >> 32n);
}

// Keys and hash functions.

const LONE_SURROGATE = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/;

/** The 64-bit fingerprint of an item: a string, a safe integer, or a BigInt in [-2^63, 2^64). */
export function fingerprint(item) {
  if (typeof item === "string") {
    if (LONE_SURROGATE.test(item)) {
      throw new TypeError("an item is not valid Unicode (half of a surrogate pair).");
    }
    return xxh64(new TextEncoder().encode(item), 42n);
  }
  if (typeof item === "number" ? !Number.isSafeInteger(item) : typeof item !== "bigint") {
    throw new TypeError("items must be strings, safe integers or BigInts.");
  }
  const whole = BigInt(item);
  if (whole < -(1n << 63n) || whole >= WORD) {
    throw new RangeError("an integer item lies outside [-2**63, 2**64); pass it as a string.");
  }
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, whole & MASK, true);
  return xxh64(bytes, 42n);
}

const M1 = 0xbf58476d1ce4e5b9n;
const M2 = 0x94d049bb133111ebn;

function mix(z) {
  z = ((z ^ (z >> 30n)) * M1) & MASK;
  return ((z ^ (z >> 27n)) * M2) & MASK;
}

function hashKey(poolSeed, index) {
  const purpose = new TextEncoder().encode("local-hashing");
  const origin = new Uint8Array(purpose.length + 8);
  origin.set(purpose);
  new DataView(origin.buffer).setBigUint64(purpose.length, BigInt(poolSeed), true);
  const z = mix((xxh64(origin, 42n) + 0x9e3779b97f4a7c15n * BigInt(index + 1)) & MASK);
  return z ^ (z >> 31n);
}

const bucketOf = (print, key, width) => Number(((mix(print ^ key) >> 32n) * BigInt(width)) >> 32n);

function priority(print, word) {
  const z = mix(print ^ word);
  return z ^ (z >> 31n);
}

// The spec.

/** A fraction just below e^epsilon, over 2^48: the series summed in whole numbers, every division rounded down. */
export function oddsBelow(epsilon) {
  const exponent = BigInt(epsilon * 2 ** 62) << 66n; // exact: epsilon is at least 2^-10, so its last bit is 2^-62
  let term = 1n << 128n;
  let total = term;
  for (let k = 1n; term > 0n; k++) {
    term = (term * exponent) / (k << 128n);
    total += term;
  }
  return total >> 80n;
}

// SHA-256, whole, because the browser's own is not there for pages without TLS. Its constants are the first bits of the
// fractions of the square and cube roots of primes, in whole numbers.

const PRIMES = Array.from({ length: 311 }, (_, k) => k + 2).filter((n) => {
  for (let d = 2; d * d <= n; d++) {
    if (n % d === 0) {
      return false;
    }
  }
  return true;
});

/** The first 32 bits of the fraction of a root of a small number. */
function rootBits(number, degree) {
  const target = BigInt(number) << (32n * degree);
  let low = 0n;
  for (let bit = 1n << 37n; bit > 0n; bit >>= 1n) {
    if ((low + bit) ** degree <= target) {
      low += bit;
    }
  }
  return Number(low & 0xffffffffn);
}

const ROUNDS = PRIMES.map((prime) => rootBits(prime, 3n));
const turn = (x, bits) => (x >>> bits) | (x << (32 - bits));

function sha256(bytes) {
  const blocks = new Uint8Array(64 * Math.ceil((bytes.length + 9) / 64));
  const view = new DataView(blocks.buffer);
  blocks.set(bytes);
  blocks[bytes.length] = 0x80;
  view.setUint32(blocks.length - 4, 8 * bytes.length);
  const state = PRIMES.slice(0, 8).map((prime) => rootBits(prime, 2n));
  const w = new Array(64);
  for (let start = 0; start < blocks.length; start += 64) {
    for (let i = 0; i < 64; i++) {
      if (i < 16) {
        w[i] = view.getUint32(start + 4 * i);
        continue;
      }
      const s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >>> 3);
      const s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >>> 10);
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const mixed = (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g));
      const first = (h + mixed + ROUNDS[i] + w[i]) | 0;
      const second = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [a, b, c, d, e, f, g, h] = [(first + second) | 0, a, b, c, (d + first) | 0, e, f, g];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => {
      state[i] = (state[i] + word) | 0;
    });
  }
  return state.map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

const MEMBERS = ["epsilon", "fingerprint", "key_type", "max_items", "protocol", "seed", "seeds", "width"];

/** The name of a spec: of its members in order, written as Python writes them (a whole epsilon has its ".0"). */
function nameOf(json) {
  const written = (name) =>
    name === "epsilon" && Number.isInteger(json[name]) ? `${json[name]}.0` : JSON.stringify(json[name]);
  const members = MEMBERS.filter((name) => name !== "fingerprint").map((name) => `"${name}":${written(name)}`);
  return sha256(new TextEncoder().encode(`{${members.join(",")}}`)).slice(0, 16);
}

const whole = (value, low, high) => Number.isSafeInteger(value) && value >= low && value <= high;

/**
 * Check a spec as a collector announced it, which need not be trusted.
 *
 * Only subset hashing is known here, so nothing that is not private can be announced. The fingerprint must be that of the
 * parameters, and nothing else may be written beside them. maxEpsilon is the most that the person agreed to reveal with one
 * report: a spec that asks for more is refused.
 */
export function readSpec(json, { maxEpsilon }) {
  const { protocol, epsilon, max_items: maxItems, width, seeds, seed, key_type: keyType, fingerprint: name } = json;
  const valid =
    Object.keys(json).sort().join() === MEMBERS.join() &&
    protocol === "subset-hashing" &&
    typeof epsilon === "number" &&
    epsilon >= 0.001 &&
    epsilon <= 20 &&
    whole(maxItems, 1, 2 ** 16) &&
    whole(width, maxItems + 1, 2 ** 22) &&
    whole(seeds, 1, 2 ** 16) &&
    whole(seed, 0, Number.MAX_SAFE_INTEGER) &&
    (keyType === null || keyType === "int" || keyType === "text") &&
    typeof name === "string" &&
    /^[0-9a-f]{16}$/.test(name);
  if (!valid) {
    throw new TypeError("this is not the spec of a subset-hashing protocol.");
  }
  if (nameOf(json) !== name) {
    throw new TypeError("the spec and its fingerprint do not belong together; get the spec again.");
  }
  if (!(epsilon <= maxEpsilon)) {
    throw new RangeError(`the collector asks for epsilon ${epsilon}; at most ${maxEpsilon} was agreed to.`);
  }
  return Object.freeze({ epsilon, maxItems, width, seeds, seed, keyType, fingerprint: name, odds: oddsBelow(epsilon) });
}

// The report.

function systemRandom(count) {
  return webcrypto.getRandomValues(new Uint8Array(count));
}

const randomWord = (random) => new DataView(random(8).buffer).getBigUint64(0, true);

/** Whether a word is one of the last 2^64 mod m, which would favour the first alternatives. */
const refused = (word, alternatives) => word >= WORD - (WORD % BigInt(alternatives));

function randomBelow(bound, random) {
  let word = randomWord(random);
  while (refused(word, bound)) {
    word = randomWord(random);
  }
  return Number(word % BigInt(bound));
}

function fingerprints(spec, items) {
  return Array.from(items, (item) => {
    const kind = typeof item === "string" ? "text" : "int";
    if (spec.keyType !== null && spec.keyType !== kind) {
      throw new TypeError(`this protocol counts ${spec.keyType} items; one of another kind was given.`);
    }
    return fingerprint(item);
  });
}

/**
 * Turn random words into the reported bucket, or null where `choice` would favour some bucket and must be drawn again.
 *
 * `inside` decides between occupied and empty buckets, `choice` which of them, `order` how a set above the cap is cut.
 */
export function decide(spec, items, seed, { inside, choice, order }) {
  let own = fingerprints(spec, items);
  if (own.length > spec.maxItems) {
    const ranked = new Map(own.map((print) => [priority(print, order), print]));
    const sorted = [...ranked.keys()].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
    own = sorted.slice(0, spec.maxItems).map((rank) => ranked.get(rank));
  }
  const key = hashKey(spec.seed, seed);
  const occupied = [...new Set(own.map((print) => bucketOf(print, key, spec.width)))];
  const mass = BigInt(spec.maxItems) * spec.odds + (BigInt(spec.width - spec.maxItems) << 48n);
  const reportsOccupied = inside < (BigInt(occupied.length) * spec.odds * WORD) / mass;
  const alternatives = reportsOccupied ? occupied.length : spec.width - occupied.length;
  if (refused(choice, alternatives)) {
    return null;
  }
  let rank = Number(choice % BigInt(alternatives));
  if (reportsOccupied) {
    return occupied[rank];
  }
  for (const taken of occupied.sort((a, b) => a - b)) {
    if (rank >= taken) {
      rank += 1;
    }
  }
  return rank;
}

/**
 * Randomise one person's items into a report. It costs spec.epsilon.
 *
 * `random` returns so many random bytes; leave it to the default outside of tests.
 */
export function report(spec, items, random = systemRandom) {
  // A string is iterable too, letter by letter, and would be reported as its letters.
  if (typeof items !== "object" || items === null || typeof items[Symbol.iterator] !== "function") {
    throw new TypeError("items must be an array (or another iterable) of items, such as [\"tea\"].");
  }
  const held = Array.from(items).filter((item) => item !== null && item !== undefined);
  const seed = randomBelow(spec.seeds, random);
  const words = { inside: randomWord(random), choice: randomWord(random), order: randomWord(random) };
  let bucket = decide(spec, held, seed, words);
  while (bucket === null) {
    words.choice = randomWord(random);
    bucket = decide(spec, held, seed, words);
  }
  const id = Array.from(random(16), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { id, seed, bucket };
}

/** The compact form of a report: 31 bytes. */
export function toBytes(spec, { id, seed, bucket }) {
  const bytes = new Uint8Array(31);
  const view = new DataView(bytes.buffer);
  const hexadecimal = spec.fingerprint + id;
  bytes[0] = WIRE_VERSION;
  for (let i = 0; i < 24; i++) {
    bytes[1 + i] = parseInt(hexadecimal.slice(2 * i, 2 * i + 2), 16);
  }
  view.setUint16(25, seed, true);
  view.setUint32(27, bucket, true);
  return bytes;
}

/** The JSON form of a report. */
export function toObject(spec, { id, seed, bucket }) {
  return { dpsketch: WIRE_VERSION, spec: spec.fingerprint, id, seed, bucket };
}
