"use strict";
// The pages about a fleet. Data come as scripts, since a page that was opened from a file may load nothing else.
// Text from outside is set as text, never as markup.
const PAGE = 20, WIDTH = 300, HEIGHT = 150, SVG = "http://www.w3.org/2000/svg";

function number(value) {
  return value === null || value === undefined ? "–" : String(Number(Number(value).toPrecision(4)));
}

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
}

function cell(row, text) {
  const made = document.createElement("td");
  if (text instanceof Node) made.append(text); else made.textContent = text;
  row.append(made);
}

function chart(title, low, high) {
  const svg = element("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title});
  svg.append(element("text", {x: 4, y: 14, "font-size": 13, "font-weight": 600}, title));
  svg.append(element("line", {x1: 4, x2: WIDTH - 4, y1: HEIGHT - 18, y2: HEIGHT - 18, stroke: "#7a7f89"}));
  svg.append(element("text", {x: 4, y: HEIGHT - 4, "font-size": 11, fill: "#5c6370"}, low));
  svg.append(element("text", {x: WIDTH - 4, y: HEIGHT - 4, "font-size": 11, fill: "#5c6370", "text-anchor": "end"}, high));
  return svg;
}

function histogram(of) {
  const svg = chart(`${of.name}: ${number(of.quantiles[1])}`, number(of.low), number(of.high));
  const most = Math.max(...of.counts), step = (WIDTH - 8) / of.counts.length;
  of.counts.forEach((count, index) => {
    const height = (HEIGHT - 44) * count / most;
    const bar = element("rect", {x: 4 + index * step, width: Math.max(step - 1, 1), y: HEIGHT - 18 - height, height, fill: "#0072b2"});
    bar.append(element("title", {}, `${number(of.low + (of.high - of.low) * index / of.counts.length)}: ${count} assets`));
    svg.append(bar);
  });
  for (const value of of.quantiles) mark(svg, of, value, "#d55e00");
  return svg;
}

function mark(svg, of, value, colour) {
  const x = 4 + (WIDTH - 8) * Math.min(Math.max((value - of.low) / (of.high - of.low), 0), 1);
  svg.append(element("line", {x1: x, x2: x, y1: 22, y2: HEIGHT - 18, stroke: colour, "stroke-width": 1.5}));
}

// points: [period, low, middle, high]; low and high may be null.
function band(title, points) {
  const xs = points.map(each => each[0]), ys = points.flatMap(each => each.slice(1)).filter(y => y !== null);
  if (!ys.length) return chart(`${title}: no estimate`, "", "");
  const x0 = Math.min(...xs), x1 = Math.max(...xs), y0 = Math.min(...ys), y1 = Math.max(...ys);
  const svg = chart(`${title}: ${number(y0)} to ${number(y1)}`, `period ${x0}`, String(x1));
  const x = value => 8 + (WIDTH - 16) * (x1 > x0 ? (value - x0) / (x1 - x0) : 0.5);
  const y = value => HEIGHT - 24 - (HEIGHT - 52) * (y1 > y0 ? (value - y0) / (y1 - y0) : 0.5);
  const whole = points.filter(each => each[1] !== null && each[3] !== null);
  if (whole.length > 1) {
    const upper = whole.map(each => `${x(each[0])},${y(each[3])}`), lower = whole.map(each => `${x(each[0])},${y(each[1])}`);
    svg.append(element("polygon", {points: [...upper, ...lower.reverse()].join(" "), fill: "#0072b2", opacity: 0.2}));
  }
  const middle = points.filter(each => each[2] !== null);
  svg.append(element("polyline", {points: middle.map(each => `${x(each[0])},${y(each[2])}`).join(" "), fill: "none", stroke: "#0072b2", "stroke-width": 2}));
  if (middle.length < 40) for (const each of middle) svg.append(element("circle", {cx: x(each[0]), cy: y(each[2]), r: 2.5, fill: "#0072b2"}));
  return svg;
}

let all = [], shown = [], first = 0;

function drawPage() {
  const body = document.getElementById("assets");
  body.replaceChildren();
  for (const [asset, partition, severity, score, alarm, changed, reason] of shown.slice(first, first + PAGE)) {
    const row = document.createElement("tr"), link = document.createElement("a");
    if (alarm) row.className = "alarm";
    link.textContent = asset;
    link.href = `asset.html#${partition}/${encodeURIComponent(asset)}`;
    cell(row, link); cell(row, number(severity)); cell(row, alarm ? "alarm" : ""); cell(row, changed);
    cell(row, number(score)); cell(row, reason);
    body.append(row);
  }
  const last = Math.min(first + PAGE, shown.length);
  document.getElementById("place").textContent = shown.length ? `${first + 1} to ${last} of ${shown.length}` : "none";
}

function fleetAssets(rows) {
  all = shown = rows;
  drawPage();
}

function showOverview(histograms, bands) {
  const move = by => { first = Math.min(Math.max(first + by, 0), PAGE * Math.max(Math.ceil(shown.length / PAGE) - 1, 0)); drawPage(); };
  document.getElementById("back").onclick = () => move(-PAGE);
  document.getElementById("next").onclick = () => move(PAGE);
  document.getElementById("filter").oninput = event => {
    const wanted = event.target.value.toLowerCase();
    shown = wanted ? all.filter(row => row[0].toLowerCase().includes(wanted)) : all;
    first = 0;
    drawPage();
  };
  document.getElementById("histograms").append(...histograms.map(histogram));
  if (bands.length) document.getElementById("bands").append(...bands.map(each => band(each.name, each.points)));
}

let waiting = null;

function fleetData(partition, data) {
  if (waiting) waiting(data);
}

function showAsset(labels, histograms) {
  const load = () => {
    const [partition, ...rest] = location.hash.slice(1).split("/"), asset = decodeURIComponent(rest.join("/"));
    document.getElementById("name").textContent = asset;
    waiting = data => drawAsset(asset, data, labels, histograms);
    const script = document.createElement("script");
    script.src = `data/${Number(partition)}.js`;
    document.body.append(script);
  };
  window.onhashchange = load;
  load();
}

function drawAsset(asset, {columns, assets}, labels, histograms) {
  const found = assets[asset], place = name => columns.indexOf(name);
  const state = document.getElementById("state"), charts = document.getElementById("charts");
  if (!found) { state.textContent = "There is no such asset in this report."; return; }
  const rows = found.rows, last = rows[rows.length - 1], alarm = found.alarm;
  const parts = [];
  if (last[place("reason")]) parts.push(`No estimate: ${last[place("reason")]}.`);
  if (alarm) {
    parts.push(alarm.alarm ? `In alarm since period ${alarm.first_alarm}: severity ${number(alarm.severity)}, ${alarm.changed} changed most.` : `No alarm; severity ${number(alarm.severity)}.`);
    if (alarm.remaining !== null) parts.push(`Remaining life ${number(alarm.remaining)} periods (${number(alarm.low)} to ${number(alarm.high)}).`);
    if (alarm.note) parts.push(`Note: ${alarm.note}.`);
  }
  state.textContent = parts.join(" ") || "Not judged yet.";
  charts.replaceChildren();
  for (const label of labels) {
    const value = row => row[place(`value:${label}`)], error = row => row[place(`error:${label}`)];
    if (rows.length > 1) {
      const side = (row, sign) => value(row) === null || error(row) === null ? null : value(row) + sign * error(row);
      charts.append(band(label, rows.map(row => [row[place("period")], side(row, -1), value(row), side(row, 1)])));
    } else {
      const of = histograms.find(each => each.name === label);
      if (!of) continue;
      const svg = histogram({...of, quantiles: of.quantiles});
      if (value(last) !== null) mark(svg, of, value(last), "#000");
      charts.append(svg);
    }
  }
  const head = document.createElement("tr");
  for (const name of columns) { const th = document.createElement("th"); th.textContent = name.replace(":", " "); head.append(th); }
  document.getElementById("head").replaceChildren(head);
  document.getElementById("rows").replaceChildren(...rows.map(row => {
    const tr = document.createElement("tr");
    for (const value of row) cell(tr, typeof value === "string" ? value : number(value));
    return tr;
  }));
}
