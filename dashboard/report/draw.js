const charts = JSON.parse(document.getElementById("charts").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const font = { labelFontSize: 13, titleFontSize: 13, titleFontWeight: "normal" };
const text = dark ? "#E5E9F0" : "#1B2430";
const line = dark ? "#3A4452" : "#D5DBE3";
const config = {
  background: "transparent",
  font: "system-ui, sans-serif",
  view: { stroke: null },
  axis: { ...font, labelPadding: 6, labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line },
  legend: { ...font, labelColor: text, titleColor: text },
  header: { ...font, labelColor: text, titleColor: text },
  title: { color: text },
};
charts.forEach((chart, i) => {
  const spec = { ...chart, config, autosize: { type: "fit-x", contains: "padding" } };
  if (!("facet" in spec) && !("hconcat" in spec) && !("vconcat" in spec)) spec.width = "container";
  vegaEmbed(`#chart-${i}`, spec, { actions: { export: true, source: false, compiled: false, editor: false } });
});
const link = document.getElementById("save");
const data = document.getElementById("data").textContent;
link.href = URL.createObjectURL(new Blob([data], { type: "application/json" }));
