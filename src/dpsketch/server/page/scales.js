/** Axes: from values to places, and where their marks go. */

/** A round step of 1, 2 or 5 times a power of ten, so that a range takes about `wanted` of them. */
function roundStep(range, wanted) {
  const raw = range / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 5, 10].find((candidate) => candidate * power >= raw * 0.999999);
  return factor * power;
}

/** An even scale from [low, high] to [start, end]. */
export function linear(low, high, start, end, wanted) {
  const reach = high > low ? high - low : Math.max(1e-9, Math.abs(high) || 1);
  const step = roundStep(reach, wanted);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= low + reach * (1 + 1e-9); k++) {
    ticks.push(Number((k * step).toPrecision(12)));
  }
  const place = (value) => start + ((value - low) / reach) * (end - start);
  return { place, ticks, step, low, high: low + reach };
}

/** A scale whose steps are factors; low and high are positive. */
export function logarithmic(low, high, start, end, wanted) {
  const from = Math.log10(low);
  const reach = Math.max(0.05, Math.log10(high) - from);
  const factors = 3 * reach <= 1.5 * wanted ? [1, 2, 5] : [1];
  const every = factors.length > 1 ? 1 : Math.max(1, Math.ceil(reach / Math.max(2, wanted)));
  const ticks = [];
  for (let power = Math.floor(from); power <= from + reach; power++) {
    for (const factor of power % every === 0 ? factors : []) {
      const mark = Number((factor * 10 ** power).toPrecision(3));
      if (mark >= low && mark <= high) {
        ticks.push(mark);
      }
    }
  }
  const place = (value) => start + ((Math.log10(value) - from) / reach) * (end - start);
  return { place, ticks, step: null, low, high };
}
