// Draws the figures of a report: those that stand still, those of the run that is chosen, and those of the learned
// output that is chosen. All data are in the page; nothing is fetched.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("report-data").textContent);
  // Where one scrolls with a finger, a drag across a figure must not zoom; its buttons still do.
  const touch = matchMedia("(pointer: coarse)").matches;
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };

  const draw = (id, data, layout) =>
    Plotly.react(id, data, Object.assign(structuredClone(layout), touch ? { dragmode: false } : {}), config);

  for (const [id, figure] of Object.entries(page.figures)) draw(id, figure.data, figure.layout);

  for (const [id, choices] of Object.entries(page.choices)) {
    const show = (which) => choices[which].forEach((figure, i) => draw(`${id}-${i}`, figure.data, figure.layout));
    const select = document.getElementById(id);
    if (select) select.addEventListener("change", () => show(Number(select.value)));
    show(select ? Number(select.value) : 0);
  }

  const outputs = Object.entries(page.outputs);
  const select = document.getElementById("run");
  const showRun = () => {
    const run = page.runs[Number(select.value)];
    const [first, last] = [run.t[0], run.t[run.t.length - 1]];
    const beyond = 0.02 * (last - first);
    for (const [id, figure] of outputs) {
      const filled = figure.data
        .filter((trace) => run[trace.column[0]] !== undefined)
        .map((trace) => Object.assign({}, trace, { x: run.t, y: run[trace.column[0]][trace.column[1]] }));
      const xaxis = Object.assign({}, figure.layout.xaxis, { range: [first - beyond, last + beyond] });
      draw(id, filled, Object.assign({}, figure.layout, { xaxis, uirevision: select.value }));
    }
  };
  if (!select) return;
  showRun();
  select.addEventListener("change", showRun);

  // All outputs of a run show the same stretch of time.
  let following = false;
  const time = ["xaxis.range[0]", "xaxis.range[1]", "xaxis.autorange"];
  for (const [id] of outputs) {
    document.getElementById(id).on("plotly_relayout", (change) => {
      const update = Object.fromEntries(time.filter((key) => key in change).map((key) => [key, change[key]]));
      if (following || !Object.keys(update).length) return;
      following = true;
      const others = outputs.filter(([other]) => other !== id);
      Promise.all(others.map(([other]) => Plotly.relayout(other, update))).finally(() => (following = false));
    });
  }
})();
