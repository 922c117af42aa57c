/** A density over a rectangle: shades, contours, a scale with numbers, and a cursor for mouse, finger and keyboard. */

import { h, s } from "./dom.js";
import { drawing, linear, textWidth } from "./figure.js";
import { quantity, tick } from "./numbers.js";

const TOP = 10;
const BOTTOM = 46;
const LEGEND = 92;
const SHADES = 24;

/** The edges between neighbouring cells of which one lies above the level and the other does not. */
function contour(name, field, level, { x, y }) {
  const edges = [];
  field.forEach((row, i) =>
    row.forEach((value, j) => {
      const above = value > level;
      if (i > 0 && above !== field[i - 1][j] > level) {
        edges.push(`M${x[j]} ${y[i]}H${x[j + 1]}`);
      }
      if (j > 0 && above !== row[j - 1] > level) {
        edges.push(`M${x[j]} ${y[i]}V${y[i + 1]}`);
      }
    }),
  );
  return s("path", { class: name, d: edges.join("") });
}

function legend(x, top, bottom, scale) {
  const step = (bottom - top) / SHADES;
  return s(
    "g",
    {},
    Array.from({ length: SHADES }, (_, k) =>
      s("rect", {
        class: "heat",
        x,
        y: bottom - (k + 1) * step,
        width: 16,
        height: step + 0.3,
        "fill-opacity": ((k + 0.5) / SHADES).toFixed(3),
      }),
    ),
    s("rect", { class: "frame", x, y: top, width: 16, height: bottom - top }),
    scale.ticks.map((value) => [
      s("line", { class: "contour", x1: x, x2: x + 21, y1: scale.place(value), y2: scale.place(value) }),
      s("text", { class: "tick", x: x + 25, y: scale.place(value) + 4 }, tick(value, scale.step)),
    ]),
  );
}

/**
 * Draw a grid {bounds, values, low?}: `read(point, value)` is told what lies under the cursor, `choose(point)` where a
 * person clicked or pressed Enter.
 */
export function heatMap(grid, names, { read, choose }) {
  const { values, low } = grid;
  const [[west, east], [south, north]] = grid.bounds;
  const rows = values.length;
  const columns = values[0].length;
  const highest = Math.max(...values.flat(), Number.MIN_VALUE);
  let place = null;
  let cursor = [Math.floor(rows / 2), Math.floor(columns / 2)];
  let mark = null;

  const centre = ([i, j]) => [
    west + ((j + 0.5) / columns) * (east - west),
    south + ((i + 0.5) / rows) * (north - south),
  ];
  const tell = (cell) => read(centre(cell), values[cell[0]][cell[1]]);

  function moveCursor(cell) {
    cursor = [Math.max(0, Math.min(rows - 1, cell[0])), Math.max(0, Math.min(columns - 1, cell[1]))];
    for (const [name, value] of Object.entries(place.box(cursor))) {
      place.cursor.setAttribute(name, value);
    }
    tell(cursor);
  }

  function showMark() {
    place.mark.replaceChildren();
    if (mark !== null) {
      const [x, y] = [place.across.place(mark[0]), place.up.place(mark[1])];
      place.mark.append(
        s("circle", { class: "mark halo", cx: x, cy: y, r: 7 }),
        s("circle", { class: "mark", cx: x, cy: y, r: 7 }),
        s("path", { class: "mark", d: `M${x - 11} ${y}h8M${x + 3} ${y}h8M${x} ${y - 11}v8M${x} ${y + 3}v8` }),
      );
    }
  }

  function draw(width) {
    const height = Math.round(Math.max(260, Math.min(520, width * 0.72)));
    const bottom = height - BOTTOM;
    const up = linear(south, north, bottom, TOP, 6);
    const left = Math.max(...up.ticks.map((value) => textWidth(tick(value, up.step)))) + 32;
    const right = width - LEGEND;
    const across = linear(west, east, left, right, Math.max(3, (right - left) / 80));
    const shades = linear(0, highest, bottom, TOP, 8);
    // Whole pixels, so that cells neither overlap nor leave gaps.
    const edges = {
      x: Array.from({ length: columns + 1 }, (_, j) => Math.round(left + (j * (right - left)) / columns)),
      y: Array.from({ length: rows + 1 }, (_, i) => Math.round(bottom - (i * (bottom - TOP)) / rows)),
    };
    const box = ([i, j]) => ({
      x: edges.x[j],
      y: edges.y[i + 1],
      width: edges.x[j + 1] - edges.x[j],
      height: edges.y[i] - edges.y[i + 1],
    });
    const cells = values.flatMap((row, i) =>
      row.map((value, j) =>
        s("rect", { class: "heat", ...box([i, j]), "fill-opacity": Math.max(0, value / highest).toFixed(3) }),
      ),
    );
    const peak = values.flat().indexOf(highest);
    const [px, py] = centre([Math.floor(peak / columns), peak % columns]).map(quantity);
    const sentence = `Heat map of the density over ${names[0]} and ${names[1]}; it is highest near ${px}, ${py}.`;
    const cellAt = (event) => {
      const frame = picture.getBoundingClientRect();
      const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
      const j = Math.floor(((x - left) / (right - left)) * columns);
      const i = Math.floor(((bottom - y) / (bottom - TOP)) * rows);
      return i >= 0 && j >= 0 && i < rows && j < columns ? [i, j] : null;
    };
    const picture = drawing(
      width,
      height,
      sentence,
      s("g", { class: "cells" }, cells),
      shades.ticks
        .filter((level) => level > 0)
        .flatMap((level) => [contour("contour halo", values, level, edges), contour("contour", values, level, edges)]),
      low ? contour("sure", low, 0, edges) : null,
      s("rect", { class: "frame", x: left, y: TOP, width: right - left, height: bottom - TOP }),
      across.ticks.map((value) => {
        const x = across.place(value);
        return [
          s("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 5 }),
          s("text", { class: "tick", x, y: bottom + 19, "text-anchor": "middle" }, tick(value, across.step)),
        ];
      }),
      up.ticks.map((value) => {
        const y = up.place(value);
        return [
          s("line", { class: "axis", x1: left - 5, x2: left, y1: y, y2: y }),
          s("text", { class: "tick", x: left - 8, y: y + 4, "text-anchor": "end" }, tick(value, up.step)),
        ];
      }),
      s("text", { class: "tick", x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, names[0]),
      s(
        "text",
        {
          class: "tick",
          x: 11,
          y: (TOP + bottom) / 2,
          "text-anchor": "middle",
          transform: `rotate(-90 11 ${(TOP + bottom) / 2})`,
        },
        names[1],
      ),
      legend(right + 20, TOP, bottom, shades),
      s("text", { class: "tick", x: right + 20, y: height - 6 }, "density"),
      s("rect", { class: "cursor" }),
      s("g", { class: "marks" }),
    );
    place = {
      box,
      across,
      up,
      cursor: picture.querySelector(".cursor"),
      mark: picture.querySelector(".marks"),
    };
    picture.addEventListener("pointermove", (event) => {
      const cell = cellAt(event);
      if (cell !== null) {
        moveCursor(cell);
      }
    });
    picture.addEventListener("click", (event) => {
      const cell = cellAt(event);
      if (cell !== null) {
        moveCursor(cell);
        choose(centre(cell));
      }
    });
    moveCursor(cursor);
    showMark();
    holder.replaceChildren(picture);
    return holder;
  }

  const steps = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const keydown = (event) => {
    const stride = event.shiftKey ? 8 : 1;
    if (event.key in steps) {
      const [up, right] = steps[event.key];
      moveCursor([cursor[0] + up * stride, cursor[1] + right * stride]);
    } else if (event.key === "Enter" || event.key === " ") {
      choose(centre(cursor));
    } else {
      return;
    }
    event.preventDefault();
  };

  const holder = h("div", {
    class: "map",
    tabindex: "0",
    role: "application",
    "aria-roledescription": "heat map",
    "aria-label": `Heat map over ${names[0]} and ${names[1]}. Move with the arrow keys, ask with Enter.`,
    keydown,
    focus: () => place !== null && tell(cursor),
  });

  return {
    draw,
    /** The densest cells, as [x, y, density]. */
    densest(number) {
      const cells = values.flatMap((row, i) => row.map((value, j) => [...centre([i, j]), value]));
      return cells.sort((a, b) => b[2] - a[2]).slice(0, number);
    },
    mark(point) {
      mark = point;
      showMark();
    },
  };
}
