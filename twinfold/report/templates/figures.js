// Draws the figures of a report: the fixed ones, those of the selected run, and those of the selected output of a
// learned part. All data are in the page; nothing is fetched.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("report-data").textContent);
  // On a touch screen a drag across a figure scrolls the page; zooming is left to the buttons.
  const touch = matchMedia("(pointer: coarse)").matches;
  // The buttons are listed, because plotly's default set includes one that uploads the figure.
  const buttons = [["zoom2d", "pan2d", "resetScale2d", "toImage"]];
  // A name between dollar signs is a name, not a formula.
  const config = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false,
    typesetMath: false,
    modeBarButtons: buttons,
  };

  const style = getComputedStyle(document.body);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = {
    showgrid: true,
    gridcolor: colour("--line"),
    showline: true,
    linecolor: colour("--grey"),
    zerolinecolor: colour("--line"),
    automargin: true,
    title: { standoff: 8 },
  };
  const template = {
    layout: {
      margin: { l: 62, r: 10, t: touch ? 74 : 40, b: 44 }, // the buttons are always visible on a touch screen
      font: { family: style.fontFamily, size: 12, color: colour("--ink") },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      hovermode: "x unified",
      paper_bgcolor: "#fff",
      plot_bgcolor: "#fff",
      xaxis: axis,
      yaxis: axis,
    },
  };
  const shared = Object.assign({ template, autosize: true }, touch ? { dragmode: false } : {});
  const draw = (id, data, layout) => Plotly.react(id, data, Object.assign(structuredClone(layout), shared), config);

  for (const [id, figure] of Object.entries(page.figures)) draw(id, figure.data, figure.layout);

  for (const [id, choices] of Object.entries(page.choices)) {
    const show = (choice) => choices[choice].forEach((figure, i) => draw(`${id}-${i}`, figure.data, figure.layout));
    const select = document.getElementById(id);
    if (select) select.addEventListener("change", () => show(Number(select.value)));
    show(select ? Number(select.value) : 0);
  }

  const outputs = Object.entries(page.outputs);
  const select = document.getElementById("run");
  if (!select) return;
  const showRun = () => {
    const run = page.runs[Number(select.value)];
    const [first, last] = [run.t[0], run.t[run.t.length - 1]];
    const margin = 0.02 * (last - first);
    for (const [id, figure] of outputs) {
      const traces = figure.data
        .filter((trace) => run[trace.column[0]] !== undefined)
        .map((trace) => Object.assign({}, trace, { x: run.t, y: run[trace.column[0]][trace.column[1]] }));
      const xaxis = Object.assign({}, figure.layout.xaxis, { range: [first - margin, last + margin] });
      draw(id, traces, Object.assign({}, figure.layout, { xaxis, uirevision: select.value }));
    }
  };
  showRun();
  select.addEventListener("change", showRun);

  // All figures of a run show the same time interval.
  let syncing = false;
  const keys = ["xaxis.range[0]", "xaxis.range[1]", "xaxis.autorange"];
  for (const [id] of outputs) {
    document.getElementById(id).on("plotly_relayout", (change) => {
      const update = Object.fromEntries(keys.filter((key) => key in change).map((key) => [key, change[key]]));
      if (syncing || !Object.keys(update).length) return;
      syncing = true;
      const others = outputs.filter(([other]) => other !== id);
      Promise.all(others.map(([other]) => Plotly.relayout(other, update))).finally(() => (syncing = false));
    });
  }
})();
