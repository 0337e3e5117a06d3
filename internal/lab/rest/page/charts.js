// Drawings in SVG, in the report's style. Texts are set as texts: nothing that comes from a run becomes markup.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 480;
const dashes = ["", "7 4", "2 3", "10 3 2 3", "5 2"];

export function element(name, attributes = {}, ...children) {
  const e = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "") e.setAttribute(key, value);
  e.append(...children);
  return e;
}

// A scale maps values to positions, linearly or by logarithms.
function scale(low, high, from, to, log = false) {
  const f = log ? Math.log : (v) => v;
  const at = (v) => (high === low ? (from + to) / 2 : from + ((f(v) - f(low)) / (f(high) - f(low))) * (to - from));
  const ticks = () => {
    const out = [];
    if (log) {
      const steps = Math.log10(high / low) > 2.5 ? [1] : [1, 2, 5];
      for (let d = Math.floor(Math.log10(low)); d <= Math.ceil(Math.log10(high)) && out.length < 40; d++)
        for (const m of steps) {
          const v = m * 10 ** d;
          if (v >= low * 0.999 && v <= high * 1.001) out.push(v);
        }
      return out;
    }
    if (!(high > low)) return [low];
    let step = 10 ** Math.floor(Math.log10((high - low) / 2));
    for (const m of [1, 2, 5, 10])
      if ((high - low) / (step * m) <= 6) {
        step *= m;
        break;
      }
    for (let v = Math.ceil(low / step) * step; v <= high * 1.0001 && out.length < 40; v += step) out.push(v);
    return out;
  };
  return { low, high, at, ticks };
}

export function number(v) {
  if (v === undefined || v === null || Number.isNaN(v)) return "–";
  const size = Math.abs(v);
  if (size >= 1000) return v.toFixed(0);
  if (size >= 100) return v.toFixed(1);
  if (size >= 1) return v.toFixed(2);
  if (size >= 0.01) return v.toFixed(3);
  return v === 0 ? "0" : String(Number(v.toPrecision(2)));
}

const tick = (v) => String(Number(v.toPrecision(4)));
const shortened = (s, most) => ([...s].length <= most ? s : [...s].slice(0, most - 1).join("") + "…");

class Drawing {
  constructor() {
    this.nodes = [];
  }
  add(name, attributes, ...children) {
    this.nodes.push(element(name, attributes, ...children));
  }
  text(x, y, anchor, kind, s) {
    this.add("text", { x, y, "text-anchor": anchor, class: kind }, s);
  }
  line(x1, y1, x2, y2, kind) {
    this.add("line", { x1, y1, x2, y2, class: kind });
  }
  curve(points, colour, dash) {
    this.add("polyline", { points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "), class: "curve ink " + colour, "stroke-dasharray": dash });
  }
  // One of four shapes, so that series differ without colour.
  marker(x, y, shape, colour, size = 4.5) {
    const at = (...pairs) => pairs.map(([dx, dy]) => `${(x + dx * size).toFixed(1)},${(y + dy * size).toFixed(1)}`).join(" ");
    const attributes = { class: "fill edge " + colour };
    if (shape % 4 === 0) return this.add("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: size, ...attributes });
    const shapes = [, [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]], [[0, -1.2], [1.1, 0.9], [-1.1, 0.9]], [[0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]]];
    this.add("polygon", { points: at(...shapes[shape % 4]), ...attributes });
  }
  legend(y, names) {
    let x = 8;
    names.forEach((name, i) => {
      const text = shortened(name, 44);
      const width = 54 + 7.4 * [...text].length;
      if (x + width > WIDTH && x > 8) {
        x = 8;
        y += 20;
      }
      this.curve([[x, y - 4], [x + 30, y - 4]], colourOf(i), dashes[i % dashes.length]);
      this.marker(x + 15, y - 4, i, colourOf(i));
      this.text(x + 36, y, "start", "", text);
      x += width;
    });
    return y;
  }
  svg(height, label) {
    return element("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label }, ...this.nodes);
  }
}

export const colourOf = (i) => "c" + ((i + 1) % 6);

function figure(title, note, svg) {
  const f = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.textContent = title;
  const p = document.createElement("p");
  p.className = "tablenote";
  p.textContent = note;
  f.append(caption, svg, p);
  return f;
}

// Times over their percentiles: series are {name, curve: [[nines, ms]], times}.
export function percentiles(series) {
  const drawn = series.filter((s) => s.curve.length > 1 && s.curve[s.curve.length - 1][0] > 0);
  if (!drawn.length) return null;
  const left = 56, right = 468, top = 12, bottom = 250;
  const nines = Math.max(...drawn.map((s) => s.curve[s.curve.length - 1][0]));
  // From P1 on: the very fastest would take half of the height.
  const values = drawn.flatMap((s) => s.curve.filter((p) => p[0] >= 0.0043).map((p) => p[1])).filter((v) => v > 0);
  if (!values.length) return null;
  const x = scale(0, nines, left, right);
  const y = scale(Math.min(...values) / 1.15, Math.max(...values) * 1.15, bottom, top, true);
  const g = new Drawing();
  for (const v of y.ticks()) {
    g.line(left, y.at(v), right, y.at(v), "grid");
    g.text(left - 6, y.at(v) + 4, "end", "soft", tick(v));
  }
  for (const q of [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999]) {
    const at = -Math.log10(1 - q);
    if (at > nines + 1e-9) continue;
    g.line(x.at(at), top, x.at(at), bottom, "grid");
    g.text(x.at(at), bottom + 17, x.at(at) > right - 20 ? "end" : "middle", "soft", tick(100 * q) + " %");
  }
  drawn.forEach((s, i) => {
    const points = s.curve.map(([at, ms]) => [x.at(at), y.at(Math.max(ms, y.low))]);
    g.curve(points, colourOf(i), dashes[i % dashes.length]);
    for (const share of [0.25, 0.62, 1]) g.marker(...points[Math.round(share * (points.length - 1))], i, colourOf(i));
  });
  const height = g.legend(bottom + 44, drawn.map((s) => s.name)) + 10;
  const said = drawn.map((s) => `${s.name} has a P50 of ${number(s.times.p50)} ms`).join(", ");
  return figure("Time by percentile, ms", "Logarithmic on both axes; lower is better. A line ends where fewer than 100 answers lie beyond; one of fewer than 200 answers goes on to the slowest.",
    g.svg(height, "Time by percentile in milliseconds: " + said + "."));
}

// How many answers took how long, of one series.
export function bars(s) {
  if (s.bars.length < 2) return null;
  const left = 46, right = 468, top = 12, bottom = 230;
  const x = scale(s.bars[0].from, s.bars[s.bars.length - 1].to, left, right);
  const most = Math.max(...s.bars.map((b) => b.share));
  const y = scale(0, most * 1.05, bottom, top);
  const g = new Drawing();
  for (const v of y.ticks()) {
    g.line(left, y.at(v), right, y.at(v), "grid");
    g.text(left - 6, y.at(v) + 4, "end", "soft", tick(100 * v) + " %");
  }
  for (const b of s.bars) {
    const w = x.at(b.to) - x.at(b.from);
    if (b.share > 0) g.add("rect", { x: (x.at(b.from) + 0.5).toFixed(1), y: y.at(b.share).toFixed(1), width: Math.max(w - 1, 0.8).toFixed(1), height: Math.max(bottom - y.at(b.share), 0.6).toFixed(1), class: "bar-fill c1" });
  }
  for (const v of x.ticks()) g.text(x.at(v), bottom + 17, "middle", "soft", tick(v));
  let beyond = 34;
  [["p50", "P50"], ["p90", "P90"]].forEach(([key, name]) => {
    const v = s.times[key];
    if (v === undefined || v > s.bars[s.bars.length - 1].to) return;
    g.add("line", { x1: x.at(v), y1: top, x2: x.at(v), y2: bottom, class: "one", "stroke-dasharray": "4 3" });
    g.text(Math.min(x.at(v) + 4, right - 4), beyond - 12, x.at(v) > right - 60 ? "end" : "start", "", name);
    beyond += 18;
  });
  g.text((left + right) / 2, bottom + 36, "middle", "soft", "milliseconds");
  return figure("How long answers took: " + s.name, "Shares of all answers; the slowest 1 % lie beyond the right edge.",
    g.svg(bottom + 46, `Histogram of the ${s.name}: P50 ${number(s.times.p50)} ms, P90 ${number(s.times.p90)} ms.`));
}

// P50, P90 and P99 of many runs, a line each.
export function dots(runs) {
  const keys = ["p50", "p90", "p99"];
  const values = runs.flatMap((r) => keys.map((k) => r.times[k])).filter((v) => v > 0);
  if (!values.length) return null;
  const left = 150, right = 462, row = 24, top = 10;
  const bottom = top + row * runs.length;
  const x = scale(Math.min(...values) / 1.2, Math.max(...values) * 1.2, left, right, true);
  const g = new Drawing();
  let last = -Infinity;
  for (const v of x.ticks()) {
    g.line(x.at(v), top, x.at(v), bottom, "grid");
    if (x.at(v) - last < 26) continue;
    g.text(x.at(v), bottom + 16, "middle", "soft", tick(v));
    last = x.at(v);
  }
  runs.forEach((r, i) => {
    const y = top + row * (i + 0.5);
    g.text(left - 8, y + 4, "end", "", shortened(r.name, 17));
    const at = keys.map((k) => r.times[k]).filter((v) => v > 0).map((v) => x.at(v));
    if (at.length > 1) g.line(Math.min(...at), y, Math.max(...at), y, "one");
    keys.forEach((k, shape) => {
      if (r.times[k] > 0) g.marker(x.at(r.times[k]), y, shape, colourOf(shape));
    });
  });
  let at = 8;
  keys.forEach((k, i) => {
    g.marker(at + 8, bottom + 36, i, colourOf(i));
    g.text(at + 18, bottom + 40, "start", "", k.toUpperCase());
    at += 70;
  });
  return figure("P50, P90 and P99 of each run, ms", "Logarithmic; further left is better.", g.svg(bottom + 50, "P50, P90 and P99 of each run; the numbers stand in the table."));
}

// The last minutes of a run under way: points are {t, p50, p99, max}, each time only where enough answers bear it.
export function live(points) {
  const left = 50, right = 472, top = 8, bottom = 92;
  const values = points.flatMap((p) => [p.p50, p.p99, p.max]).filter((v) => v > 0);
  if (points.length < 2 || !values.length) return null;
  const x = scale(points[0].t, points[points.length - 1].t, left, right);
  const y = scale(Math.min(...values) / 1.2, Math.max(...values) * 1.2, bottom, top, true);
  const g = new Drawing();
  const ticks = y.ticks();
  for (const v of ticks.length > 4 ? ticks.filter((_, i) => i % 2 === 0) : ticks) {
    g.line(left, y.at(v), right, y.at(v), "grid");
    g.text(left - 6, y.at(v) + 4, "end", "soft", tick(v));
  }
  const drawn = [["p50", "P50, ms"], ["p99", "P99, ms"], ["max", "slowest, ms"]].filter(([k]) => points.filter((p) => p[k] > 0).length > 1);
  drawn.forEach(([k], i) => {
    const path = points.filter((p) => p[k] > 0).map((p) => [x.at(p.t), y.at(p[k])]);
    g.curve(path, colourOf(i), dashes[i]);
  });
  g.text(left, bottom + 18, "start", "soft", Math.round(points[0].t) + " s");
  g.text(right, bottom + 18, "end", "soft", Math.round(points[points.length - 1].t) + " s");
  const height = g.legend(bottom + 38, drawn.map(([, name]) => name)) + 8;
  return g.svg(height, `${drawn.map(([, name]) => name).join(" and ")} over the last seconds.`);
}
