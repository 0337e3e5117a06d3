// The page of `lateen lab serve`: it asks /api for everything and builds its elements from texts, never from markup.

import { bars, colourOf, dots, live, number, percentiles } from "./charts.js";

const $ = (id) => document.getElementById(id);

// h makes an element: h("p", {class: "x"}, "text", child). A function as a value listens to an event.
function h(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") e.addEventListener(key, value);
    else if (value === true) e.setAttribute(key, "");
    else if (value !== false && value !== undefined) e.setAttribute(key, value);
  }
  e.append(...present(children));
  return e;
}

const present = (children) => children.filter((c) => c !== null && c !== undefined && c !== false);
const fill = (e, ...children) => e.replaceChildren(...present(children));

class Refused extends Error {
  constructor(text, answer = {}) {
    super(text);
    this.key = answer.key;
    this.advice = answer.advice;
  }
}

async function api(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused("the server does not answer: is `lateen lab serve` still running?");
  }
  if (answer.status === 401) askForToken();
  if (answer.status === 204) return null;
  const text = await answer.text();
  if (!(answer.headers.get("Content-Type") || "").startsWith("application/json")) {
    if (!answer.ok) throw new Refused(text || answer.statusText);
    return text;
  }
  const value = JSON.parse(text);
  if (!answer.ok) throw new Refused(value.message + (value.exception ? ": " + value.exception : ""), value);
  return value;
}

function notice(text) {
  $("notice").hidden = !text;
  $("notice").textContent = text || "";
}

function askForToken() {
  $("login").hidden = false;
  $("main").hidden = true;
  $("token").focus();
}

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await api("api/login", { method: "POST", headers: { Authorization: "Bearer " + $("token").value.trim() } });
    $("token").value = "";
    $("login").hidden = true;
    $("main").hidden = false;
    notice("");
    show();
  } catch (error) {
    notice(error.message);
  }
});

const when = (text) => {
  const d = new Date(text);
  const two = (n) => String(n).padStart(2, "0");
  return Number.isNaN(d.getTime()) ? "–" : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
};
const seconds = (s) => (s < 90 ? `${s.toFixed(s < 10 ? 1 : 0)} s` : s < 5400 ? `${(s / 60).toFixed(1)} min` : `${(s / 3600).toFixed(1)} h`);
const nameOf = (run) => run.labels || run.id;

// The form.

const form = $("run");

function settings() {
  const out = {};
  for (const [key, value] of new FormData(form)) if (String(value).trim() !== "") out[key] = String(value);
  const fields = (out.headers || "").split("\n").map((l) => l.trim()).filter(Boolean);
  if ($("close").checked) fields.push("Connection: close");
  delete out.headers;
  if (fields.length) out.headers = fields;
  if ($("fastest").checked) out.qps = "-1";
  if ($("endless").checked) out.t = "on";
  if (out.n) delete out.warmup;
  out.r = "0.0001";
  return out;
}

// aboutField says an error in the words of the form: the label of the field that was refused, and why.
function aboutField(error) {
  const field = error.key && form.elements[error.key];
  const label = field?.closest?.("label")?.textContent.trim();
  if (!label) return error.advice || error.message;
  field.focus();
  return `${label}: ${error.advice}`;
}

// What the settings will yield is the server's to say: it knows how many answers a percentile takes.
let asking = 0;

async function sayExpected() {
  const mine = ++asking;
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(settings())) if (["qps", "t", "n"].includes(key)) query.set(key, value);
  let text = "";
  try {
    text = (await api("api/expect?" + query)).says;
  } catch {
    // What is wrong with a field is said when the run is started.
  }
  if (mine === asking) $("samples").textContent = text;
}

function dependent() {
  form.elements.qps.disabled = $("fastest").checked;
  const counted = form.elements.n.value.trim() !== "";
  $("endless").disabled = counted;
  form.elements.t.disabled = $("endless").checked || counted;
  form.elements.warmup.disabled = counted;
  sayExpected();
}
form.addEventListener("input", dependent);

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const problem = $("run-error");
  problem.hidden = true;
  try {
    await api("api/runs", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(settings()) });
    watch();
  } catch (error) {
    problem.textContent = aboutField(error);
    problem.hidden = false;
  }
});

// Runs under way.

const history = new Map(); // by number: points of the last minutes
let known = new Set();
let timer;

function numbers(pairs) {
  return h("dl", { class: "numbers" }, ...pairs.filter((p) => p).map(([name, value, kind]) => h("div", {}, h("dt", {}, name), h("dd", { class: kind || "" }, value))));
}

function card(run) {
  const p = run.progress;
  const points = history.get(run.runid) || [];
  if (p && (!points.length || points[points.length - 1].t < p.t_s)) points.push({ t: p.t_s, p50: p.p50_ms, p99: p.p99_ms, max: p.max_ms });
  history.set(run.runid, points.slice(-300));
  const share = run.exactly ? (p ? (p.answers_total + p.failed_total) / run.exactly : 0) : run.expected_s ? run.elapsed_s / run.expected_s : undefined;
  const bar = h("progress", share === undefined ? { "aria-label": "Until stopped" } : { max: 1, value: Math.min(share, 1), "aria-label": "Progress" });
  const chart = live(points);
  return h("article", { class: "card" },
    h("header", {},
      h("div", {}, h("h3", {}, run.labels || run.url), run.labels && h("p", { class: "hint" }, run.url)),
      h("button", { type: "button", class: "small", click: () => stop(run.runid), disabled: run.state !== "running" }, run.state === "running" ? "Stop" : "Stopping…")),
    bar,
    h("p", { class: "hint" }, [seconds(run.elapsed_s), run.expected_s ? `of ${seconds(run.expected_s)}` : run.exactly ? `for ${run.exactly} requests` : "until stopped",
      p && p.phase === "warmup" ? "(warm-up)" : "", run.saved ? "" : "– not stored"].filter(Boolean).join(" ")),
    p && numbers([
      ["answers/s", String(p.answers)], run.wanted_qps > 0 && ["wanted", String(run.wanted_qps)], ["answers", String(p.answers_total)],
      ["failed", String(p.failed_total), p.failed_total ? "bad" : ""], p.p50_ms !== undefined && ["P50 now", number(p.p50_ms) + " ms"], p.p99_ms !== undefined && ["P99 now", number(p.p99_ms) + " ms"],
      p.max_ms !== undefined && ["slowest now", number(p.max_ms) + " ms"], ["waiting", String(p.outstanding)]]),
    chart && h("div", { class: "live" }, chart));
}

async function stop(runid) {
  try {
    await api("fortio/rest/stop?runid=" + runid, { method: "POST" });
    watch();
  } catch (error) {
    notice(error.message);
  }
}

async function watch() {
  clearTimeout(timer);
  if (current().view !== "start" || !$("login").hidden) return;
  try {
    const { active, failures } = await api("api/active");
    const focused = document.activeElement?.closest?.("#active");
    fill($("active"), ...(active.length ? active.map(card) : [h("p", { class: "empty" }, "Nothing runs.")]));
    if (focused) $("active").querySelector("button")?.focus();
    fill($("failures"), ...failures.slice(-3).reverse().map((f) => h("p", { class: "problem" }, `${f.url}: ${f.error} (${when(f.ended)})`)));
    const now = new Set(active.map((r) => r.runid));
    if ([...known].some((id) => !now.has(id))) await listRuns();
    known = now;
    notice("");
    timer = setTimeout(watch, active.length ? 1000 : 5000);
  } catch (error) {
    notice(error.message);
    timer = setTimeout(watch, 5000);
  }
}

// Stored results.

const marked = new Set();
let runs = [];

const columns = [["avg", "avg"], ["p50", "P50"], ["p75", "P75"], ["p90", "P90"], ["p99", "P99"], ["max", "max"]];

function cell(run, key) {
  const thin = (run.thin || []).includes(key);
  return h("td", { class: "n" + (thin ? " thin" : ""), title: thin ? "fewer than 100 answers were slower" : undefined }, number(run.times[key]));
}

const numeric = (text, tip) => h("th", { scope: "col", class: "n", title: tip }, text);

function table(caption, heads, rows) {
  return h("div", { class: "table", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows)));
}

async function listRuns() {
  const answer = await api("api/runs");
  runs = answer.runs;
  for (const id of [...marked]) if (!runs.some((r) => r.id === id)) marked.delete(id);
  drawRuns(answer.unread);
}

function drawRuns(unread = []) {
  const wanted = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = runs.filter((r) => wanted.every((w) => `${r.labels} ${r.url} ${r.id}`.toLowerCase().includes(w)));
  const rows = shown.map((r) => h("tr", {},
    h("td", { class: "tick" }, h("input", { type: "checkbox", "aria-label": "select " + nameOf(r), checked: marked.has(r.id), change: (e) => mark(r.id, e.target.checked) })),
    h("td", { class: "name" }, h("a", { href: "#run=" + r.id }, nameOf(r)), h("span", { class: "url" }, r.url)),
    ...columns.map(([key]) => cell(r, key)),
    h("td", { class: "n" + (r.failed ? " bad" : "") }, String(r.failed)),
    h("td", { class: "n" }, number(r.qps)), h("td", { class: "n" }, r.wanted_qps), h("td", { class: "n" }, String(r.connections)), h("td", {}, when(r.started)),
    h("td", {}, h("button", { type: "button", class: "small", "aria-label": "delete " + nameOf(r), click: (e) => remove(r, e.currentTarget) }, "Delete"))));
  const heads = [h("th", { scope: "col", class: "tick" }, h("span", { class: "skip" }, "select")), h("th", { scope: "col" }, "run"), ...columns.map(([, name]) => numeric(name)), numeric("failed"),
    numeric("per s", "answers per second"), numeric("wanted"), numeric("conns", "connections"), h("th", { scope: "col" }, "started"), h("th", { scope: "col" }, "")];
  const parts = [];
  if (!runs.length) parts.push(h("p", { class: "empty" }, "There are none yet. Runs that are started here are stored; by Fortio's interface those with save=on."));
  else if (!shown.length) parts.push(h("p", { class: "empty" }, "None has that in its label, URL or identifier."));
  else {
    parts.push(table(`${shown.length} of ${runs.length} results, times in ms`, heads, rows));
    if (shown.some((r) => r.thin)) parts.push(h("p", { class: "tablenote" }, "A dash stands for a percentile beyond which lie fewer than 100 answers."));
  }
  for (const u of unread) parts.push(h("p", { class: "problem" }, `${u.id}: ${u.error}`));
  fill($("runs"), ...parts);
  $("compare").disabled = marked.size < 2;
}
$("filter").addEventListener("input", () => drawRuns());

function mark(id, on) {
  if (on) marked.add(id);
  else marked.delete(id);
  $("compare").disabled = marked.size < 2;
}
$("compare").addEventListener("click", () => {
  // Oldest first: it is what the others are compared with.
  location.hash = "compare=" + runs.map((r) => r.id).filter((id) => marked.has(id)).reverse().join(",");
});

async function remove(run, button) {
  if (!button.dataset.sure) {
    button.dataset.sure = "yes";
    button.textContent = "Sure?";
    setTimeout(() => {
      delete button.dataset.sure;
      button.textContent = "Delete";
    }, 4000);
    return;
  }
  try {
    await api("api/runs/" + run.id, { method: "DELETE" });
    await listRuns();
  } catch (error) {
    notice(error.message);
  }
}

// One result.

const place = (name) => document.querySelector(`[data-page="${name}"]`);
const back = () => h("p", { class: "back" }, h("a", { href: "#start" }, "← all runs"));
const counts = (map) => Object.entries(map || {}).map(([k, n]) => `${k} × ${n}`).join(", ");

function facts(pairs) {
  return h("dl", { class: "facts" }, ...pairs.filter(([, v]) => v !== "" && v !== undefined && v !== null).flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
}

function timesTable(series) {
  const keys = ["min", "avg", "p50", "p75", "p90", "p99", "p99.9", "max"];
  return table("Times in ms", [h("th", { scope: "col" }, ""), ...keys.map((k) => numeric(k.replace(/^p/, "P"))), numeric("count")],
    series.map((s) => h("tr", {}, h("th", { scope: "row" }, s.name), ...keys.map((k) => h("td", { class: "n" }, number(s.times[k]))), h("td", { class: "n" }, String(s.count)))));
}

async function showRun(id) {
  const { summary: r, series, status, errors, warnings } = await api("api/runs/" + encodeURIComponent(id));
  const links = h("span", {}, h("a", { href: `fortio/data/${r.id}.json` }, "as Fortio has it"), r.ours && ", ", r.ours && h("a", { href: `api/runs/${r.id}/report` }, "with histograms"));
  const charts = [percentiles(series), ...series.slice(0, 1).map(bars)].filter(Boolean);
  fill(place("run"), back(), h("h1", {}, nameOf(r)),
    facts([["URL", r.url], ["started", when(r.started)], ["asked", `${r.wanted_qps === "max" ? "maximum rate" : r.wanted_qps + " requests/s"}, ${r.asked}, ${r.connections} connections`],
      ["got", `${number(r.qps)} answers/s for ${seconds(r.seconds)}`], ["answers", `${r.count}, ${r.failed} failed`], ["status", counts(status)], ["failures", counts(errors)], ["kind", r.type], ["JSON", links]]),
    ...warnings.map((w) => h("p", { class: "warning", role: "note" }, w)),
    series.length ? timesTable(series) : h("p", { class: "empty" }, "No request was answered well: there are no response times."),
    h("div", { class: "charts" }, ...charts));
}

// Comparisons.

async function showComparison(ids) {
  const { runs: rows } = await api("api/compare?" + ids.map((id) => "id=" + encodeURIComponent(id)).join("&"));
  const keys = ["min", "avg", "p50", "p75", "p90", "p99", "max"];
  const labels = rows.map((r) => r.summary.labels || "");
  // Labels alone where they tell the runs apart.
  const names = rows.map((r, i) => (labels[i] && labels.filter((l) => l === labels[i]).length === 1 ? labels[i] : `${labels[i]} ${r.summary.id}`.trim()));
  const few = rows.length <= 5;
  const body = rows.flatMap((r, i) => [
    h("tr", {}, h("th", { scope: "row" }, few && h("span", { class: "key " + colourOf(i) }), h("a", { href: "#run=" + r.summary.id }, names[i])), ...keys.map((k) => cell(r.summary, k)), h("td", { class: "n" }, number(r.summary.qps)),
      h("td", { class: "n" + (r.summary.failed ? " bad" : "") }, String(r.summary.failed))),
    i > 0 && h("tr", {}, h("th", { scope: "row" }, "× the first"), ...[...keys, "qps"].map((k) => h("td", { class: "n thin" }, r.ratios[k] === undefined ? "–" : r.ratios[k].toFixed(2))), h("td")),
  ]).filter(Boolean);
  const series = rows.map((r, i) => r.series[0] && { ...r.series[0], name: names[i] }).filter(Boolean);
  const charts = [few && percentiles(series), dots(rows.map((r, i) => ({ name: names[i], times: r.summary.times })))].filter(Boolean);
  const urls = new Set(rows.map((r) => `${r.summary.url}, ${r.summary.wanted_qps}, ${r.summary.connections}`));
  fill(place("compare"), back(), h("h1", {}, rows.length === 2 ? "Two runs" : `${rows.length} runs`),
    h("p", {}, "Single runs differ by chance alone: a difference that counts takes repeated rounds in turn, which ", h("code", {}, "lateen lab run"), " does."),
    urls.size > 1 && h("p", { class: "warning", role: "note" }, "The runs differ in target, rate or connections: the rows do not measure the same."),
    new Set(rows.map((r) => r.summary.ours)).size > 1 && h("p", { class: "warning", role: "note" }, "Some results are another program's: Fortio's times count from when a request was sent, Lateen's from when it was due."),
    table("Times in ms", [h("th", { scope: "col" }, "run"), ...keys.map((k) => numeric(k.replace(/^p/, "P"))), numeric("per s"), numeric("failed")], body),
    h("div", { class: "charts" }, ...charts));
}

// Results of the lab.

const markedLab = new Set();

async function showLab() {
  const { runs: list, directory } = await api("api/lab");
  $("lab-directory").textContent = directory;
  fill($("lab-text"));
  for (const name of [...markedLab]) if (!list.some((r) => r.name === name)) markedLab.delete(name);
  const rows = list.map((r) => h("tr", {},
    h("td", { class: "tick" }, h("input", { type: "checkbox", "aria-label": "select " + r.name, checked: markedLab.has(r.name), disabled: !!r.error, change: (e) => {
      if (e.target.checked) markedLab.add(r.name);
      else markedLab.delete(r.name);
      $("lab-compare").disabled = markedLab.size !== 2;
    } })),
    h("td", { class: "name" }, r.error ? r.name : h("a", { href: `lab/${r.name}`, target: "_blank", rel: "noopener" }, r.name), h("span", { class: "url" }, r.error || r.scenarios.join(", "))),
    h("td", {}, r.error ? "–" : when(r.started)), h("td", {}, r.planes.join(", ")), h("td", { class: "n" }, String(r.blocks)), h("td", { class: "n" }, String(r.rejected)), h("td", {}, r.interrupted ? "interrupted" : "")));
  fill($("lab-runs"), list.length
    ? table(`${list.length} runs of the lab`, [h("th", { scope: "col", class: "tick" }, ""), h("th", { scope: "col" }, "run"), h("th", { scope: "col" }, "started"), h("th", { scope: "col" }, "planes"), numeric("blocks"), numeric("rejected"), h("th", { scope: "col" }, "")], rows)
    : h("p", { class: "empty" }, "There are none: lateen lab run NAME makes them."));
  $("lab-compare").disabled = markedLab.size !== 2;
}

$("lab-compare").addEventListener("click", async () => {
  const [a, b] = markedLab;
  try {
    const text = await api(`api/lab-compare?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`);
    fill($("lab-text"), h("h2", {}, `${a} and ${b}`), h("pre", { tabindex: "0" }, h("code", {}, text)));
    $("lab-text").scrollIntoView();
  } catch (error) {
    notice(error.message);
  }
});

// Views, by the part of the address behind #.

function current() {
  const [view, rest] = decodeURIComponent(location.hash.slice(1)).split("=", 2);
  if (view === "run" && rest) return { view, id: rest };
  if (view === "compare" && rest && rest.includes(",")) return { view, ids: rest.split(",") };
  return { view: view === "lab" ? "lab" : "start" };
}

async function show() {
  const { view, id, ids } = current();
  for (const p of document.querySelectorAll("[data-page]")) p.hidden = p.dataset.page !== view;
  for (const a of document.querySelectorAll("[data-view]")) {
    if ((a.dataset.view === "lab") === (view === "lab")) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  notice("");
  try {
    if (view === "run") await showRun(id);
    else if (view === "compare") await showComparison(ids);
    else if (view === "lab") await showLab();
    else {
      await listRuns();
      await watch();
    }
  } catch (error) {
    if (view === "run" || view === "compare") fill(place(view), back());
    notice(error.message);
  }
}
window.addEventListener("hashchange", () => {
  show();
  window.scrollTo(0, 0);
});
dependent();
show();
