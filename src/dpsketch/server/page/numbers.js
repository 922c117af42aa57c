/** Numbers as people read them. An end of an interval that is null has no bound. */

const LOCALE = "en";
const NO_BOUND = "no bound";

const whole = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const significant = new Intl.NumberFormat(LOCALE, { maximumSignificantDigits: 3 });
const short = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumSignificantDigits: 3 });

/** A whole number as a person writes it. */
export const WHOLE = /^-?\d+$/;

/** U+2212, as long as a plus; and no "−0". */
const tidy = (text) => (/^-0(\.0*)?%?$/.test(text) ? text.slice(1) : text.replace("-", "−"));

/** With an exponent, as in 1.2e−6, where decimals would be a row of zeros. */
function scientific(value) {
  const [mantissa, exponent] = value.toExponential(2).split("e");
  return `${Number(mantissa)}e${Number(exponent)}`;
}

function plain(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) {
    return scientific(value);
  }
  return size >= 100 ? whole.format(value) : significant.format(value);
}

/** A count, a density or a moment. */
export const quantity = (value) => (value === null ? NO_BOUND : tidy(plain(value)));

/** A share of people, in per cent. */
export function share(value) {
  if (value === null) {
    return NO_BOUND;
  }
  const digits = Math.abs(value) >= 0.1 ? 1 : 2;
  return tidy(`${(100 * value).toFixed(digits)}%`);
}

/** A number on an axis whose marks are `step` apart (null: factors apart); neighbours are never written alike. */
export function tick(value, step) {
  const size = Math.abs(value);
  if (size > 0 && (size < 1e-4 || size >= 1e15)) {
    return tidy(scientific(value));
  }
  if (size >= 1e4 && (step === null || step >= size / 100)) {
    return tidy(short.format(value));
  }
  return tidy(new Intl.NumberFormat(LOCALE, { maximumSignificantDigits: 12 }).format(value));
}

/** A share on an axis. */
export const shareTick = (value) => tidy(`${Number((100 * value).toPrecision(6))}%`);

/** ε and δ; null is infinite. */
export function budget(value) {
  if (value === null) {
    return "∞";
  }
  return value > 0 && value < 1e-3 ? tidy(scientific(value)) : String(Number(value.toPrecision(4)));
}

/** A confidence such as 0.95 in per cent. */
export const percent = (value) => `${Number((100 * value).toPrecision(6))}%`;

/** A probability in per cent, rounded up to one digit, or to as many as tell it from 100%. */
export function atMost(probability) {
  for (let digits = 1; digits <= 12; digits += 1) {
    const scale = 10 ** digits;
    const value = Math.ceil(probability * 100 * scale - 1e-9) / scale;
    if (value < 100) {
      return `${value.toFixed(digits)}%`;
    }
  }
  return "100%";
}

/** "1 report", "2 reports". */
export const several = (number, one, many = `${one}s`) => `${whole.format(number)} ${number === 1 ? one : many}`;

/** The day of a moment as the service writes it, or nothing. */
export const day = (moment) =>
  moment ? new Date(moment).toLocaleDateString(undefined, { year: "numeric", month: "long", day: "numeric" }) : "";
