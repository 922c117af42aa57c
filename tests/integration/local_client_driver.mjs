// Reads one request a line on standard input, and answers each with one line of JSON.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const client = await import(pathToFileURL(process.argv[2]).href);

function vector({ spec: json, items, seed, inside, choice, order, id }) {
  const spec = client.readSpec(json, { maxEpsilon: 20 });
  const words = { inside: BigInt(inside), choice: BigInt(choice), order: BigInt(order) };
  const bucket = client.decide(spec, items, seed, words);
  const made = { id, seed, bucket };
  return { bucket, bytes: Buffer.from(client.toBytes(spec, made)).toString("hex"), object: client.toObject(spec, made) };
}

function many({ spec: json, sets }) {
  const spec = client.readSpec(json, { maxEpsilon: 20 });
  return sets.map((items) => Buffer.from(client.toBytes(spec, client.report(spec, items))).toString("hex"));
}

// Each call for random bytes is answered with the script's next byte, repeated.
function scripted({ spec: json, items, script }) {
  const spec = client.readSpec(json, { maxEpsilon: 20 });
  let calls = 0;
  const random = (count) => new Uint8Array(count).fill(script[calls++]);
  return { made: client.report(spec, items, random), calls };
}

const answers = {
  vector,
  many,
  scripted,
  odds: ({ epsilon }) => client.oddsBelow(epsilon).toString(),
  fingerprint: ({ item, bigint }) => client.fingerprint(bigint === undefined ? item : BigInt(bigint)).toString(),
  readSpec: ({ spec, maxEpsilon }) => client.readSpec(spec, { maxEpsilon }).epsilon,
};

for await (const line of createInterface({ input: process.stdin })) {
  const { ask, ...request } = JSON.parse(line);
  let answer;
  try {
    answer = { answer: answers[ask](request) };
  } catch (error) {
    answer = { error: error.message };
  }
  console.log(JSON.stringify(answer));
}
